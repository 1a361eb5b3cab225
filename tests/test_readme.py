"""The README and the docs: their code runs, their pictures exist, and they name the right package."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from neurosql.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
READ = [*PAGES, ROOT / "CONTRIBUTING.md"]
WITHOUT_PYTHON = {"findings.md", "other-tools.md", "own-images.md"}
OF_A_RUN = {"tutorial.md"}
"""What has a test of its own, because its Python opens a run that its commands make."""
SHORTER = {
    "README.md": {
        "epochs=20": "epochs=2",
        "--epochs 20": "--epochs 2",
        "--samples 256": "--samples 32",
        "--limit 100": "--limit 16",
    },
    "experiments.md": {"seeds=2, progress=False": "seeds=1, progress=False"},
    "tutorial.md": {
        "--limit 1000 --epochs 20": "--limit 40 --epochs 1 --generator mlp --width 16",
        "limit=1000": "limit=40",
        "epochs=20": "epochs=1, generator='mlp', width=16",
        "-n 100": "-n 9",
        "--limit 100": "--limit 8",
    },
}
"""What the tests run with a smaller number or network than the page has; all else runs as it stands there."""


def blocks(page, language):
    """The code of a page in a language, with the numbers of `SHORTER`."""
    text = page.read_text("utf-8")
    for long, short in SHORTER.get(page.name, {}).items():
        assert long in text, f"{page.name} no longer says {long!r}"
        text = text.replace(long, short)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OF_A_RUN], ids=lambda p: p.name)
def test_python_of_the_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": page.stem}
    assert bool(blocks(page, "python")) == (page.name not in WITHOUT_PYTHON)
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)
    if page.name == "README.md":
        assert names["new"].shape == (64, 28, 28) and names["threes"].shape == (16, 28, 28)
        assert names["model"].codes_.shape == names["again"].codes_.shape == (500, 2)


def test_commands_of_the_readme_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    assert len(commands) >= 4
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "neurosql"
        assert main(arguments) == 0, command
    assert (tmp_path / "runs" / "first" / "report.html").exists()


def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    """Its commands in their order, but for those that the README's test runs, and then its Python."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "tutorial.md"
    commands = [shlex.split(line)[1:] for block in blocks(page, "sh") for line in block.splitlines()]
    assert [words[0] for words in commands if words[0] == "train"] == ["train", "train"]
    for words in commands:
        if words[0] not in {"data", "evaluate"} and "samples" not in words:
            assert main(words) == 0, words
    names: dict = {"__name__": page.stem}
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)
    assert names["again"].shape == (4, 1, 28, 28) and names["new"].shape == (64, 28, 28)
    assert len(list(Path("new-digits").glob("*.png"))) == 9 and Path("shared-model/MODEL-CARD.md").exists()


@pytest.mark.parametrize("page", READ, ids=lambda p: p.name)
def test_nobody_is_told_to_install_somebody_elses_package(page):
    assert not re.search(r"pip3? install [^\n`]*\bneurosql\b(?!-torch)", page.read_text("utf-8"))


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_of_the_pages_are_those_of_the_results(figures):
    texts = {page.name: page.read_text("utf-8") for page in figures.PAGES}
    behind = [name for name, text in texts.items() if figures.filled(text) != text]
    assert behind == [], "behind results/: python docs/figures.py"
    assert sum(len(figures.QUOTED.findall(text)) for text in texts.values()) >= 10
    stale = (ROOT / "docs" / "findings.md").read_text("utf-8").replace("0.", "1.")
    assert figures.filled(stale) != stale


def test_a_part_of_a_table_has_the_figures_of_the_whole(figures):
    whole, part = figures.table("scalability"), figures.table("scalability batch=64")
    assert part.lines == [line for line in whole.lines if line[0][1] == 64] != whole.lines
    assert all(whole.cells[key] == cell for key, cell in part.cells.items())
    heads = figures.pivot("scalability batch=64", "epoch seconds").split("\n")[1]
    assert heads == "| method | N = 500 | N = 2,000 | N = 8,000 | N = 20,000 | N = 60,000 |"
    mine, yours = (figures.below("scalability", *arms, "epoch seconds") for arms in (("VAE", "GAN"), ("GAN", "VAE")))
    assert int(mine.split()[0]) + int(yours.split()[0]) == int(mine.split()[-1]) == 20


def test_a_difference_in_a_sentence_is_that_of_the_table(figures):
    key = "frechet classifier sampled"
    said = figures.more("mnist", "8", "VAE", "NeuroSQL", key)
    back = figures.more("mnist", "8", "NeuroSQL", "VAE", key)
    assert f"| {said} |" in figures.against("mnist", "NeuroSQL", key) and said.split(" ", 1)[1] == back.split(" ", 1)[1]
    made = figures.table("mnist")
    vae, ours = (made.cells[("mnist", 8), arm, made.column(key)] for arm in ("VAE", "NeuroSQL"))
    assert (vae.mean > ours.mean) == ("+" in said) == ("-" in back.split(" ")[0])


def test_a_difference_between_dimensions_is_that_of_the_seeds(figures):
    key = "frechet classifier sampled"
    said = figures.paired("mnist", "8", "VAE", "8", "NeuroSQL", key)
    assert said.split(" ")[0] == figures.more("mnist", "8", "VAE", "NeuroSQL", key).split(" ")[0].strip("*")
    made = figures.table("mnist")
    low, high = (made.cells[("mnist", d), "NeuroSQL", made.column(key)].mean for d in (2, 8))
    across = figures.paired("mnist", "2", "NeuroSQL", "8", "NeuroSQL", key)
    assert float(across.split(" ")[0]) == pytest.approx(low - high, rel=1e-3) and "5 seeds" in across


def test_each_method_is_shown_in_its_best_dimension(figures):
    key = "frechet classifier sampled"
    made = figures.table("mnist")
    shown = {
        cells[0]: cells[1]
        for cells in (line[2:-2].split(" | ") for line in figures.at_best("mnist", key).split("\n")[3:-1])
    }
    for arm in ("NeuroSQL", "VAE", "GAN"):
        means = {d: made.cells[("mnist", d), arm, made.column(key)].mean for d in (2, 3, 8, 16)}
        assert shown[arm] == str(min(means, key=means.get))


def test_what_holds_up_is_counted_once_for_the_winner_and_once_for_the_loser(figures):
    counts = [figures.held("mnist", arm).split() for arm in figures.table("mnist").arms]
    held, every = map(int, figures.held("mnist").split(" of "))
    assert sum(int(words[0]) for words in counts) == sum(int(words[3]) for words in counts) == held
    assert sum(int(words[-1]) for words in counts) == 2 * every


def test_the_two_commands_of_the_readme_are_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"^    make (\w+)", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE):
        assert f"\n{target}:" in makefile
