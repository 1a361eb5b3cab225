"""Codes as tables: those of the training images at once, and those of others, looked up or searched for."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from neurosql import InputError, app, data, open_run
from neurosql.app.training import sets
from neurosql.checkpoint import RunFolder
from neurosql.cli import main
from neurosql.methods.search import Searched
from neurosql.trained_on import TrainedOn, digests

QUICK = ["--generator", "mlp", "--width", "8", "--epochs", "2", "--every", "1"]
OLD = Path(__file__).parent / "fixtures" / "runs-0.1.0"


@pytest.fixture(scope="module")
def pictures(digits, tmp_path_factory):
    """60 digits as files, one folder per class; two of them are equal."""
    folder = tmp_path_factory.mktemp("data") / "set"
    for i in range(60):
        path = folder / str(digits[1][i]) / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits[0][i] * 255).astype(np.uint8)).save(path)
    shutil.copy(folder / "0" / "000.png", folder / "0" / "again.png")
    return folder


@pytest.fixture(scope="module")
def trained(pictures, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "digits"
    assert main(["train", str(pictures), "--out", str(run), "--conditional", *QUICK]) == 0
    return run


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def no_search(monkeypatch):
    """Make every search an error."""

    def search(*arguments, **options):
        raise AssertionError("an image was searched for")

    monkeypatch.setattr(Searched, "encode", search)


def test_the_table_has_each_training_image_with_its_code(trained, pictures, tmp_path, no_search, capsys):
    assert main(["codes", str(trained), "--out", str(tmp_path / "codes.csv")]) == 0
    assert "codes of 49 training samples" in capsys.readouterr().out
    rows, run = table(tmp_path / "codes.csv"), open_run(trained)
    assert list(rows[0]) == ["position", "name", "label", "part", "row", "loss", "z1", "z2"] and len(rows) == 49
    images = data.load(pictures)
    names = images.names.tolist()
    for row in rows:
        assert names[int(row["position"])] == row["name"] and row["name"].startswith(row["label"] + "/")
    assert [int(row["position"]) for row in rows] == run.split["train"] and {r["part"] for r in rows} == {"train"}
    codes = np.array([[float(row["z1"]), float(row["z2"])] for row in rows], np.float32)
    lattice = run.method.lattice.numpy()[[int(row["row"]) for row in rows]]
    assert np.array_equal(codes, run.method.codes.numpy()) and len(np.unique(lattice, axis=0)) == 49
    x = torch.from_numpy(images.x[run.split["train"]])
    expected = run.method.cost.paired(x, torch.from_numpy(run.reconstruct()))
    assert [float(row["loss"]) for row in rows] == pytest.approx(expected.tolist(), abs=1e-5)


def test_the_table_needs_nothing_but_the_run(trained, pictures, tmp_path, no_search):
    moved = shutil.copytree(trained, tmp_path / "run")
    hidden = pictures.rename(pictures.with_name("elsewhere"))
    try:
        done = app.codes(moved, tmp_path / "codes.npz")
    finally:
        hidden.rename(pictures)
    with np.load(tmp_path / "codes.npz") as arrays:
        columns = open_run(trained).code_table()
        assert set(arrays) == set(columns) == set(done.columns)
        assert all(np.array_equal(arrays[name], columns[name]) for name in columns)


def test_without_a_file_name_the_table_is_in_the_run(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    assert main(["codes", str(run)]) == 0
    assert len(table(run / "codes.csv")) == 49


def test_codes_of_a_method_without_codes_or_to_an_odd_file_are_refused(trained, tmp_path, capsys):
    assert main(["codes", str(OLD / "gan"), "--out", str(tmp_path / "x.csv")]) == 2
    assert "gan has no codes" in capsys.readouterr().err
    assert main(["codes", str(trained), "--out", str(tmp_path / "x.txt")]) == 2
    assert "give a .npz or a .csv file" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["neurosql", "vae", "glo", "rae", "rs-imle"])
def test_an_old_run_reads_its_images_again(name, tmp_path):
    done = app.codes(OLD / name, tmp_path / "x.csv")
    rows = table(tmp_path / "x.csv")
    assert len(rows) == 60 and not done.notes and all(float(row["loss"]) > 0 for row in rows)
    assert ("row" in rows[0]) == (name == "neurosql") and ("z2" in rows[0])


def test_an_old_run_whose_images_are_gone_has_a_table_without_losses(tmp_path):
    run = shutil.copytree(OLD / "neurosql", tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["data"]["path"] = str(tmp_path / "nowhere")
    (run / "config.json").write_text(json.dumps(config))
    done = app.codes(run)
    assert "can't be read again" in done.notes[0] and "losses" not in done.columns and len(done.columns["codes"]) == 60


def test_training_images_are_not_searched_for(trained, pictures, tmp_path, no_search, capsys):
    run = open_run(trained)
    seen = data.load(pictures).take(np.array(run.split["train"]))
    other = tmp_path / "other"
    for name in seen.names:
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        # Other files with the same pixels.
        Image.open(pictures / name).convert("RGB").save(other / Path(name).with_suffix(".bmp"))
    assert main(["encode", str(trained), str(other), "--out", str(tmp_path / "z.csv")]) == 0
    assert "49 of 49 samples were trained on" in capsys.readouterr().out
    found, own = table(tmp_path / "z.csv"), run.code_table()
    by_name = {name: i for i, name in enumerate(own["names"])}
    for row in found:
        i = by_name[row["name"].replace(".bmp", ".png")]
        if row["name"].startswith("0/"):
            continue
        assert [float(row["z1"]), float(row["z2"])] == own["codes"][i].tolist() and row["label"] == own["labels"][i]


def test_of_equal_training_images_the_better_code_is_taken():
    x = np.random.default_rng(0).random((4, 1, 3, 3)).astype(np.float32)
    x[2] = x[0]
    known = TrainedOn(digests(x), np.array([0.3, 0.1, 0.2, 0.1], np.float32))
    assert known.find(x).tolist() == [2, 1, 2, 3]
    near = np.nextafter(x, np.float32(2))
    assert known.find(near).tolist() == [-1] * 4


def test_others_are_searched_for_as_if_they_were_alone(trained, pictures, tmp_path, capsys):
    run = open_run(trained)
    assert main(["encode", str(trained), str(pictures), "--out", str(tmp_path / "z.npz")]) == 0
    images = data.load(pictures)
    seen = run.trained_on().find(images.x) >= 0
    assert 49 <= seen.sum() < len(images)
    codes, labels, losses = run.encode(images.x[~seen])
    with np.load(tmp_path / "z.npz") as arrays:
        assert np.array_equal(arrays["codes"][~seen], codes) and np.array_equal(arrays["losses"][~seen], losses)
        assert arrays["labels"][~seen].tolist() == [run.like.classes[label] for label in labels]
        assert arrays["labels"][seen].tolist() == [images.classes[label] for label in images.labels[seen]]


def test_encode_says_how_it_converts_or_refuses(trained, tmp_path, capsys):
    """The model's images are 8 x 8 and grey, and training did not resize them."""
    random = np.random.default_rng(0)
    large = tmp_path / "large"
    large.mkdir()
    for i in range(3):
        Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(large / f"{i}.png")
    out = ["--out", str(tmp_path / "z.csv")]
    assert main(["encode", str(trained), str(large), *out]) == 2
    err = capsys.readouterr().err
    assert "(grey, 8 x 8 pixels)" in err and "(grey, 30 x 40 pixels)" in err and "--convert" in err
    Image.fromarray(random.integers(0, 256, (9, 9), dtype=np.uint8)).save(large / "z.png")
    (large / "bad.png").write_text("no picture")
    assert main(["encode", str(trained), str(large), *out]) == 2
    err = capsys.readouterr().err
    assert "--skip-bad" in err and "--convert" in err and "--image-size" not in err
    assert not (tmp_path / "z.csv").exists()
    assert main(["encode", str(trained), str(large), *out, "--convert", "--skip-bad"]) == 0
    said = capsys.readouterr().out
    assert "4 images were centre-cropped and resized to 8 x 8 pixels" in said and "40 x 30 (3), 9 x 9 (1)" in said
    assert "3 images were turned grey: files of mode RGB" in said and len(table(tmp_path / "z.csv")) == 4
    np.save(tmp_path / "a.npy", random.random((2, 12, 12, 3)))
    assert main(["encode", str(trained), str(tmp_path / "a.npy"), *out]) == 2
    assert "(colour, 12 x 12 pixels)" in capsys.readouterr().err
    assert main(["encode", str(trained), str(tmp_path / "a.npy"), *out, "--convert"]) == 0
    assert "from colour, 12 x 12 pixels to grey, 8 x 8 pixels" in capsys.readouterr().out
    np.save(tmp_path / "a.npy", random.random((2, 8, 8, 3)))
    assert main(["encode", str(trained), str(tmp_path / "a.npy"), *out]) == 0
    assert "from colour, 8 x 8 pixels to grey, 8 x 8 pixels" in capsys.readouterr().out


def test_what_a_run_remembers_is_the_same_after_saving_and_from_its_images(trained):
    run = open_run(trained)
    train, _ = sets(run, RunFolder.existing(trained))
    again, kept = TrainedOn.of(run.method, torch.from_numpy(train.x), train.names), run.trained_on()
    assert np.array_equal(again.digests, kept.digests) and again.names.tolist() == kept.names.tolist()
    assert again.losses == pytest.approx(kept.losses, abs=1e-6)


def test_a_table_of_a_method_without_codes_is_refused_in_python():
    with pytest.raises(InputError, match="ddpm has no codes"):
        open_run(OLD / "ddpm").code_table()
