"""Data from strangers: what is no file, lies about its size, or changes is refused in a sentence, at once."""

import gzip
import io
import os
import pwd
import resource
import struct
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neurosql import InputError, data
from neurosql.data import apart, arrays, listing, picture, splits, store, tables, tree, volume
from neurosql.data.decode import decoder_of


def pictures(folder, n=6):
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for i in range(n):
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


def grown(call):
    """By how many megabytes the memory of this process grew at its peak."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


NAMES = ["x.zip", "x.tar.gz", "x.npy", "x.npz", "x.csv", "x.parquet", "x.png", "x.nii", "x.wav"]


@pytest.mark.parametrize("name", [*NAMES, "train-images-idx3-ubyte.gz"])
def test_pipes_devices_and_loops_are_refused_at_once(tmp_path, name):
    began = time.monotonic()
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="is a pipe"):
        data.load(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a device"):
        data.load(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(InputError, match="no such data"):
        data.load(tmp_path / name)
    assert time.monotonic() - began < 5


def test_links_that_lead_in_a_circle_are_named_and_the_rest_is_read(tmp_path):
    folder = pictures(tmp_path / "set")
    (folder / "a.png").symlink_to(folder / "b.png")
    (folder / "b.png").symlink_to(folder / "a.png")
    with pytest.raises(InputError, match=r"a.png can't be opened"):
        data.load(folder)
    assert len(data.load(folder, skip_bad=True)) == 6


def test_a_pipe_in_place_of_a_split_file_or_of_a_listed_file_is_refused_at_once(tmp_path):
    folder = pictures(tmp_path / "set")
    os.mkfifo(tmp_path / "split.json")
    with pytest.raises(InputError, match="is a pipe"):
        data.load(folder, split=str(tmp_path / "split.json"))
    found = tree.Tree(folder)
    (folder / "3.png").unlink()
    os.mkfifo(folder / "3.png")
    with pytest.raises(InputError, match="is a pipe"):
        found.read(found.entries[3])


@pytest.mark.parametrize("source", ["~nobody-of-that-name/x", "folder:~nobody-of-that-name/x", "a\0b", "folder:a\0b"])
def test_a_path_that_can_not_be_is_a_sentence(source):
    with pytest.raises(InputError, match=r"home folder|no such data"):
        data.load(source)


def test_without_a_home_folder_data_are_read_without_a_cache(tmp_path, monkeypatch):
    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("NEUROSQL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    images = data.load(pictures(tmp_path / "set"))
    assert len(images) == 6 and "there is no home folder" in images.reading.notes[-1]
    with pytest.raises(InputError, match="home folder"):
        data.load("~/set")


@pytest.mark.parametrize(
    "text, words",
    [
        ("a,b,c\n", "has a header but no rows"),
        ("a,a,b\n1,2,3\n4,5,6\n", "several columns called 'a', 1 and 2"),
        ("a,label,label\n1,2,3\n4,5,6\n", "several columns called 'label', 2 and 3"),
        ("a,b\nnan,1\n,2\n", "no row with a number in every column"),
        ("a,b\n1e308,1\n-1e308,2\n1e308,3\n", "too large to standardise"),
    ],
)
def test_tables_that_would_lose_a_column_or_have_no_rows_are_refused(tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        data.load(tmp_path / "t.csv", skip_bad="nan" in text)


def test_repeated_columns_of_a_parquet_table_are_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    from pyarrow import parquet

    table = arrow.table([[1.0, 2.0], [3.0, 4.0]], names=["a", "a"])
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match="several columns called 'a'"):
        data.load(tmp_path / "t.parquet")


def test_blocks_of_a_table_join_to_the_same_numbers(tmp_path, monkeypatch):
    values = np.random.default_rng(0).normal(size=(57, 3))
    lines = [",".join(map(repr, row.tolist())) + f",{'ab'[i % 2]},word" for i, row in enumerate(values)]
    (tmp_path / "t.csv").write_text("x,y,z,label,text\n" + "\n".join(lines) + "\n")
    whole = data.load(tmp_path / "t.csv")
    monkeypatch.setattr(apart, "here", True)
    monkeypatch.setattr(tables, "BLOCK", 20)
    pieces = data.load(tmp_path / "t.csv")
    assert np.array_equal(whole.x, pieces.x) and np.array_equal(whole.labels, pieces.labels)
    np.testing.assert_allclose(whole.x * whole.std + whole.mean, values, atol=1e-5)
    assert whole.reading.notes == pieces.reading.notes == ["columns that are not numeric are left out: text"]


@pytest.mark.parametrize(
    "name, least, words",
    [("MAX_LINE", 9, "line of more than 9"), ("MAX_COLUMNS", 2, "3 columns: more than 2"), ("SECONDS", -1, "longer")],
)
def test_limits_on_tables_are_named(tmp_path, monkeypatch, name, least, words):
    (tmp_path / "t.csv").write_text("a,b,c\n" + "1.25,2.25,3.25\n" * 9)
    monkeypatch.setattr(apart, "here", True)
    monkeypatch.setattr(tables, name, least)
    with pytest.raises(InputError, match=words):
        data.load(tmp_path / "t.csv")


def test_a_table_larger_than_memory_is_refused(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 9)
    monkeypatch.setattr(apart, "here", True)
    monkeypatch.setattr(store, "room", lambda: 500)
    with pytest.raises(InputError, match="more than 15 cells"):
        data.load(tmp_path / "t.csv")


ARRAYS = {
    "no samples": np.zeros((0, 8, 8)),
    "no pixels": np.zeros((5, 0, 8)),
    "no axis": np.float32(3),
    "words": np.array([["a", "b"], ["c", "d"]]),
    "words in images": np.full((4, 8, 8), "a"),
    "bytes": np.zeros((4, 8), "S3"),
    "empty words": np.zeros((4, 8), "U0"),
    "records": np.zeros((5, 8), [("a", "f4"), ("b", "i4")]),
    "records in images": np.zeros((5, 8, 8), [("a", "f4")]),
    "dates": np.zeros((5, 8), "M8[s]"),
    "spans": np.zeros((5, 8), "m8[s]"),
    "raw": np.zeros((5, 8), "V4"),
    "complex": np.zeros((5, 8), "c8"),
    "objects": np.array([{}, []], object),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_arrays_that_are_no_samples_are_refused(tmp_path, what):
    np.save(tmp_path / "x.npy", ARRAYS[what], allow_pickle=what == "objects")
    with pytest.raises(InputError, match=r"x.npy"):
        data.load(tmp_path / "x.npy")


@pytest.mark.parametrize("what", ["no samples", "no axis", "objects"])
def test_labels_of_medmnist_that_are_no_labels_are_refused(tmp_path, what):
    np.savez(tmp_path / "x.npz", train_images=np.zeros((5, 8, 8), np.uint8), train_labels=ARRAYS[what])
    with pytest.raises(InputError, match=r"x.npz"):
        data.load(tmp_path / "x.npz")


def test_values_of_no_bytes_can_not_be_without_number(tmp_path):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "|V0", "fortran_order": False, "shape": (256, 65535, 4294967295)}
    )
    for name in ("images", "train_images"):
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr(f"{name}.npy", head.getvalue())
        with pytest.raises(InputError, match="no array of values"):
            data.load(tmp_path / "x.npz")


def test_arrays_by_rows_by_columns_and_of_any_type_are_read_alike(tmp_path):
    values = np.random.default_rng(0).random((9, 8, 8))
    expected = values.astype(np.float32)
    for how, array in {"rows": values, "columns": np.asfortranarray(values), "swapped": values.astype(">f8")}.items():
        np.save(tmp_path / f"{how}.npy", array)
        assert np.array_equal(data.load(tmp_path / f"{how}.npy").x[:, 0], expected)
    np.save(tmp_path / "bytes.npy", (values * 255).astype(np.uint8))
    some = data.load(tmp_path / "bytes.npy", 4)
    assert np.array_equal(some.pixels[:, 0], (values * 255).astype(np.uint8)[some.rows])


def test_an_array_that_is_cut_off_while_it_is_read_is_a_sentence(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((50, 64, 64)))
    found = arrays.scan(tree.Tree(tmp_path / "x.npy"), None)
    os.truncate(tmp_path / "x.npy", 20_000)
    with pytest.raises(InputError, match="was cut off while it was read"):
        store.gather(found.values, np.arange(50))
    with pytest.raises(InputError, match=r"header says shape \(50, 64, 64\)"):
        data.load(tmp_path / "x.npy")


def idx(folder, count, content):
    folder.mkdir()
    head = b"\0\0\x08\x03" + struct.pack(">III", count, 28, 28)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + content))
    return folder


def test_memory_follows_what_an_idx_file_holds_not_what_it_claims(tmp_path):
    bomb = idx(tmp_path / "bomb", 2**31 // 784, bytes(2**24))
    short = idx(tmp_path / "short", 2**27 // 784, bytes(2**20))

    def both():
        with pytest.raises(InputError, match="bytes unpacked are refused"):
            data.load(bomb)
        with pytest.raises(InputError, match="but it holds 1,048,576 bytes"):
            data.load(short)

    assert grown(both) < 100


@pytest.mark.parametrize("shape", [(2**31 - 1, 0, 0), (2**31 - 1, 1, 1), (0, 28, 28)])
def test_an_idx_header_can_not_ask_for_samples_without_number(tmp_path, shape):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + struct.pack(">III", *shape) + bytes(99))
    with pytest.raises(InputError, match="its header says shape"):
        data.load(tmp_path)


def test_a_header_of_a_packed_tar_archive_can_not_ask_for_memory(tmp_path):
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2**28
    path = tmp_path / "x.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(member.tobuf(tarfile.GNU_FORMAT))
        for _ in range(256):
            file.write(bytes(2**20))

    def load():
        with pytest.raises(InputError, match="more than 1,048,576 are refused"):
            data.load(path)

    assert grown(load) < 50


def test_an_archive_within_a_packed_archive_is_not_unpacked_twice(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.png"))
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(gzip.compress(buffer.getvalue())))
    with pytest.raises(InputError, match="can't be read as an archive"):
        data.load(tmp_path / "x.tar.gz")


def test_names_in_an_archive_may_begin_with_the_current_folder(tmp_path):
    content = (pictures(tmp_path / "set") / "0.png").read_bytes()
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("./a.png", "./b.png", "c.png"):
            archive.writestr(name, content)
    assert data.load(tmp_path / "x.zip").names.tolist() == ["a.png", "b.png", "c.png"]


def test_a_volume_can_not_claim_more_than_it_holds(tmp_path):
    nibabel = pytest.importorskip("nibabel", reason="needs nibabel")
    whole = bytearray(nibabel.Nifti1Image(np.zeros((8, 8, 8), np.uint8), np.eye(4)).to_bytes())
    shapes = {
        "giant": (32767, 32767, 32767),
        "thin": (32767, 32767, 1),
        "negative": (-8, 8, 8),
        "much": (900, 900, 900),
    }
    for name, shape in shapes.items():
        whole[42:48] = struct.pack("<hhh", *shape)
        (tmp_path / f"{name}.nii.gz").write_bytes(gzip.compress(bytes(whole)))

    def load():
        with pytest.raises(InputError, match=r"can't be read|are refused|none of the 4 files"):
            data.load(tmp_path, axis=0)
        with pytest.raises(InputError):
            data.load(tmp_path)

    assert grown(load) < 200


def edited(path):
    """Change one pixel of a picture, and nothing that a listing shows: neither its size nor its time."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 255
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size and path.stat().st_mtime_ns == status.st_mtime_ns


