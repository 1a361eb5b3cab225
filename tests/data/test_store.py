"""The cache of decoded files is fast, complete and shared; and sets that do not fit in memory."""

import json
import mmap
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from neurosql import InputError, data, run
from neurosql.data import reading, store
from neurosql.presets import settings


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "decoded"


def is_mapped(x):
    while x is not None and not isinstance(x, mmap.mmap):
        x = getattr(x, "base", None)
    return x is not None


def save(folder, n=12, size=(16, 16), colour=True):
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for i in range(n):
        shape = (*size, 3) if colour else size
        Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(folder / f"{i:05d}.png")
    return folder


def test_the_second_reading_decodes_nothing(cache, tmp_path, monkeypatch):
    folder = save(tmp_path / "set")
    first = data.load(folder)
    monkeypatch.setattr(reading.worker, "Worker", None)
    second = data.load(folder)
    assert np.array_equal(first.x, second.x) and first.fingerprint == second.fingerprint
    assert len(list(cache.iterdir())) == 1
    with pytest.raises(TypeError):
        data.load(folder, cache=False)


def test_what_decides_the_pixels_is_in_the_key(cache, tmp_path):
    folder = save(tmp_path / "set")
    seen = {data.load(folder).fingerprint}
    seen.add(data.load(folder, image_size=8).fingerprint)
    seen.add(data.load(folder, channels="grey").fingerprint)
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(folder / "00003.png")
    seen.add(data.load(folder).fingerprint)
    (folder / "00004.png").unlink()
    seen.add(data.load(folder).fingerprint)
    assert len(seen) == 5 == len(list(cache.iterdir()))


def test_a_touched_file_is_read_again(cache, tmp_path):
    folder = save(tmp_path / "set")
    data.load(folder)
    os.utime(folder / "00000.png", ns=(1, 1))
    data.load(folder)
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", ["pixels", "meta", "nothing left"])
def test_a_damaged_cache_is_made_anew(cache, tmp_path, damage):
    folder = save(tmp_path / "set")
    whole = data.load(folder).x.copy()
    (entry,) = cache.iterdir()
    if damage == "pixels":
        content = (entry / store.PIXELS).read_bytes()
        (entry / store.PIXELS).write_bytes(content[: len(content) // 2])
    elif damage == "meta":
        (entry / store.META).write_text("{")
    else:
        for file in entry.iterdir():
            file.unlink()
    assert np.array_equal(data.load(folder).x, whole)
    assert json.loads((entry / store.META).read_text())["shape"] == [12, 3, 16, 16]


def test_a_cache_that_can_not_be_written_is_a_notice(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "file"))
    images = data.load(save(tmp_path / "set"))
    assert len(images) == 12 and "can't be written" in images.reading.notes[-1]


def test_a_cache_without_room_is_a_notice(cache, tmp_path, monkeypatch):
    def full(handle, start, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "posix_fallocate", full)
    images = data.load(save(tmp_path / "set"))
    assert len(images) == 12 and "no room" in images.reading.notes[-1]
    assert not list(cache.iterdir())


def test_nothing_is_left_behind_by_a_failure(cache, tmp_path):
    folder = save(tmp_path / "set")
    (folder / "bad.png").write_bytes(b"rubbish")
    with pytest.raises(InputError):
        data.load(folder)
    assert not list(cache.iterdir())
    old = cache / "tmp-old"
    old.mkdir()
    os.utime(old, (1, 1))
    data.load(folder, skip_bad=True)
    assert not old.exists()


def test_grey_then_colour_and_bad_files_in_between(cache, tmp_path):
    folder = save(tmp_path / "set", 4, colour=False)
    (folder / "00001.png").write_bytes(b"")
    Image.fromarray(np.full((16, 16, 3), (255, 0, 0), np.uint8)).save(folder / "z.png")
    for _ in range(2):
        images = data.load(folder, skip_bad=True)
        assert images.x.shape == (4, 3, 16, 16) and images.names.tolist() == [
            "00000.png",
            "00002.png",
            "00003.png",
            "z.png",
        ]
        assert (
            (images.x[:3, 0] == images.x[:3, 2]).all() and (images.x[3, 0] == 1).all() and (images.x[3, 1] == 0).all()
        )
        assert images.reading.skipped == [("00001.png", "is empty")] and images.rows.tolist() == [0, 2, 3, 4]


def test_many_files_are_decoded_by_several_processes_to_the_same_pixels(cache, tmp_path, monkeypatch):
    folder = save(tmp_path / "set", 400, (8, 8))
    (folder / "00123.png").write_bytes(b"rubbish")
    monkeypatch.setattr("neurosql.data.worker.processors", lambda: 2)
    parallel = data.load(folder, skip_bad=True, cache=False)
    monkeypatch.setattr(reading, "FEW", 10**6)
    alone = data.load(folder, skip_bad=True, cache=False)
    assert len(alone) == 399 and np.array_equal(parallel.pixels, alone.pixels)
    assert parallel.reading.skipped == alone.reading.skipped
    monkeypatch.setattr(reading, "FEW", 0)
    with pytest.raises(InputError, match=r"00123.png can't be read"):
        data.load(folder)


def test_a_worker_that_dies_is_a_sentence(cache, tmp_path, monkeypatch):
    monkeypatch.setattr("neurosql.data.worker.processors", lambda: 2)
    monkeypatch.setattr("neurosql.data.worker.sys.executable", "/bin/true")
    with pytest.raises(InputError, match="a decoding process died"):
        data.load(save(tmp_path / "set", 400, (8, 8)))


def test_two_processes_at_once_share_one_cache(cache, tmp_path):
    folder = save(tmp_path / "set", 60)
    code = f"from neurosql import data; print(data.load({str(folder)!r}).fingerprint)"
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {process.communicate(timeout=120)[0] for process in started} == {data.load(folder).fingerprint + "\n"}
    assert [p.name.startswith("tmp-") for p in cache.iterdir()] == [False]


def test_the_cache_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("NEUROSQL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(store.sys, "platform", "linux")
    assert store.cache_folder() == tmp_path / "neurosql"
    monkeypatch.setattr(store.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert store.cache_folder() == tmp_path / "local" / "neurosql"


def test_sets_larger_than_memory_train_from_a_scratch_file_to_the_same_bits(cache, tmp_path, monkeypatch):
    folder = save(tmp_path / "set", 60)
    chosen = settings(budget="smoke", generator="mlp", width=8)
    in_memory = run.train(data.load(folder).divide(0.1, 0.1, 0), chosen)
    monkeypatch.setattr(store, "room", lambda: 1000)
    images = data.load(folder).divide(0.1, 0.1, 0)
    assert is_mapped(images.x) and is_mapped(images.pixels)
    assert not list(cache.parent.glob("scratch-*"))
    streamed = run.train(images, chosen)
    assert streamed.method.x.data_ptr() == images.x.ctypes.data
    assert np.array_equal(in_memory.reconstruct(), streamed.reconstruct())


def test_a_large_npy_file_is_mapped(tmp_path, monkeypatch):
    values = np.random.default_rng(0).random((50, 8, 8), dtype=np.float32)
    np.save(tmp_path / "x.npy", values)
    monkeypatch.setattr(store, "room", lambda: 1000)
    images = data.load(tmp_path / "x.npy")
    assert is_mapped(images.x) and np.array_equal(images.x[:, 0], values)


def test_a_thousand_pictures_load_in_under_a_second_the_second_time(cache, tmp_path):
    folder = save(tmp_path / "set", 1000, (32, 32))
    data.load(folder)
    began = time.process_time()
    data.load(folder)
    assert time.process_time() - began < 1
