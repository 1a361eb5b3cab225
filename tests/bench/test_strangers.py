"""Results from strangers: nothing is read or written outside of their folder, and what is odd is a sentence."""

import io
import json
import os

import numpy as np
import pytest

from neurosql import cli
from neurosql.bench import jobs as jobs_folder
from neurosql.bench import queue, rows
from neurosql.bench.declare import Arm, Experiment, Grid
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.errors import InputError
from neurosql.metrics.column import sampled
from neurosql.report import bench as pages

SSIM = sampled("ssim")


@pytest.fixture
def results(tmp_path):
    """A folder of results as the bench leaves it: the table `planes` with its scores, and samples of every run."""
    folder = tmp_path / "stranger" / "smoke"
    made = []
    for job in EXPERIMENTS["planes"].jobs("smoke", 2):
        resources = dict.fromkeys(rows.RESOURCES, 1) | {"threads": 1, "version": "1", "python": "3", "torch": "2"}
        row = rows.identity(job) | {"status": "done", rows.SCORES: {SSIM: rows.Found(0.5, 0.4)}} | resources
        made.append(row)
        own = folder / jobs_folder.JOBS / job.folder
        own.mkdir(parents=True)
        np.savez(own / jobs_folder.SAMPLES, samples=np.zeros((4, 1, 8, 8), np.uint8))
        np.savez(own / jobs_folder.PLANE, codes=np.eye(2), classes=np.array(["a", "b"]), labels=np.array([0, 1]))
    rows.write(folder / "planes.csv", made)
    return folder


