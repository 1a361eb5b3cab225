"""Run folders of earlier versions load, resume, are evaluated and get their page."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from neurosql import open_run
from neurosql.cli import main

OLD = Path(__file__).parent / "fixtures" / "runs-0.1.0"
STOPPED = ("neurosql-stopped", "vae-stopped")
FINISHED = sorted(path.name for path in OLD.iterdir() if path.name not in STOPPED)


@pytest.fixture
def copied(tmp_path):
    def copy(name):
        return shutil.copytree(OLD / name, tmp_path / name)

    return copy


def test_every_method_has_an_old_run():
    assert {"neurosql", "vae", "gan", "ddpm", "rs-imle", "glo", "rae", "ot-cfm"} == set(FINISHED)


@pytest.mark.parametrize("name", FINISHED)
def test_an_old_run_samples_encodes_is_evaluated_and_reported(name, copied, capsys):
    path = copied(name)
    run = open_run(path)
    images, labels = run.sample(5, seed=0)
    assert images.shape == (5, 1, 12, 12) and np.isfinite(images).all()
    assert (labels is not None) == (name == "neurosql")
    if run.has_codes:
        assert run.reconstruct().shape == (60, 1, 12, 12)
        assert run.encode(images)[0].shape == (5, 2)
    assert main(["info", str(path)]) == 0
    assert "finished after 4 epochs" in capsys.readouterr().out
    assert main(["evaluate", str(path), "--samples", "30", "--image-pairs", "5"]) == 0
    scores = json.loads((path / "scores.json").read_text())
    assert len(scores) > 10
    assert main(["report", str(path)]) == 0
    assert name in (path / "report.html").read_text()


def test_old_scores_are_read(copied):
    path = copied("neurosql")
    before = (path / "scores.json").read_bytes()
    assert main(["report", str(path)]) == 0
    assert (path / "scores.json").read_bytes() == before
    page = (path / "report.html").read_text()
    assert "suspiciously close" in page and "paired-heldout" in page


@pytest.mark.parametrize("name", STOPPED)
def test_an_old_run_that_was_stopped_goes_on(name, copied, capsys):
    path = copied(name)
    begun = len((path / "history.jsonl").read_text().splitlines())
    assert main(["resume", str(path)]) == 0
    records = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3, 4] and begun < 4
    assert (path / "report.html").is_file()
    capsys.readouterr()
    assert main(["info", str(path)]) == 0
    assert "finished after 4 epochs" in capsys.readouterr().out
    before = (path / "model.safetensors").read_bytes()
    assert main(["resume", str(path)]) == 0
    assert "finished" in capsys.readouterr().out and (path / "model.safetensors").read_bytes() == before
