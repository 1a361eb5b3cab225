# Two commands matter: `make demo` and `make test`. Both set up .venv on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint format clean

# Trains on the embedded digits and leaves runs/demo with pictures and a page.
demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/neurosql train mnist-sample --limit 2000 --out runs/demo

# Two processes of one thread each: on two cores that is faster than one process of two threads, and not
# disturbed by whatever else runs on the machine.
test: $(STAMP) lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The build tools are installed first and pinned too, so nothing is fetched into a build environment of its own.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version) if sys.version_info < (3, 11) else 0'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt scikit-build-core
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[test]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
