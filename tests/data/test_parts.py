"""Parts: which sample goes where, split files, limits, and what a run keeps of them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neurosql import InputError, data, open_run
from neurosql.cli import main
from neurosql.data.imageset import from_array
from neurosql.data.splits import divide, draw, draw_parts, hold_out

QUICK = ["--generator", "mlp", "--width", "8", "--epochs", "2", "--every", "1"]

RECORDED = json.loads((Path(__file__).parents[1] / "fixtures" / "splits-0.1.0.json").read_text())
"""Places as version 0.1.0 gave them."""


@pytest.fixture(scope="module")
def classes(digits, tmp_path_factory):
    """A `.npz` of 200 digits with labels and subjects."""
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(path, images=digits[0][:200], labels=digits[1][:200], subjects=np.arange(200) // 4)
    return path


def folder_of(digits, folder, n=60):
    for i in range(n):
        path = folder / str(digits[1][i]) / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits[0][i] * 255).astype(np.uint8)).save(path)
    return folder


def test_eighty_ten_ten_by_seed_and_class():
    labels = np.repeat([0, 1, 2], [100, 60, 40])
    images = from_array(np.random.default_rng(0).random((200, 8, 8)), labels)
    divided = images.divide(0.1, 0.1, seed=0)
    assert [len(part) for part in divided.parts.values()] == [160, 20, 20]
    for part in divided.parts.values():
        assert np.bincount(part.labels) / len(part) == pytest.approx([0.5, 0.3, 0.2])
        assert np.array_equal(part.x, images.x[part.rows])
    together = np.concatenate([part.rows for part in divided.parts.values()])
    assert np.array_equal(np.sort(together), np.arange(200))
    assert np.array_equal(divided.test.rows, images.divide(0.1, 0.1, seed=0).test.rows)
    assert not np.array_equal(divided.test.rows, images.divide(0.1, 0.1, seed=1).test.rows)
    assert images.divide(0, 0, 0) is images


@pytest.mark.parametrize("seed", range(20))
def test_no_subject_is_on_two_sides(seed):
    random = np.random.default_rng(seed)
    subjects = random.integers(0, random.integers(2, 40), 300)
    labels = random.integers(0, 3, subjects.max() + 1)[subjects]
    train, rest = hold_out(300, 0.1, seed, labels, subjects)
    assert np.array_equal(np.sort(np.concatenate([train, rest])), np.arange(300))
    assert not set(subjects[train]) & set(subjects[rest])
    assert len(rest) > 0 and len(train) >= 2


def test_one_subject_can_not_be_split():
    train, rest = hold_out(10, 0.3, 0, None, np.zeros(10))
    assert len(train) == 10 and len(rest) == 0


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['n']}-{case['seed']}")
def test_a_seed_gives_the_places_that_it_always_gave(case):
    n, seed = case["n"], case["seed"]
    labels, subjects = (None if case[k] is None else np.array(case[k]) for k in ("labels", "subjects"))
    images = replace(from_array(np.zeros((n, 2, 2)), labels), subjects=subjects)
    assert images.divide(case["validation"], case["test"], seed).split_record() == case["divided"]
    places = divide(n, {"test": case["test"], "validation": case["validation"]}, seed, labels, subjects)
    assert {part: index.tolist() for part, index in places.items()} == case["divided"]
    kept, aside = hold_out(n, case["validation"] + 0.1, seed, labels, subjects)
    assert aside.tolist() == case["held_out"] and kept.tolist() == sorted(set(range(n)) - set(case["held_out"]))
    assert draw(n, n // 2, seed, labels).tolist() == case["drawn"]


def test_a_limit_holds_for_each_part():
    parts = np.array(["test", "train", "train"] * 20)
    labels = np.arange(60) // 30
    chosen = draw_parts(parts, 10, 0, labels)
    assert list(chosen) == ["train", "test"] and all(np.bincount(labels[i]).tolist() == [5, 5] for i in chosen.values())
    assert all((parts[index] == part).all() for part, index in chosen.items())


def test_a_limit_is_a_seeded_draw_with_equal_classes():
    labels = np.repeat([0, 1, 2], [100, 50, 4])
    index = draw(154, 34, 0, labels)
    assert np.bincount(labels[index]).tolist() == [15, 15, 4]
    assert (np.diff(index) > 0).all() and np.array_equal(index, draw(154, 34, 0, labels))
    assert not np.array_equal(index, draw(154, 34, 1, labels))
    assert np.array_equal(draw(5, 9, 0), np.arange(5))


def test_a_run_keeps_its_split_and_takes_it_back(classes, tmp_path):
    assert main(["train", str(classes), "--out", str(tmp_path / "a"), "--limit", "150", "--seed", "3", *QUICK]) == 0
    split = json.loads((tmp_path / "a" / "split.json").read_text())
    sizes = [len(split[part]) for part in ("train", "validation", "test")]
    assert split["count"] == 200 and sum(sizes) == 150 and min(sizes) > 5
    subjects = [{i // 4 for i in split[part]} for part in ("train", "validation", "test")]
    assert not (subjects[0] & subjects[1] or subjects[0] & subjects[2] or subjects[1] & subjects[2])
    flags = ["--split", str(tmp_path / "a" / "split.json"), "--seed", "9"]
    assert main(["train", str(classes), "--out", str(tmp_path / "b"), *flags, *QUICK]) == 0
    assert json.loads((tmp_path / "b" / "split.json").read_text()) == split
    first, second = (open_run(tmp_path / name) for name in "ab")
    assert first.data.fingerprint == second.data.fingerprint and first.data.test == second.data.test > 0
    images = data.load(classes, split=str(tmp_path / "a" / "split.json"))
    assert images.fingerprint == first.data.fingerprint and images.test.rows.tolist() == split["test"]


def test_resume_reads_the_same_parts_of_a_folder_again(digits, tmp_path):
    folder = folder_of(digits, tmp_path / "set")
    (folder / "3" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n rubbish")
    flags = ["--image-size", "12", "--skip-bad", "--limit", "50", "--seed", "5", *QUICK]
    assert main(["train", str(folder), "--out", str(tmp_path / "run"), *flags]) == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"]["skipped"][0][0] == "3/broken.png" and config["data"]["preparation"]["image_size"] == 12
    (tmp_path / "run" / "checkpoints" / "last.safetensors").unlink()
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_encode_brings_other_images_to_the_shape_of_the_training_images(digits, tmp_path):
    folder = folder_of(digits, tmp_path / "set")
    run = tmp_path / "run"
    assert main(["train", str(folder), "--out", str(run), "--image-size", "16", *QUICK]) == 0
    other = tmp_path / "other"
    other.mkdir()
    for i in range(3):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(other / f"{i}.png")
    assert main(["encode", str(run), str(other), "--out", str(tmp_path / "z.csv")]) == 0
    lines = (tmp_path / "z.csv").read_text().splitlines()
    assert lines[0] == "z1,z2,loss,name" and lines[1].endswith(",0.png") and len(lines) == 4


def test_the_sample_validates_on_digits_that_the_test_does_not_hold(tmp_path):
    assert main(["train", "mnist-sample", "--limit", "64", "--out", str(tmp_path / "run"), *QUICK]) == 0
    split = json.loads((tmp_path / "run" / "split.json").read_text())
    assert split["train"] == list(range(64)) and split["validation"] == list(range(4096, 4352))
    assert split["test"] == list(range(4352, 6144))


BAD_SPLITS = {
    "missing": (None, "no such split file"),
    "no json": ("hello", "not a split file"),
    "a list": ("[1, 2]", "not a split file"),
    "no train": ('{"test": [1]}', "no list 'train'"),
    "another count": ('{"count": 7, "train": [0, 1]}', "split of 7 samples, but the data have 200"),
    "out of range": ('{"train": [0, 200]}', "contains sample 200, but samples are numbered from 0 to 199"),
    "twice": ('{"train": [0, 1], "test": [1]}', "a sample twice"),
    "words": ('{"train": ["a"]}', "not a split file"),
}


@pytest.mark.parametrize("case", BAD_SPLITS)
def test_a_bad_split_file_is_refused_in_one_sentence(case, classes, tmp_path):
    content, words = BAD_SPLITS[case]
    path = tmp_path / "split.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        data.load(classes, split=str(path))
    assert "\n" not in str(caught.value)


def test_duplicates_across_parts_are_said(digits, tmp_path, capsys):
    folder = folder_of(digits, tmp_path / "set", 20)
    for i in range(20):
        Image.fromarray((digits[0][0] * 255).astype(np.uint8)).save(folder / "0" / f"copy{i}.png")
    assert main(["train", str(folder), "--out", str(tmp_path / "run"), *QUICK]) == 0
    assert "also training samples, pixel by pixel" in capsys.readouterr().out
