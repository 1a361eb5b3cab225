"""The command line: each command, what it writes, what it says about bad input, and Ctrl-C."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

import neurosql
from neurosql import NeuroSQL, data, open_run
from neurosql.app.sampling import folder_names
from neurosql.app.training import claimed
from neurosql.checkpoint import FORMAT
from neurosql.cli import main

QUICK = ["--generator", "mlp", "--width", "32", "--epochs", "4", "--every", "2"]
PICTURES = ["curves.png", "images.png", "latent.png", "map.png", "reconstructions.png", "samples.png"]


@pytest.fixture(scope="module")
def small_set(digits, tmp_path_factory):
    """A `.npz` of 80 small digits with labels."""
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(path, images=digits[0][:80], labels=digits[1][:80])
    return str(path)


@pytest.fixture(scope="module")
def trained(small_set, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "digits"
    assert main(["train", small_set, "--out", str(path), *QUICK]) == 0
    return path


@pytest.fixture(scope="module")
def conditional(small_set, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "classes"
    assert main(["train", small_set, "--out", str(path), *QUICK, "--conditional"]) == 0
    return path


def opened(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("L"))


def test_train_leaves_a_whole_run_folder(trained):
    found = sorted(p.relative_to(trained).as_posix() for p in trained.rglob("*") if p.is_file())
    expected = ["checkpoints/last.safetensors", "codes.safetensors", "config.json", "history.jsonl", "split.json"]
    assert found == sorted([*expected, "model.safetensors", "report.html", "scores.json", "used.json", *PICTURES])
    for name in PICTURES:
        assert opened(trained / name).std() > 5
    config = json.loads((trained / "config.json").read_text())
    assert config["settings"]["training"]["epochs"] == 4 and len(config["data"]["fingerprint"]) == 64
    assert {"torch", "numpy", "python"} <= config["versions"].keys()
    assert len((trained / "history.jsonl").read_text().splitlines()) == 4
    (score,) = json.loads((trained / "scores.json").read_text()).values()
    assert score["mode"] == "paired-train" and 0 < score["value"] < 1


def test_the_page_stands_alone(trained):
    page = (trained / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(PICTURES)
    assert not re.search(r"(src|href)=\"(?!data:)", page)


def test_train_says_what_it_did_and_what_is_next(small_set, tmp_path, capsys):
    assert main(["train", small_set, "--out", str(tmp_path / "run"), *QUICK]) == 0
    out = capsys.readouterr().out
    assert "80 grey images of 8 x 8" in out
    assert f"wrote      {tmp_path / 'run'}" in out and f"neurosql sample {tmp_path / 'run'}" in out


def test_a_default_run_folder_is_the_next_free_one(small_set, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        assert main(["train", small_set, *QUICK]) == 0
        assert (tmp_path / "runs" / f"digits-{number}" / "config.json").exists()


def test_runs_that_begin_at_once_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: claimed("mnist-sample"), range(40)))
    assert len(set(taken)) == 40 and all(path.is_dir() for path in taken)


def test_a_run_that_never_began_leaves_no_folder(small_set, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", small_set, *QUICK, "--device", "nowhere"]) == 2
    assert not list((tmp_path / "runs").iterdir())


def test_resume_of_a_finished_run_changes_nothing(small_set, tmp_path, capsys):
    path = tmp_path / "run"
    assert main(["train", small_set, "--out", str(path), *QUICK]) == 0
    assert main(["evaluate", str(path), "--samples", "30", "--image-pairs", "5"]) == 0
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert main(["resume", str(path)]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


def test_resume_draws_what_a_finished_run_lacks(small_set, tmp_path, capsys):
    path = tmp_path / "run"
    assert main(["train", small_set, "--out", str(path), *QUICK]) == 0
    model, page = (path / "model.safetensors").read_bytes(), (path / "report.html").read_bytes()
    (path / "report.html").unlink()
    (path / "samples.png").unlink()
    assert main(["resume", str(path)]) == 0
    assert (path / "model.safetensors").read_bytes() == model and (path / "samples.png").is_file()
    assert (path / "report.html").read_bytes() == page


def test_sample_writes_a_sheet_an_array_or_single_files(trained, tmp_path, capsys):
    assert main(["sample", str(trained), "-n", "9"]) == 0
    assert opened(trained / "samples-seed0.png").std() > 5
    assert "9 samples to" in capsys.readouterr().out
    assert main(["sample", str(trained), "-n", "5", "--out", str(tmp_path / "x.npy"), "--seed", "1"]) == 0
    assert np.load(tmp_path / "x.npy").shape == (5, 8, 8)
    assert np.array_equal(np.load(tmp_path / "x.npy"), NeuroSQL.load(trained).sample(5, random_state=1))
    assert main(["sample", str(trained), "-n", "3", "--out", str(tmp_path / "files")]) == 0
    assert [opened(p).shape for p in sorted((tmp_path / "files").iterdir())] == [(8, 8)] * 3


def test_sample_of_a_class(conditional, trained, tmp_path, capsys):
    target = tmp_path / "threes.npz"
    assert main(["sample", str(conditional), "-n", "4", "--label", "3", "--out", str(target)]) == 0
    with np.load(target) as arrays:
        assert arrays["images"].shape == (4, 8, 8) and arrays["labels"].tolist() == ["3"] * 4
    assert main(["sample", str(conditional), "--label", "eleven"]) == 2
    assert main(["sample", str(trained), "--label", "3"]) == 2
    assert "not class-conditional" in capsys.readouterr().err


def test_single_samples_by_class_are_read_back_with_their_labels(conditional, tmp_path, capsys):
    target = tmp_path / "new"
    assert main(["sample", str(conditional), "-n", "40", "--out", str(target)]) == 0
    assert "one folder per class: 0, 1" in capsys.readouterr().out
    drawn, labels = open_run(conditional).sample(40, seed=0)
    images = data.load(target)
    order = np.argsort(labels, kind="stable")
    assert [images.classes[label] for label in images.labels] == [str(label) for label in labels[order]]
    assert images.x == pytest.approx(drawn[order], abs=0.5 / 255 + 1e-6)
    assert all(path.suffix == ".png" for path in target.rglob("*") if path.is_file())
    assert main(["sample", str(conditional), "-n", "2", "--label", "3", "--out", str(tmp_path / "threes")]) == 0
    assert sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "threes").rglob("*.png")) == [
        "threes/3/00000.png",
        "threes/3/00001.png",
    ]


def test_folders_of_classes_stay_inside_the_folder_and_apart():
    names = folder_names(["../up", "a/b", "a\\b", "A_b", "", "..", "cat", "C:"])
    assert len({name.lower() for name in names}) == len(names)
    assert names[6] == "cat" and not [
        n for n in names if "/" in n or "\\" in n or ":" in n or n.startswith(".") or not n
    ]


def test_samples_of_a_grey_model_are_grey_files(trained, tmp_path):
    assert main(["sample", str(trained), "-n", "2", "--out", str(tmp_path / "files")]) == 0
    assert main(["sample", str(trained), "-n", "9", "--out", str(tmp_path / "sheet.png")]) == 0
    for path in (
        tmp_path / "files" / "00000.png",
        tmp_path / "sheet.png",
        trained / "samples.png",
        trained / "map.png",
    ):
        with Image.open(path) as picture:
            assert picture.mode == "L", path


def test_sample_never_writes_over_what_it_was_not_told_to(trained, tmp_path, capsys):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "00000.png").write_text("a letter")
    (tmp_path / "x.npy").write_text("a poem")
    (tmp_path / "x.png").write_text("a drawing")
    for target in (folder, tmp_path / "x.npy", tmp_path / "x.png"):
        before = snapshot(tmp_path)
        assert main(["sample", str(trained), "-n", "2", "--out", str(target)]) == 2
        assert "--overwrite" in capsys.readouterr().err and snapshot(tmp_path) == before
    (folder / "keep.txt").write_text("kept")
    assert main(["sample", str(trained), "-n", "2", "--out", str(folder), "--overwrite"]) == 0
    assert "also holds 1 files" in capsys.readouterr().out and (folder / "keep.txt").read_text() == "kept"
    assert opened(folder / "00000.png").shape == (8, 8)
    assert main(["sample", str(trained), "-n", "2", "--out", str(tmp_path / "x.npy"), "--overwrite"]) == 0
    assert len(np.load(tmp_path / "x.npy")) == 2
    assert main(["sample", str(trained), "-n", "2", "--out", str(tmp_path / "x.png" / "y")]) == 2
    for _ in range(2):
        # The sheet in the run's folder is its own.
        assert main(["sample", str(trained), "-n", "2", "--seed", "7"]) == 0


def test_encode_writes_codes(trained, conditional, small_set, tmp_path, capsys):
    assert main(["encode", str(trained), small_set]) == 0
    with np.load(trained / "codes-digits.npz") as arrays:
        assert arrays["codes"].shape == (80, 2) and arrays["losses"].shape == (80,)
        fitted = open_run(trained)
        seen = np.array(fitted.split["train"])
        rest = np.setdiff1d(np.arange(80), seen)
        expected = NeuroSQL.load(trained).transform(data.load(small_set))
        assert len(seen) == 64 and arrays["codes"][rest] == pytest.approx(expected[rest], abs=1e-6)
        assert np.array_equal(arrays["codes"][seen], fitted.method.codes.numpy())
    assert "64 of 80 samples were trained on" in capsys.readouterr().out
    assert main(["encode", str(conditional), small_set, "--limit", "7", "--out", str(tmp_path / "z.csv")]) == 0
    lines = (tmp_path / "z.csv").read_text().splitlines()
    assert lines[0] == "z1,z2,loss,label" and len(lines) == 8


def test_info_of_a_run_and_of_the_installation(trained, capsys):
    assert main(["info", str(trained)]) == 0
    out = capsys.readouterr().out
    assert "finished after 4 epochs" in out and "mlp" in out and "neurosql sample" in out
    assert main(["info"]) == 0
    assert "torch" in capsys.readouterr().out


def test_vectors_train_sample_and_encode(tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "table.npy", random.normal([10, -5, 0], [1, 3, 0.1], (60, 3)))
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "table.npy"), "--out", str(run), "--epochs", "5", "--width", "16"]) == 0
    assert (run / "samples.png").exists() and not (run / "map.png").exists()
    assert main(["sample", str(run), "-n", "50", "--out", str(tmp_path / "new.npy")]) == 0
    assert np.load(tmp_path / "new.npy").mean(0) == pytest.approx([10, -5, 0], abs=3)
    assert main(["encode", str(run), str(tmp_path / "table.npy")]) == 0
    with np.load(run / "codes-table.npz") as arrays:
        loaded = NeuroSQL.load(run)
        assert arrays["codes"] == pytest.approx(loaded.transform(np.load(tmp_path / "table.npy")), abs=1e-4)


@pytest.mark.parametrize("backbone", ["convnet", "resnet", "unet", "transformer", "mlp"])
@pytest.mark.parametrize("algorithm", ["full", "mini-batch"])
def test_every_backbone_trains_with_both_algorithms(backbone, algorithm, tmp_path):
    flags = ["--limit", "64", "--width", "16", "--epochs", "2", "--every", "1", "--generator", backbone]
    assert main(["train", "mnist-sample", *flags, "--algorithm", algorithm, "--out", str(tmp_path / "run")]) == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert records[-1]["loss"] < records[0]["loss"]


def images_folder(folder, sizes=((8, 8), (8, 8))):
    folder.mkdir()
    for i, size in enumerate(sizes):
        Image.fromarray(np.full(size, 10 * i, np.uint8)).save(folder / f"{i}.png")
    return str(folder)


def corrupt(folder):
    images_folder(folder)
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n rubbish")
    return str(folder)


def empty(folder):
    folder.mkdir()
    return str(folder)


def array(folder, values):
    np.save(folder.with_suffix(".npy"), values)
    return str(folder.with_suffix(".npy"))


BAD_DATA = {
    "missing": (lambda p: str(p), "no such data"),
    "empty": (empty, "no images"),
    "corrupt": (corrupt, "bad.png can't be read"),
    "mixed sizes": (lambda p: images_folder(p, ((8, 8), (8, 9))), "2 sizes"),
    "one image": (lambda p: images_folder(p, ((8, 8),)), "at least 2"),
    "NaN": (lambda p: array(p, np.full((5, 8, 8), np.nan)), "NaN"),
    "out of range": (lambda p: array(p, np.full((5, 8, 8), 300.0)), "must lie in"),
    "too small": (lambda p: array(p, np.zeros((5, 4, 4))), "4"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_get_one_sentence_and_leave_nothing(case, tmp_path, capsys):
    make, words = BAD_DATA[case]
    out = tmp_path / "run"
    assert main(["train", make(tmp_path / "set"), "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert words in err and err.startswith("neurosql: ") and err.count("\n") == 1
    assert not out.exists()


BAD_FLAGS = [
    (["--latent-dim", "0"], "--latent-dim must be at least 1, got 0"),
    (["--momentum", "0"], "momentum must be in (0, 1], got 0"),
    (["--epochs", "0"], "epochs must be at least 1"),
    (["--limit", "0"], "limit must be at least 1"),
    (["--limit", "1"], "at least 2"),
    (["--device", "abacus"], "device 'abacus' can't be used"),
    (["--prior", "cube", "--lattice", "grid"], "lattice"),
    (["--generator", "resnet", "--resnet18", "missing.safetensors"], "missing.safetensors"),
]


@pytest.mark.parametrize("flags, words", BAD_FLAGS, ids=[" ".join(flags) for flags, _ in BAD_FLAGS])
def test_bad_settings_get_one_sentence_and_leave_nothing(flags, words, small_set, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", small_set, "--out", str(out), *flags]) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1
    assert not out.exists()


def test_an_unknown_flag_or_command_is_refused(capsys):
    for arguments in (["train", "--no-such-flag", "1"], ["paint"], ["train", "--every", "often"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def snapshot(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_existing_run_is_never_damaged(trained, small_set, tmp_path, capsys):
    before = snapshot(trained)
    assert main(["train", small_set, "--out", str(trained), *QUICK]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert main(["train", small_set, "--out", str(trained / "config.json"), *QUICK]) == 2
    assert main(["sample", str(tmp_path)]) == 2
    assert main(["info", str(tmp_path / "nowhere")]) == 2
    assert main(["encode", str(trained), "mnist-sample"]) == 2
    assert "shape" in capsys.readouterr().err
    assert snapshot(trained) == before


def test_a_run_of_a_newer_format_is_refused(trained, tmp_path, capsys):
    newer = tmp_path / "newer"
    newer.mkdir()
    config = json.loads((trained / "config.json").read_text()) | {"format": 99}
    (newer / "config.json").write_text(json.dumps(config))
    for command in (["sample"], ["info"], ["resume"]):
        assert main([*command, str(newer)]) == 2
        err = capsys.readouterr().err
        assert "format 99" in err and err.count("\n") == 1


def test_a_full_disk_gets_one_sentence(small_set, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    fsync = os.fsync

    def full(handle):
        if (out / "config.json").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    assert main(["train", small_set, "--out", str(out), *QUICK]) == 2
    err = capsys.readouterr().err
    assert "disk is full" in err and err.strip().count("\n") == 0
    assert json.loads((out / "config.json").read_text())["format"] == FORMAT
    assert not [p for p in out.rglob("*") if p.name.startswith(".")]


def test_ctrl_c_saves_and_resume_goes_on_to_the_same_bits(small_set, tmp_path, capsys):
    flags = ["--generator", "mlp", "--width", "32", "--epochs", "150", "--every", "2", "--patience", "0"]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    command = [sys.executable, "-m", "neurosql", "train", small_set, "--out", str(stopped), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    history = stopped / "history.jsonl"
    deadline = time.monotonic() + 60
    while not (history.exists() and history.read_text().count("\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"neurosql resume {stopped}" in err
    assert history.read_text().count("\n") < 150
    assert main(["sample", str(stopped), "-n", "4"]) == 0
    capsys.readouterr()
    assert main(["info", str(stopped)]) == 0
    assert "stopped after" in capsys.readouterr().out
    assert main(["resume", str(stopped)]) == 0
    assert main(["train", small_set, "--out", str(whole), *flags]) == 0
    for name in ("model.safetensors", "codes.safetensors"):
        assert (whole / name).read_bytes() == (stopped / name).read_bytes()


def test_help_and_import_do_not_load_torch():
    script = """
