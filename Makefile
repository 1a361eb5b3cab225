# Two commands matter: `make demo` and `make test`. Both set up .venv on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/.installed-tools

# Run with the compiled extension and without it.
BOTH_PATHS := tests/assign/test_solve.py tests/test_cost.py tests/methods/test_neurosql.py

.PHONY: demo test lint format docs examples sanitize results clean

# Trains on the embedded digits and leaves runs/demo with pictures and a page.
demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/neurosql train mnist-sample --limit 2000 --out runs/demo

# Two processes of one thread each: on two cores that is faster than one process of two threads, and not
# disturbed by whatever else runs on the machine. The one that has nothing left to do takes tests from the other.
# Compiled modules are kept, or every process that a test starts would compile the package.
TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal
test: $(TOOLS) lint
	$(TESTS)
	NEUROSQL_NATIVE=0 $(TESTS) $(BOTH_PATHS)

lint: export MYPY_NUM_WORKERS := 2
lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The build tools are installed first and pinned too, so nothing is fetched into a build environment of its own.
$(STAMP): pyproject.toml constraints.txt $(wildcard native/*)
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else 0'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e .
	touch $(STAMP)

# What only tests and lint need: the extra `test` of pyproject.toml, without building the package once more.
$(TOOLS): $(STAMP)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"], sep="\n")' > $(VENV)/tools.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -r $(VENV)/tools.txt
	touch $(TOOLS)

# The documentation site, in build/site. Open build/site/index.html; for the search, serve the folder:
# python -m http.server --bind 127.0.0.1 --directory build/site
docs: $(STAMP)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $(VENV)/docs.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -r $(VENV)/docs.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/check_site.py build/site

# Every example from beginning to end, each in a folder that is removed: about three minutes on one core.
examples: $(STAMP)
	set -e; for file in examples/*.py; do \
	    echo "== $$file"; place=$$(mktemp -d); \
	    (cd $$place && MPLBACKEND=Agg $(CURDIR)/$(BIN)/python $(CURDIR)/$$file); rm -rf $$place; \
	done

# The kernels' tests under the address and undefined-behaviour sanitizers (GCC on Linux). libstdc++ comes first in
# line with the sanitizer, or it would miss how exceptions are thrown.
SANITIZED := build/sanitized
sanitize: $(TOOLS)
	$(BIN)/cmake -S native -B $(SANITIZED) -G Ninja -DNEUROSQL_SANITIZE=ON \
	    -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja
	$(BIN)/cmake --build $(SANITIZED)
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0 NEUROSQL_EXTENSION=$(SANITIZED) OMP_NUM_THREADS=1 \
	    $(BIN)/pytest tests/native tests/assign/test_candidates.py

# The results that the documentation quotes: hours on two cores. Stopped at any time, it goes on where it was.
# NEUROSQL_DATA names a folder that holds celeba/, afhq/, oasis/ and mnist/; without it only MNIST's are made.
# Those of the other three need published weights too: `neurosql weights fetch lpips-vgg`.
PUBLISHED := best pictures samplers mnist celeba afhq oasis main downstream assignment start subset choices planes sheets runtime
PUBLISHED += encoder scalability
results: $(STAMP)
	$(BIN)/neurosql bench run $(PUBLISHED) --budget laptop
	$(BIN)/neurosql report results/laptop
	$(BIN)/python docs/figures.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
