"""Nothing that is read can run code: the package's syntax tree has no unpickling, no eval, no code from files."""

import ast
from pathlib import Path

import pytest

import neurosql

ROOT = Path(neurosql.__file__).parent
RUNS_CODE = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__"}
# LPIPS weights are published as a pickle. It is read after its checksum was verified, by an unpickler that admits
# nothing but numpy arrays (tests/metrics/test_lpips.py).
ALLOWED = {"metrics/weights.py": {"import pickle"}}


def wrong(tree):
    """What could run code that a file holds, by its place in the tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {alias.name}" for alias in node.names if alias.name.split(".")[0] in RUNS_CODE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in RUNS_CODE:
            yield f"from {node.module}"
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if name in CALLS or name in ("torch.load", "torch.hub.load"):
                yield f"{name}()"
            if name in ("np.load", "numpy.load") and given.get("allow_pickle") != "False":
                yield f"{name}() that may unpickle"
            if (name.startswith("subprocess.") and given.get("shell") == "True") or name in ("os.system", "os.popen"):
                yield f"{name} in a shell"


def test_no_module_unpickles_or_runs_what_it_reads():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        left = set(wrong(ast.parse(path.read_text("utf-8")))) - ALLOWED.get(place, set())
        if left:
            found[place] = left
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "subprocess.run(line, shell=True)",
        "os.system(line)",
    ],
)
def test_the_walk_finds_what_it_is_for(source):
    assert list(wrong(ast.parse(source)))