def test_a_picture_that_was_edited_with_its_size_and_time_kept_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    for i in range(3):
        Image.fromarray(np.full((8, 8), 40 * i, np.uint8)).save(folder / f"{i}.bmp")
    before = data.load(folder).pixels.copy()
    edited(folder / "1.bmp")
    after = data.load(folder).pixels
    assert (before != after).sum() == 1


@pytest.mark.parametrize("file", [store.PIXELS, store.META])
def test_a_bit_that_flipped_in_the_cache_is_noticed(tmp_path, monkeypatch, file):
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    folder = pictures(tmp_path / "set")
    before = data.load(folder)
    kept = before.fingerprint, before.rows.tolist()
    path = next((tmp_path / "cache" / "decoded").glob(f"*/{file}"))
    content = bytearray(path.read_bytes())
    # A pixel, or a digit of the positions that were kept.
    content[-1 if file == store.PIXELS else content.index(b"kept") + 8] ^= 1
    path.write_bytes(content)
    again = data.load(folder)
    assert (again.fingerprint, again.rows.tolist()) == kept
    assert path.read_bytes() != bytes(content)


def test_the_documented_limits_are_those_of_the_readers():
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text("utf-8")
    table = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    mebi = 2**20
    pictures, sounds, volumes = (decoder_of(f"neurosql.data.{name}:DECODER") for name in ("picture", "sound", "volume"))
    for name, decoder in (("picture", pictures), ("sound", sounds), ("NIfTI volume", volumes)):
        row = table[name]
        assert f"{decoder.max_bytes // mebi:,} MiB" in row and f"{decoder.memory // mebi:,} MiB of memory" in row
        assert f"{decoder.seconds:g} s" in row
    assert f"{picture.MAX_PIXELS:,} pixels" in table["picture"]
    assert f"{volume.MAX_VOXELS:,} voxels" in table["NIfTI volume"]
    for words in (f"{tree.MAX_MEMBER // mebi:,} MiB", f"{tables.MAX_COLUMNS:,} columns", f"{tables.SECONDS} s"):
        assert words in table["table"]
    assert f"{tree.MAX_MEMBER // mebi:,} MiB; packed, {tree.MAX_RATIO} times" in table["idx"]
    assert f"{tree.MAX_ENTRIES:,} files" in table["archive"] and "256 MiB" in table["archive"]
    assert f"{tree.MAX_ENTRIES:,} files" in table["folder"]
    assert all(f"{apart.SECONDS:g} s" in table[name] for name in ("`.npz`", "idx", "archive"))
    assert f"{arrays.MAX_RATIO} times its packed size plus {tree.MAX_SMALL // mebi} MiB" in table["`.npz`"]
    assert f"{splits.MAX_SPLIT // mebi} MiB" in table["split file"]
    assert f"{listing.MAX_SAMPLES:,} samples" in table["any source"]


@pytest.mark.parametrize("value", ["1e4000", "nan"])
def test_numbers_that_are_longer_than_float64_are_refused_without_a_warning(value, tmp_path):
    values = np.ones((4, 3), np.longdouble)
    values[2, 1] = np.longdouble(value)
    if not np.finfo(np.longdouble).max > np.finfo(np.float64).max:
        pytest.skip("numbers are not longer here")
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(InputError, match=r"must be finite, got (infinity|NaN) in sample 2"):
        data.load(tmp_path / "a.npy")