def everything(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def changed(folder, **cells):
    """The same table with other values in its first run, written without any check."""
    lines = rows.read_lines(folder / "planes.csv")
    lines[0] |= cells
    rows.write_lines(folder / "planes.csv", rows.FIELDS, lines)


def test_the_page_of_such_a_folder_is_written(results, capsys):
    assert cli.main(["report", str(results)]) == 0
    assert (results / "planes.html").is_file() and (results / "tables" / "planes.tex").is_file()


@pytest.mark.parametrize(
    "cells",
    [
        {"data": "../../../outside"},
        {"data": "/tmp/outside"},
        {"config": "../../outside"},
        {"config": ".."},
        {"seed": "../../1"},
        {"seed": str(10**12)},
        {"seed": "-1"},
        {"pixels": "../8"},
        {"latent_dim": "2/../../../x"},
        {"images": "many"},
        {"seconds": "long"},
        {"status": "perhaps"},
        {"arm": "\x1b[2J"},
        {"arm": "x" * 5000},
        {"seed": "9" * 5000},
        {"latent_dim": "nan"},
    ],
    ids=lambda cells: " ".join(f"{name} {value[:16]!r}" for name, value in cells.items()),
)
@pytest.mark.parametrize("command", ["report", "migrate", "merge"])
def test_a_table_with_odd_values_is_refused_and_nothing_is_written(results, tmp_path, capsys, cells, command):
    changed(results, **cells)
    before = everything(tmp_path)
    out = str(tmp_path / "out")
    arguments = {
        "report": ["report", str(results)],
        "migrate": ["bench", "migrate", str(results)],
        "merge": ["bench", "merge", str(results), "--out", out],
    }[command]
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err
    assert "not a table of results" in said and "\x1b" not in said and len(said) < 1000
    assert everything(tmp_path) == before


@pytest.mark.parametrize("link", ["tables", "pictures", "scores", "planes.csv", "scores/planes.csv"])
def test_links_out_of_the_folder_are_not_followed(results, tmp_path, capsys, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    path = results / link
    if path.exists():
        path.rename(outside / "moved")
    path.symlink_to(outside / "moved" if (outside / "moved").exists() else outside)
    before = everything(tmp_path)
    assert cli.main(["report", str(results)]) == 2
    assert "is a link that leads out of" in capsys.readouterr().err
    assert everything(outside) == {path for path in before if path.is_relative_to(outside)}


def test_a_picture_that_is_a_link_is_not_shown(results, tmp_path, capsys):
    (tmp_path / "secret").write_bytes(b"\x89PNG\r\n\x1a\nsecret")
    assert cli.main(["report", str(results)]) == 0
    for own in (results / jobs_folder.JOBS).iterdir():
        for file in own.iterdir():
            file.unlink()
    sheet = next((results / jobs_folder.PICTURES).glob("planes-plane-*.png"))
    sheet.unlink()
    sheet.symlink_to(tmp_path / "secret")
    assert cli.main(["report", str(results)]) == 2
    sheet.unlink()
    sheet.write_bytes(b"GIF89a")
    assert cli.main(["report", str(results)]) == 2
    assert "is no PNG" in capsys.readouterr().err


BAD = {
    "rubbish": b"PK\x03\x04 rubbish",
    "nothing": b"",
    "objects": {"samples": np.array([{}], object), "codes": np.array([{}], object), "classes": np.array(["a"])},
    "other arrays": {"other": np.zeros(3)},
    "flat": {"samples": np.zeros(4, np.uint8), "codes": np.zeros(4), "classes": np.array(["a"])},
    "words": {"samples": np.full((1, 1, 8, 8), "a"), "codes": np.full((4, 2), "a"), "classes": np.array(["a"])},
    "no class": {
        "samples": np.zeros((0, 1, 8, 8), np.uint8),
        "codes": np.zeros((4, 2)),
        "classes": np.zeros(0, str),
        "labels": np.arange(4),
    },
    "not finite": {"samples": np.zeros((1, 0, 8, 8), np.uint8), "codes": np.full((4, 2), np.nan), "classes": ["a"]},
}


@pytest.mark.parametrize("what", BAD)
def test_what_runs_left_for_the_sheets_is_checked(results, capsys, what):
    content = BAD[what]
    if not isinstance(content, bytes):
        buffer = io.BytesIO()
        np.savez(buffer, **content)
        content = buffer.getvalue()
    for own in (results / jobs_folder.JOBS).iterdir():
        for name in jobs_folder.LEFT:
            (own / name).write_bytes(content)
    assert cli.main(["report", str(results)]) == 2
    assert ".npz" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["planes.csv", "scores/planes.csv"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0", b"a,b\n1\n", b'"' * 9, b"\n\n", "pipe", "folder", "huge"])
def test_what_is_no_table_is_a_sentence(results, monkeypatch, capsys, place, content):
    path = results / place
    path.unlink()
    if content == "pipe":
        os.mkfifo(path)
    elif content == "folder":
        path.mkdir()
    elif content == "huge":
        with path.open("wb") as file:
            file.truncate(rows.MAX_BYTES + 1)
    else:
        path.write_bytes(content)
    code = cli.main(["report", str(results)])
    # Scores that are missing are a table without figures, not an error.
    assert code == 2 or (place != "planes.csv" and content in (b"", b"\n\n", b'"' * 9))
    assert cli.main(["bench", "migrate", str(results)]) in (0, 2)
    capsys.readouterr()


def test_runs_without_number_are_refused(results, monkeypatch):
    monkeypatch.setattr(rows, "MAX_RUNS", 1)
    with pytest.raises(InputError, match="more than 1 are refused"):
        rows.read(results / "planes.csv")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x\n", "a" * 200])
def test_an_experiment_can_not_be_called_like_a_path(name):
    with pytest.raises(InputError, match="experiment's name"):
        Experiment(name, "t", "q", (), ())


@pytest.mark.parametrize("arm", ["<script>alert(1)</script>", "a|b & c_d%\\input{/etc/passwd}", "\u202egnp.exe"])
def test_contenders_of_any_name_get_their_page(results, capsys, arm):
    lines = rows.read_lines(results / "planes.csv")
    for line in lines:
        line["arm"] += arm
    rows.write_lines(results / "planes.csv", rows.FIELDS, lines)
    code = cli.main(["report", str(results)])
    if arm.isprintable():
        assert code == 0 and "<script>alert" not in (results / "planes.html").read_text()
        assert "\\input{/etc" not in (results / "tables" / "planes.tex").read_text()
    else:
        assert code == 2


@pytest.mark.parametrize("record", [[], {}, {"scores": 3}, {"scores": [[1]]}, {"scores": [], "seconds": "x"}, "deep"])
def test_a_result_that_a_stranger_left_is_checked(tmp_path, record):
    small = Experiment("mnist", "t", "q", (Grid((Arm("VAE", "vae"),), dims=(2,)),), (), scored=False)
    plan = queue.plan([small], "smoke", tmp_path / "results", 1)
    (job,) = plan.left
    plan.folder(job).mkdir(parents=True)
    text = "[" * 10**5 if record == "deep" else json.dumps(record)
    (plan.folder(job) / jobs_folder.RESULT).write_text(text)
    row = queue._collect(plan, job, 0)
    assert row["status"] == rows.FAILED and row["config"] == job.config


def test_a_job_s_folder_that_is_a_link_is_not_entered(tmp_path):
    small = Experiment("mnist", "t", "q", (Grid((Arm("VAE", "vae"),), dims=(2,)),), (), scored=False)
    plan = queue.plan([small], "smoke", tmp_path / "results", 1)
    (tmp_path / "outside").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / jobs_folder.JOBS).symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match="is a link that leads out of"):
        queue.run(plan, 1, progress=False)
    assert not list((tmp_path / "outside").iterdir())


def test_the_index_takes_only_tables_of_its_own(results, tmp_path):
    toy = Experiment("toy", "Toy", "?", (Grid((Arm("a"),)),), (SSIM,))
    with pytest.raises(InputError, match="neither a run nor a folder of results"):
        pages.write_all(results, [toy])
