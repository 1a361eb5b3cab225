"""No file is ever unpickled: nothing in the package imports what could, or calls it, except one checked conversion."""

import ast
from pathlib import Path

import pytest

import neurosql

ROOT = Path(neurosql.__file__).parent
MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "torch.package",
    "copyreg",
}
RUNNERS = {"eval", "exec", "compile", "__import__"}
# The published LPIPS weights are pickles of arrays: read after their checksum, by an unpickler that admits arrays only.
CONVERSION = ROOT / "metrics" / "weights.py"


def dotted(node):
    """`a.b.c` of an expression of names and attributes, else ''."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(tree):
    """What a module imports or calls that could run what is in a file, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        for name in names:
            if name in MODULES or name.split(".")[0] in MODULES:
                yield node.lineno, f"imports {name}"
            if name in {"torch.load", "numpy.load", "torch.jit.load"}:
                yield node.lineno, f"imports {name} by itself"
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        if called in RUNNERS:
            yield node.lineno, f"calls {called}"
        if called in {"torch.load", "torch.jit.load", "pd.read_pickle", "pandas.read_pickle"}:
            yield node.lineno, f"calls {called}"
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield node.lineno, f"{called} allows pickles"
        if called in {"np.load", "numpy.load"} and "allow_pickle" not in {keyword.arg for keyword in node.keywords}:
            yield node.lineno, f"{called} does not say allow_pickle=False"
        words = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if called.endswith("import_module") and any(word.split(".")[0] in MODULES for word in words):
            yield node.lineno, f"imports {words[0]}"


def test_nothing_in_the_package_unpickles_or_runs_what_a_file_holds():
    paths = sorted(ROOT.rglob("*.py"))
    found = {path: list(faults(ast.parse(path.read_text("utf-8")))) for path in paths}
    conversion = found.pop(CONVERSION)
    assert len(paths) > 100
    assert not [f"{path.relative_to(ROOT)}:{line} {what}" for path, some in found.items() for line, what in some]
    assert [what for _, what in conversion] == ["imports pickle"]


def test_the_conversion_of_weights_uses_its_own_unpickler_alone():
    tree = ast.parse(CONVERSION.read_text("utf-8"))
    used = {dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used if name.startswith("pickle.")} == {"pickle.Unpickler", "pickle.UnpicklingError"}
    (own,) = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "_ArraysOnly"]
    assert [dotted(base) for base in own.bases] == ["pickle.Unpickler"]
    assert "find_class" in {node.name for node in own.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib as j",
        "from torch import load",
        "import torch; torch.load(path)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "import_module('dill')",
        "eval(text)",
        "from numpy import load",
    ],
)
def test_what_is_forbidden_is_seen(code):
    assert list(faults(ast.parse(code)))


def test_what_is_allowed_is_not():
    code = "import json; np.load(path, allow_pickle=False); re.compile(x); safetensors.torch.load_file(path)"
    assert not list(faults(ast.parse(code)))
