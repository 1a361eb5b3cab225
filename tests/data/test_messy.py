"""A folder as people have them: all that is odd is said at once, with what settles it, and every image is counted."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neurosql import InputError, data
from neurosql.app import check_data
from neurosql.cli import main
from neurosql.data.obstacles import suggested_side
from neurosql.data.splits import draw
from neurosql.errors import Obstacles
from neurosql.settings import DataSettings

QUICK = ["--generator", "mlp", "--width", "8", "--epochs", "1", "--every", "1"]
UNREADABLE = ("cat/page.jpg", "cat/text.png", "dog/empty.png", "dog/cut.jpg")


def coarse(random, size=(40, 30)):
    """A smooth picture in colour, unlike the others."""
    return Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def messy(tmp_path):
    """24 pictures in two classes that can be read, of four sizes, and 4 files that can't."""
    random = np.random.default_rng(0)
    folder = tmp_path / "my pets"
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for i in range(10):
            coarse(random).save(folder / kind / f"{i}.png")
    coarse(random, (90, 30)).save(folder / "cat" / "wide.jpg")
    coarse(random).convert("L").save(folder / "cat" / "grey.png")
    Image.new("RGB", (1, 1), "red").save(folder / "cat" / "dot.png")
    frames = [coarse(random, (32, 32)) for _ in range(3)]
    frames[0].save(folder / "dog" / "moving.gif", save_all=True, append_images=frames[1:])
    (folder / "cat" / "page.jpg").write_text("<!doctype html><title>404</title>")
    (folder / "cat" / "text.png").write_text("not a picture")
    (folder / "dog" / "empty.png").write_bytes(b"")
    whole = (folder / "cat" / "wide.jpg").read_bytes()
    (folder / "dog" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "notes.txt").write_text("bought in spring")
    (folder / "dog" / "IMG_1.HEIC").write_bytes(b"x")
    return folder


def terms(line):
    """The sum in a line and its terms, by what they are for."""
    total, _, rest = line.partition(" = ")
    counts = {what: int(count.replace(",", "")) for count, what in re.findall(r"([\d,]+) ([^+]+?)(?: \+ |$)", rest)}
    return int(total.split()[-1].replace(",", "")), counts


def sum_in(out, name):
    (line,) = [line for line in out.splitlines() if line.startswith(name) and " = " in line]
    return terms(line)


def test_check_finds_everything_at_once_and_its_command_trains(messy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "check", str(messy)]) == 0
    out = capsys.readouterr().out
    for words in (
        "4 files can't be read",
        "--skip-bad leaves them out",
        "have 4 sizes",
        "--image-size 16",
        "1 images are grey and 23 in colour",
        "--channels grey",
        "1 file is animated (dog/moving.gif",
        "1 file is tiny (cat/dot.png is tiny, 1 x 1 pixels)",
        "not read (dog/IMG_1.HEIC)",
        "1 file is no image (notes.txt)",
        "a third or more of 1 image",
    ):
        assert words in out, words
    for name in UNREADABLE:
        assert f"bad        {name} " in out
    last = out.splitlines()[-1]
    assert last.startswith("next       neurosql train ")
    program, *arguments = shlex.split(last.removeprefix("next"))
    assert program == "neurosql" and str(messy) in arguments
    assert main([*arguments, "--out", "run", *QUICK]) == 0