import sys, neurosql
from neurosql.cli import main
try:
    main(["train", "--help"])
except SystemExit as stop:
    assert stop.code == 0
assert "torch" not in sys.modules and "numpy" not in sys.modules and "sklearn" not in sys.modules
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for flag in ("--latent-dim", "--every", "--momentum", "--subset", "--ema", "--conditional"):
        assert flag in out


def test_the_program_and_the_module_are_one():
    script = os.path.join(os.path.dirname(sys.executable), "neurosql")
    outputs = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
        for command in ([script], [sys.executable, "-m", "neurosql"])
    ]
    assert outputs[0] == outputs[1] and "quantile assignment" in outputs[0]


def test_messages_name_settings_as_they_are_typed(tmp_path, capsys):
    run = str(tmp_path / "run")
    for flags, words in (
        (["--learning-rate", "-1"], "--learning-rate must be positive, got -1.0"),
        (["--match", "codes", "--preset", "plain"], "match codes needs codes that move: give --code-rate"),
    ):
        assert main(["train", "mnist-sample", "--limit", "40", "--out", run, *flags]) == 2
        assert words in capsys.readouterr().err
    assert main(["train", "mnist-sample", "--limit", "40", "--budget", "smoke", *QUICK[:4], "--out", run]) == 0
    assert main(["sample", run, "--label", "3"]) == 2
    assert "train it with --conditional" in capsys.readouterr().err


def test_the_version_is_said(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"neurosql {neurosql.__version__}\n"
