"""Full disks, folders that can't be written or read, clocks that jump, and data that change during training."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import crashes
import numpy as np
import pytest
from PIL import Image

from neurosql import InputError, data, presets
from neurosql import run as runs
from neurosql.cli import main
from neurosql.data import store
from neurosql.data.catalogue import load_in_parts
from neurosql.settings import DataSettings
from neurosql.training import Stopped

FLAGS = ["--generator", "mlp", "--width", "8", "--epochs", "2", "--preset", "plain", "--batch-size", "20"]


@pytest.fixture
def disk(tmp_path):
    """A disk in memory, and a function that mounts it again with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)

    if sys.platform != "linux" or shutil.which("mount") is None or mount("size=8m").returncode:
        pytest.skip("needs the right to mount a disk")
    try:
        yield place, lambda options: mount(f"remount,{options}").check_returncode()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("story")
    images = data.load(str(crashes.tiny_images(folder / "waves.npz")))
    return crashes.of_arrays(images, presets.settings(**crashes.TINY), folder)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 0.8, 0.95])
def test_a_run_on_a_full_disk_goes_on_once_there_is_room(share, disk, story):
    """What was written is whole, and the run comes to what it would have been."""
    place, again = disk
    size = sum(file.stat().st_size for file in story.reference.rglob("*") if file.is_file())
    again(f"size={max(4096, int(share * size))}")
    with pytest.raises(OSError, match="No space left"):
        story.begin(place / "run")
    again("size=8m")
    story.check_before(place / "run")
    story.go_on(place / "run")
    story.check(place / "run")


def test_a_read_only_folder_is_used_as_far_as_it_goes(disk, tmp_path, capsys):
    place, again = disk
    source = crashes.tiny_images(place / "waves.npz")
    assert main(["train", str(source), "--out", str(place / "run"), *FLAGS]) == 0
    again("ro")
    before = crashes._history(place / "run")
    capsys.readouterr()
    assert main(["info", str(place / "run")]) == 0
    assert main(["sample", str(place / "run"), "-n", "4", "--out", str(tmp_path / "samples.npz")]) == 0
    assert main(["train", str(source), "--out", str(tmp_path / "run"), *FLAGS]) == 0
    capsys.readouterr()
    for command in (
        ["sample", str(place / "run"), "-n", "4"],
        ["train", str(source), "--out", str(place / "x"), *FLAGS],
    ):
        assert main(command) != 0
        said = capsys.readouterr().err
        assert "Read-only file system" in said and "Traceback" not in said
    assert crashes._history(place / "run") == before and not (place / "x").exists()


@contextlib.contextmanager
def nobody():
    """Be a user without rights, where that is possible: root may do everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="needs file permissions")
def test_what_may_not_be_read_or_written_is_said_in_a_sentence(capsys, monkeypatch):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("NEUROSQL_CACHE", str(folder / "cache"))
        for number in range(4):
            Image.fromarray(np.full((8, 8), 40 * number, np.uint8)).save(folder / f"{number}.png")
        secret, closed = folder / "secret.npy", folder / "closed"
        np.save(secret, np.zeros((4, 8, 8), np.uint8))
        secret.chmod(0)
        closed.mkdir(mode=0o555)
        (folder / "locked").mkdir(mode=0)
        with nobody():
            commands = {
                "Permission denied": ["train", str(secret), "--out", str(folder / "run"), *FLAGS],
                "can't be opened": ["data", "check", str(folder / "locked")],
                "closed": ["train", "mnist-sample", "--limit", "40", "--out", str(closed / "run"), *FLAGS],
            }
            for words, command in commands.items():
                assert main(command) != 0
                said = capsys.readouterr()
                assert words in said.err + said.out and "Traceback" not in said.err
        assert not list(closed.iterdir())
        (folder / "locked").chmod(0o755)


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_changes_nothing(jump, story, tmp_path, monkeypatch):
    """Time is only shown: no step, checkpoint or lock depends on what the clock says."""
    usual, steps = time.time, []

    def jumping():
        steps.append(None)
        return usual() + jump * (len(steps) % 3)

    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * jumping()))
    story.begin(tmp_path / "run")
    story.check(tmp_path / "run")


def test_a_clock_that_jumps_does_not_cost_another_process_its_images(tmp_path, monkeypatch):
    """What looks a day old is swept from the cache, also while another process writes it: that one goes on without."""
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(4):
        Image.fromarray(np.full((8, 8), 40 * number, np.uint8)).save(folder / f"{number}.png")
    keep = store.Place.keep

    def swept(place, meta):
        monkeypatch.setattr(store.time, "time", lambda: 4e9)
        store._sweep(place.folder.parent)
        assert not place.folder.exists()
        keep(place, meta)

    monkeypatch.setattr(store.Place, "keep", swept)
    images = data.load(folder)
    assert images.pixels[:, 0, 0, 0].tolist() == [0, 40, 80, 120]


def changed(path, kind):
    """Other images in place of those at a path."""
    if kind == "folder":
        for number, file in enumerate(sorted(path.iterdir())):
            if number % 2:
                file.unlink()
            else:
                Image.fromarray(np.full((8, 8), 255, np.uint8)).save(file)
    else:
        path.write_bytes(path.read_bytes()[:-2000] + bytes(2000))


@pytest.mark.parametrize("kind", ["npy", "folder"])
def test_data_that_change_during_training_change_nothing_and_are_noticed_after(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    settings = presets.settings(preset="plain", **crashes.TINY | {"epochs": 3})

    def read(source):
        return load_in_parts(source, DataSettings(), settings.training.validation_share, 0)

    def fresh(name):
        path = tmp_path / name
        if kind == "npy":
            np.save(path.with_suffix(".npy"), pixels)
            return path.with_suffix(".npy")
        path.mkdir()
        for number, image in enumerate(pixels):
            Image.fromarray(image).save(path / f"{number:02d}.png")
        return path

    left_alone = runs.train(read(str(fresh("one"))), settings, tmp_path / "alone")
    source, told = fresh("other"), []

    def hear(figures):
        if not told:
            changed(source, kind)
        told.append(figures)

    run = runs.train(read(str(source)), settings, tmp_path / "changed", hear=hear)
    assert len(told) > 1
    for name, weights in left_alone.method.networks["generator"].state_dict().items():
        assert weights.equal(run.method.networks["generator"].state_dict()[name]), name

    source = fresh("third")
    with contextlib.suppress(Stopped):
        runs.train(read(str(source)), settings, tmp_path / "stopped", hear=lambda figures: os.kill(os.getpid(), 15))
    changed(source, kind)
    with pytest.raises(InputError, match=r"does not hold the images|can't be read"):
        runs.resume(tmp_path / "stopped", lambda source, how: read(source))
