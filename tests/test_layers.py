"""The direction of imports: a room (module or package) imports only from rooms below it, so there are no cycles."""

import ast
import functools
from pathlib import Path

import neurosql

ROOT = Path(neurosql.__file__).parent

# From low to high: a room imports from those before it, and from itself.
ROOMS = [
    # plain helpers
    *("errors", "visible", "memory", "locks", "intake", "files", "registry", "children", "signals", "clock", "heap"),
    *("pixels", "ranks", "joint"),
    # settings and records
    *("modality", "settings", "presets"),
    # the loss, the prior, the assignment
    *("engine", "similarity", "colour", "cost", "prior", "density", "dimension", "samplers", "assign", "sliced"),
    # networks
    *("networks", "precision", "generators", "encode", "computation"),
    # learning principles, data, scores
    *("methods", "data", "metrics"),
    # a run
    *("circumstances", "threads", "held", "together", "training", "estimate"),
    *("checkpoint", "origin", "recorded", "trained_on"),
    *("fitted", "restoring", "preparing", "run", "estimator", "evaluate"),
    # what is made of runs
    *("bench", "report"),
    # what a person asks for
    *("app", "web", "commands", "messages", "overview", "flags", "tune", "cli", "__main__"),
]


def room(module):
    """The room of `neurosql.room.module`, None for the package itself and for anything else."""
    parts = module.split(".")
    return parts[1] if parts[0] == "neurosql" and len(parts) > 1 else None


@functools.cache
def parsed(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def imports(path):
    """The rooms that a file imports from, wherever in it, each with its line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "neurosql" else [module]
        else:
            continue
        for name in names:
            # `from neurosql import NAME` may name something that the package loads lazily.
            known = room(name)
            if known is not None:
                yield known, node.lineno


def test_every_room_has_its_place():
    found = {path.name.removesuffix(".py") for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__"} - {"py"} == set(ROOMS)


def test_no_module_imports_upwards():
    place = {name: number for number, name in enumerate(ROOMS)}
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for other, line in imports(path):
            if place.get(other, len(ROOMS)) > place[own]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_the_settings_and_records_import_no_torch():
    allowed = {"errors", "registry", "modality", "settings"}
    for path in (ROOT / "settings").glob("*.py"):
        assert {other for other, _ in imports(path)} <= allowed
        assert "import torch" not in path.read_text("utf-8")


def at_import(body):
    """The modules that are imported as soon as this code is, not only when a function is called."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Try):
            yield from at_import(node.body)


def test_slow_libraries_are_imported_where_they_are_used():
    slow, scores = {"sklearn", "matplotlib", "pandas"}, {"metrics", "bench", "estimator"}
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[0] not in scores:
            names = set(at_import(parsed(path).body))
            assert not slow & {name.split(".")[0] for name in names} and "scipy.stats" not in names, path