def test_the_sum_of_check_and_of_train_has_every_image(messy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = [str(messy), "--image-size", "16", "--skip-bad"]
    pictures = [p for p in messy.rglob("*") if p.suffix in (".png", ".jpg", ".gif")]
    for command, name in ((["data", "check"], "samples"), (["train"], "parts")):
        more = [*QUICK, "--out", "run"] if command == ["train"] else []
        assert main([*command, *flags, *more]) == 0
        total, counts = sum_in(capsys.readouterr().out, name)
        assert total == sum(counts.values()) == len(pictures) == 28
        assert counts == {"to train on": 20, "for validation": 2, "for the test": 2, "that can't be read": 4}
    split = json.loads(Path("run/split.json").read_text())
    assert [len(split[part]) for part in ("train", "validation", "test")] == [20, 2, 2]


def test_a_limit_is_a_number_of_samples_even_if_some_files_are_bad(messy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(6):
        how = DataSettings(limit=20, image_size=16, skip_bad=True)
        images = data.load(messy, seed=seed, settings=how).divide(0.1, 0.1, seed)
        assert sum(map(len, images.parts.values())) == 20
        reading = images.reading
        assert 20 + len(reading.skipped) + reading.undrawn == 28
    flags = [str(messy), "--image-size", "16", "--skip-bad", "--limit", "20", "--out", "run", *QUICK]
    assert main(["train", *flags]) == 0
    total, counts = sum_in(capsys.readouterr().out, "parts")
    used = [counts[what] for what in ("to train on", "for validation", "for the test")]
    assert total == 28 and sum(used) == 20 and "left out by --limit 20" in counts


def test_bad_files_give_way_to_the_next_ones_of_the_same_draw():
    labels = np.arange(30) % 3
    usable = np.ones(30, bool)
    first = draw(30, 12, 0, labels)
    assert np.array_equal(draw(30, 12, 0, labels, usable), first)
    usable[first[:3]] = False
    second = draw(30, 12, 0, labels, usable)
    assert len(second) == 12 and not set(first[:3]) & set(second) and set(first[3:]) < set(second)
    assert draw(30, 40, 0, labels, usable).tolist() == np.flatnonzero(usable).tolist()


def test_a_run_that_drew_before_it_knew_the_bad_files_is_resumed(messy, tmp_path):
    """Runs of version 0.1.0 hold fewer samples than their limit where files were bad; their split says which."""
    run = tmp_path / "run"
    flags = ["--image-size", "16", "--skip-bad", "--limit", "20", "--seed", "1"]
    whole = ["--validation-share", "0", "--test-share", "0"]
    split = tmp_path / "split.json"
    names = [p.relative_to(messy).as_posix() for p in messy.rglob("*") if p.suffix in (".png", ".jpg", ".gif")]
    good = [i for i, name in enumerate(sorted(names)) if name not in UNREADABLE]
    split.write_text(json.dumps({"count": 28, "train": good[:17]}))
    assert main(["train", str(messy), "--out", str(run), *flags, *whole, "--split", str(split), *QUICK]) == 0
    config = json.loads((run / "config.json").read_text())
    config["data"]["divided"] = False
    (run / "config.json").write_text(json.dumps(config))
    before = (run / "model.safetensors").read_bytes()
    (run / "checkpoints" / "last.safetensors").unlink()
    (run / "model.safetensors").unlink()
    assert main(["resume", str(run)]) == 0
    assert (run / "model.safetensors").read_bytes() == before


def test_train_names_all_that_is_in_the_way(messy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (messy / "dog").iterdir():
        path.rename(messy / "cat" / f"dog-{path.name}")
    (messy / "dog").rmdir()
    assert main(["train", str(messy), "--conditional", "--out", "run", *QUICK]) == 2
    err = capsys.readouterr().err
    assert err.startswith("neurosql: 3 things are in the way:\n")
    assert "4 files can't be read" in err and "--skip-bad" in err
    assert "4 sizes" in err and "--image-size 16" in err
    assert "--conditional needs labels" in err
    assert not Path("run").exists()
    settled = shlex.split(err.splitlines()[-1].partition(": ")[2])
    assert settled[-3:] == ["--skip-bad", "--image-size", "16"]
    settled.remove("--conditional")
    assert main(settled[1:]) == 0


def test_what_the_model_would_refuse_is_named_with_the_bad_files(tmp_path, capsys):
    random = np.random.default_rng(0)
    folder = tmp_path / "set"
    folder.mkdir()
    for i in range(6):
        coarse(random, (300, 300)).save(folder / f"{i}.png")
    (folder / "bad.png").write_text("nothing")
    assert main(["train", str(folder), "--epochs", "1", "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert "2 things are in the way" in err and "bad.png can't be read" in err and "got 300x300" in err
    assert err.endswith("--skip-bad --image-size 64\n")
    assert main(["train", str(folder), *QUICK, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    for i in range(5):
        (folder / f"{i}.png").unlink()
    assert main(["train", str(folder), *QUICK, "--out", str(tmp_path / "run")]) == 2
    assert "only 1 of the files can be read: at least 2 are needed" in capsys.readouterr().err


def test_in_python_all_obstacles_are_one_sentence_with_the_settings_that_settle_them(messy):
    with pytest.raises(Obstacles) as caught:
        data.load(messy)
    assert "\n" not in str(caught.value) and len(caught.value.found) == 2
    assert caught.value.settled_by == {"skip_bad": True, "image_size": 16}
    assert len(data.load(messy, **caught.value.settled_by)) == 24


def test_links_that_are_not_followed_are_in_the_sum(messy, tmp_path):
    (tmp_path / "elsewhere.png").write_bytes((messy / "cat" / "0.png").read_bytes())
    (messy / "cat" / "link.png").symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(Obstacles, match="5 files can't be read") as caught:
        data.load(messy)
    assert len(caught.value.found) == 2
    assert len(data.load(messy, skip_bad=True, image_size=16).reading.skipped) == 5


def test_check_of_what_can_not_be_trained_on_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "bad"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.png").write_text("nothing")
    assert main(["data", "check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "none of the 3 files can be read" in out and "next       nothing can be trained on yet" in out
    coarse(np.random.default_rng(0)).save(folder / "good.png")
    found = check_data(str(folder), DataSettings())
    assert found.command is None and "1 image(s) that can be read, and 3 that can't" in str(found.findings[0])
    heic = tmp_path / "phone"
    heic.mkdir()
    (heic / "IMG.HEIC").write_bytes(b"x")
    with pytest.raises(InputError, match=r"found other files \(1 .heic\): convert"):
        check_data(str(heic), DataSettings())


@pytest.mark.parametrize("side", [4, 300])
def test_images_of_a_size_that_networks_refuse_get_one_that_they_take(side, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "set").mkdir()
    for i in range(6):
        coarse(random, (side, side)).save(tmp_path / "set" / f"{i}.png")
    found = check_data("set", DataSettings())
    assert found.command == f"neurosql train set --image-size {8 if side == 4 else 64}"
    assert main([*shlex.split(found.command)[1:], "--width", "8", "--epochs", "1", "--out", "run"]) == 0


def test_pictures_outside_the_class_folders_are_said(messy):
    coarse(np.random.default_rng(5)).save(messy / "stray.png")
    images = data.load(messy, skip_bad=True, image_size=16)
    assert images.labels is None
    assert "1 of 29 images are in no class folder, such as stray.png" in images.reading.notes[0]


def test_a_check_without_findings_suggests_the_plain_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for i in range(12):
        path = Path("set") / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse(random, (16, 16)).save(path)
    assert main(["data", "check", "set", "--seed", "3", "--channels", "grey"]) == 0
    out = capsys.readouterr().out
    assert "findings   none" in out and out.endswith("next       neurosql train set --channels grey --seed 3\n")
    with Image.open("set-check.png") as sheet:
        assert sheet.mode == "L"


def test_a_split_file_is_taken_as_it_is(messy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("split.json").write_text(json.dumps({"count": 28, "train": [0, 1, 2, 3, 4], "validation": [5, 6]}))
    assert main(["data", "check", str(messy), "--image-size", "16", "--split", "split.json"]) == 0
    out = capsys.readouterr().out
    assert "28 = 5 to train on + 2 for validation + 21 left out by the split" in out
    command = shlex.split(out.splitlines()[-1])[1:]
    assert command[-2:] == ["--split", "split.json"] and "--skip-bad" not in command
    assert main([*command[1:], "--out", "run", *QUICK]) == 0
    assert "28 = 5 to train on + 2 for validation + 21 left out by the split" in capsys.readouterr().out


def test_rows_of_a_table_that_are_left_out_are_in_the_sum(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = ["a,b"] + [f"{i},{i * i}" for i in range(20)] + ["1,"]
    Path("t.csv").write_text("\n".join(lines))
    assert main(["data", "check", "t.csv"]) == 0
    out = capsys.readouterr().out
    total, counts = sum_in(out, "samples")
    assert total == 21 and counts["that can't be read"] == 1 and "--skip-bad" in out.splitlines()[-1]


def test_the_suggested_size_enlarges_few():
    assert suggested_side({(28, 28): 90, (30, 40): 10}) == 28
    assert suggested_side({(500, 400): 5, (600, 300): 5}) == 64
    assert suggested_side({(40, 33): 3, (50, 50): 2, (20, 20): 1}) == 32
    assert suggested_side({(3, 3): 3, (2, 2): 2}) == 8
    assert suggested_side({(80, 80, 80): 3, (90, 90, 90): 1}) == 32
