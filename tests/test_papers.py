"""What stands around the code agrees with it: citation, changelog, container, workflow, hooks, navigation."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import neurosql

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def read(name):
    return (ROOT / name).read_text("utf-8")


@pytest.fixture(scope="module")
def workflow():
    return yaml.safe_load(read(".github/workflows/tests.yml"))


def test_the_version_is_stated_once():
    assert PROJECT["project"]["dynamic"] == ["version"]
    stating = re.compile(rf"^\W*(?:__version__|version)\W+{re.escape(neurosql.__version__)}", re.MULTILINE)
    assert not [
        name for name in ("pyproject.toml", "CITATION.cff", "mkdocs.yml", "Containerfile") if stating.search(read(name))
    ]
    assert stating.search(read("src/neurosql/__init__.py"))


def test_the_changelog_has_this_version():
    assert re.search(rf"^## .*\b{re.escape(neurosql.__version__)}\b", read("CHANGELOG.md"), re.MULTILINE)


def test_the_citation_is_that_of_the_project():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["license"] == PROJECT["project"]["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    names = {person["family-names"] for work in citation["references"] for person in work["authors"]}
    assert all(name in read("README.md") for name in names)


def test_the_container_copies_what_there_is_and_runs_the_demo():
    text = read("Containerfile")
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert copied and all((ROOT / name).exists() for name in copied)
    allowed = {line[1:] for line in read(".dockerignore").splitlines() if line.startswith("!")}
    assert set(copied) <= allowed
    demo = re.search(r"^demo:.*\n(?:\t.*\n)*", MAKEFILE, re.MULTILINE)[0]
    command = " ".join(yaml.safe_load(re.search(r"^CMD (\[.+\])$", text, re.MULTILINE)[1]))
    assert command in demo


def test_the_workflow_tests_the_versions_that_are_declared(workflow):
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    declared = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert tested == declared
    assert PROJECT["project"]["requires-python"] == f">={tested[0]}"
    built = [name.removesuffix("-*").replace("cp3", "3.") for name in PROJECT["tool"]["cibuildwheel"]["build"]]
    assert built == tested


def test_the_workflow_calls_what_there_is(workflow):
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    for target in re.findall(r"^make (\w+)", "\n".join(steps), re.MULTILINE):
        assert f"\n{target}:" in MAKEFILE
    for script in re.findall(r"python (\S+\.py)", "\n".join(steps)):
        assert (ROOT / script).exists()


def test_hooks_use_the_ruff_that_is_pinned():
    hooks = [
        hook for repository in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"] for hook in repository["hooks"]
    ]
    assert [hook["entry"].split()[0] for hook in hooks] == [".venv/bin/ruff"] * 2
    assert "ruff==" in read("constraints.txt")


def test_pages_of_the_navigation_exist():
    named = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", read("mkdocs.yml"), re.MULTILINE)
    made = {"reference/arguments.md", "results/laptop/tables/index.md"}
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "docs" / name).exists() and not (ROOT / name).exists()] == sorted(
        made
    )


def test_what_the_site_is_built_with_is_pinned():
    pinned = {line.partition("==")[0].lower() for line in read("constraints.txt").splitlines()}
    wanted = {re.match(r"[\w-]+", line)[0].lower() for line in PROJECT["project"]["optional-dependencies"]["docs"]}
    assert wanted <= pinned


def test_examples_are_notebooks_and_are_listed():
    examples = sorted((ROOT / "examples").glob("*.py"))
    listed = re.findall(r"\]\((\w+\.py)\)", read("examples/README.md"))
    assert sorted(listed) == [path.name for path in examples] != []
    for path in examples:
        text = path.read_text("utf-8")
        assert text.startswith("# %% [markdown]\n# # ") and text.count("\n# %%\n") >= 2
        compile(text, path.name, "exec")
