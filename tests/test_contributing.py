"""CONTRIBUTING.md: its walk-throughs work as they stand, from another package and inside this one."""

import ast
import csv
import json
import math
import re
import shutil
import tomllib
from pathlib import Path

import packages
import pytest
from safetensors import safe_open

import neurosql

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
SOURCE = Path(neurosql.__file__).parent
FILES = dict(re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
# A finder of an editable installation would come before the path, and find the package that is not changed.
FROM_PATH = "import sys; from importlib.machinery import PathFinder; sys.meta_path.insert(0, PathFinder)\n"


def section(heading):
    """The text under a heading."""
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]


def commands(heading):
    """The commands of a walk-through."""
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", section(heading), re.DOTALL) for line in block.split("\n")
    ]
    return [line for line in lines if line]


@pytest.fixture
def lab(tmp_path):
    """The package of the page."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    return packages.install(tmp_path, project["name"], FILES, project["entry-points"], project["version"])


def test_a_method_trains_and_samples(lab):
    told = packages.commanded(
        lab, *commands("Add a method"), "neurosql train --method jittered --preset paper --help", cwd=lab
    )
    assert "method     jittered, quantile assignment with jittered codes" in told
    config = json.loads((lab / "runs/jittered/config.json").read_text())
    assert config["method"] == "jittered" and config["settings"]["own"]["jitter"] == 0.2
    assert (lab / "runs/jittered/samples.png").exists() and (lab / "runs/jittered/report.html").exists()
    assert "--jitter" in told and "noise that is added to a code" in " ".join(told.replace("│", " ").split())


def test_a_backbone_trains_with_its_options_and_a_score_is_in_the_evaluation(lab):
    packages.commanded(lab, *commands("Add a backbone"), cwd=lab)
    run = lab / "runs/fourier"
    assert json.loads((run / "config.json").read_text())["settings"]["backbone"] == {"depth": 3, "frequency": 4.0}
    with safe_open(run / "model.safetensors", "numpy") as weights:
        assert len({name for name in weights.keys() if re.search(r"hidden\.\d+\.weight", name)}) == 3  # noqa: SIM118
    assert (run / "samples.png").exists()
    told = packages.commanded(lab, *commands("Add a score"), cwd=lab)
    lines = [line for line in told.splitlines() if line.strip().startswith("energy distance")]
    assert len(lines) == 2 and "random net" in lines[0] and "pixels" in lines[1]
    written = json.loads((run / "scores.json").read_text())
    found = [written[f"energy distance {features} sampled"] for features in ("random net", "pixels")]
    # An untrained model is farther from real images than real images are from each other.
    assert all(math.isfinite(score["value"]) and score["value"] > score["floor"] > 0 for score in found)


def test_a_reader_reads_with_its_setting(lab):
    (lab / "grids").mkdir()
    for i in range(60):
        rows = [" ".join(str((i * row * column) % 5) for column in range(8)) for row in range(8)]
        (lab / "grids" / f"{'ab'[i % 2]}{i}.grid").write_text("\n".join(rows))
    told = packages.commanded(lab, *commands("Add a reader"), cwd=lab)
    assert "60 grey images of 8 x 8" in told and "2 classes" in told
    config = json.loads((lab / "runs/grids/config.json").read_text())
    assert config["data"]["reader"] == "grid" and config["data"]["preparation"]["largest"] == 4.0


def test_a_table_is_listed_run_and_has_its_page(lab):
    told = packages.commanded(lab, *commands("Add a table"), cwd=lab)
    assert re.search(r"^priors\b", told, re.MULTILINE)
    with (lab / "results/smoke/priors.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["arm"], row["status"]) for row in rows] == [("normal", "done"), ("ball", "done")]
    assert "energy distance" in (lab / "results/smoke/scores/priors.csv").read_text()
    page = (lab / "results/smoke/priors.html").read_text("utf-8")
    assert "Is the normal prior better than the uniform law on the ball?" in page
    made = (lab / "results/smoke/tables/priors.md").read_text("utf-8")
    assert all(re.search(rf"\| {arm} \|.*\d", made) for arm in ("normal", "ball")), made


def test_the_tests_of_the_page_pass(lab):
    count = sum(text.count("\ndef test_") for name, text in FILES.items() if name.startswith("tests/"))
    told = packages.ran(
        lab, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(lab), "tests", cwd=lab
    )
    assert count >= 7 and f"{count} passed" in told


def test_each_moves_into_this_package_by_its_files_and_one_line(tmp_path):
    package = tmp_path / "src" / "neurosql"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    moved = [name for name in FILES if name.startswith("lab/")]
    for name in moved:
        target = package / name.removeprefix("lab/")
        assert not target.exists()
        target.write_text(re.sub(r"\blab\.", "neurosql.", FILES[name]), "utf-8")
    lines = re.findall(r"^\| \w+ \| `([\w./]+)` \| `(.+)` \|$", section("Move it into neurosql"), re.MULTILINE)
    assert len(lines) == 5
    for name, line in lines:
        text = (package / name).read_text("utf-8")
        assert text.count("\nBUILT_IN = {\n") == 1
        (package / name).write_text(text.replace("\nBUILT_IN = {\n", f"\nBUILT_IN = {{\n    {line}\n"), "utf-8")
    listed = f"""
import neurosql
assert neurosql.__file__.startswith({str(tmp_path)!r})
from neurosql.bench.experiments import find
from neurosql.metrics.records import record_of
from neurosql.settings import BACKBONES, METHODS
METHODS["jittered"], BACKBONES["fourier"], list(find("priors").jobs("laptop"))
from neurosql.data import readers
assert readers.named("grid").own.__module__ == "neurosql.data.grids"
score = record_of("energy distance")
assert "torch" not in sys.modules and "scipy" not in sys.modules
import numpy
from neurosql.data import from_array
from neurosql.registry import imported
assert imported(score.function).__module__ == "neurosql.metrics.energy"
images = from_array(numpy.random.default_rng(0).random((24, 8, 8)))
run = neurosql.fit(images, method="jittered", generator="fourier", depth=1, epochs=2)
assert type(run.method).__module__ == "neurosql.methods.jittered" and len(run.method.generator.hidden) == 1
"""
    told = packages.ran(
        package.parent, "-c", FROM_PATH + listed + packages.COMMANDS, "neurosql bench list", cwd=tmp_path
    )
    assert re.search(r"^priors\b", told, re.MULTILINE)


def imports(path):
    """The top-level modules of the package that a file imports when it is imported itself."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "neurosql":
            _, *below = node.module.split(".")
            found |= {below[0]} if below else {alias.name for alias in node.names}
    return found


def test_the_layout_is_that_of_the_imports():
    layers = re.findall(r"^\d\. (.*?)(?=^\d\. |^$)", section("Layout"), re.DOTALL | re.MULTILINE)
    assert len(layers) == 9
    depth = {}
    for number, text in enumerate(layers):
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", text):
            assert (SOURCE / name).exists() or name == "native/", name
            depth.setdefault(name.split("/")[0].removesuffix(".py"), number)
    for name, number in depth.items():
        files = (SOURCE / name).rglob("*.py") if (SOURCE / name).is_dir() else [SOURCE / f"{name}.py"]
        for path in files if name != "native" else ():
            below = {other for other in imports(path) if depth.get(other, -1) > number}
            assert not below, f"{path.relative_to(SOURCE)} imports {', '.join(sorted(below))}"
