"""Damaged and hostile files: each is read, skipped as asked or refused with a sentence; nothing is written elsewhere.

Runs a few damaged files by default; `NEUROSQL_FUZZ=1000 pytest tests/data/test_damage.py` runs a thousand.
"""

import gzip
import io
import os
import resource
import stat
import struct
import tarfile
import wave
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from neurosql import InputError, data
from neurosql.data import apart, worker
from neurosql.data.decode import decode, quietly

COUNT = int(os.environ.get("NEUROSQL_FUZZ", "120"))


def encoded(kind, random):
    """A small whole file of that kind."""
    buffer = io.BytesIO()
    pixels = random.integers(0, 256, (24, 24, 3), dtype=np.uint8)
    if kind in ("png", "jpg", "bmp", "gif", "tif", "webp", "ppm"):
        name = {"jpg": "JPEG", "tif": "TIFF"}.get(kind, kind.upper())
        Image.fromarray(pixels).save(buffer, name)
    elif kind == "npy":
        np.save(buffer, pixels[None].repeat(3, 0))
    elif kind == "npz":
        np.savez_compressed(buffer, images=pixels[None].repeat(3, 0), labels=np.arange(3))
    elif kind == "wav":
        with wave.open(buffer, "wb") as file:
            file.setnchannels(1), file.setsampwidth(2), file.setframerate(8000)
            file.writeframes(pixels.tobytes())
    elif kind == "csv":
        buffer.write(b"a,b,label\n" + b"".join(b"%d,%d,x\n" % (i, i * i) for i in range(9)))
    elif kind in ("nii", "nii.gz"):
        nibabel = pytest.importorskip("nibabel", reason="needs nibabel")
        whole = nibabel.Nifti1Image(pixels[..., 0][..., None].repeat(4, 2).astype(np.int16), np.eye(4)).to_bytes()
        buffer.write(gzip.compress(whole) if kind == "nii.gz" else whole)
    elif kind == "idx":
        buffer.write(b"\0\0\x08\x03" + struct.pack(">III", 3, 24, 24) + pixels.tobytes())
    elif kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for i in range(3):
                archive.writestr(f"a/{i}.png", encoded("png", random))
    elif kind in ("tar", "tar.gz"):
        with tarfile.open(fileobj=buffer, mode="w:gz" if kind == "tar.gz" else "w") as archive:
            for i in range(3):
                content = encoded("png", random)
                member = tarfile.TarInfo(f"a/{i}.png")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


IMAGES = ["png", "jpg", "bmp", "gif", "tif", "webp", "ppm"]
KINDS = [*IMAGES, "npy", "npz", "wav", "csv", "nii", "nii.gz", "idx", "zip", "tar", "tar.gz"]


def damaged(content, random):
    """The content cut, flipped, emptied, padded, or with a huge number in its header."""
    way = random.integers(7)
    content = bytearray(content)
    if way == 0:
        return bytes(content[: random.integers(len(content))])
    if way == 1:
        return b""
    if way == 2:
        return b"<!DOCTYPE html><html><body>404</body></html>"
    if way == 3:
        for place in random.integers(0, len(content), 1 + len(content) // 100):
            content[place] ^= 1 << random.integers(8)
    elif way == 4:
        start = random.integers(min(64, len(content)))
        content[start : start + 4] = b"\xff\xff\xff\x7f"
    elif way == 5:
        start = random.integers(len(content))
        content[start : start + 64] = random.bytes(64)
    else:
        content += random.bytes(random.integers(1, 1000))
    return bytes(content)


class InThisProcess(worker.Worker):
    """A worker that decodes in this process, where its memory is measured."""

    def ask(self, request):
        with quietly():
            return [one for payload, slices in request for one in decode(payload, slices, self.prep)]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_read_skipped_or_refused(kind, tmp_path, monkeypatch):
    """Each alone, or among good pictures, with and without --skip-bad; and under a wrong suffix now and then."""
    random = np.random.default_rng(KINDS.index(kind))
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(worker, "Worker", InThisProcess)
    monkeypatch.setattr(apart, "here", True)
    inside = tmp_path / "inside"
    inside.mkdir()
    outcomes = {"read": 0, "refused": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(max(1, COUNT // len(KINDS) + 1)):
        folder = inside / str(number)
        folder.mkdir()
        suffix = kind if random.random() < 0.9 else KINDS[random.integers(len(KINDS))]
        name = "train-images-idx3-ubyte" if suffix == "idx" else f"bad.{suffix}"
        (folder / name).write_bytes(damaged(encoded(kind, random), random))
        source = folder / name
        if suffix in IMAGES:
            for i in range(3):
                (folder / f"good{i}.png").write_bytes(encoded("png", random))
            source = folder
        for skip in (False, True):
            try:
                images = data.load(source, skip_bad=skip, image_size=8, axis=0 if "nii" in suffix else None)
                assert np.isfinite(images.x).all()
                outcomes["read"] += 1
            except InputError as error:
                outcomes["refused"] += 1
                assert "\n" not in str(error) and 10 < len(str(error)) < 600
    assert sum(outcomes.values()) > 0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 1_500_000, f"memory grew by {grown} KB"
    assert {p.name for p in tmp_path.iterdir()} <= {"inside", "cache"}
    assert not [p for p in inside.glob("*/*") if not (p.name.startswith(("bad.", "good")) or "idx3" in p.name)]


def test_among_good_files_a_bad_one_is_named_or_skipped(tmp_path):
    random = np.random.default_rng(0)
    for i in range(5):
        (tmp_path / f"{i}.png").write_bytes(encoded("png", random))
    whole = encoded("jpg", random)
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut.jpg can't be read as an image.*--skip-bad"):
        data.load(tmp_path)
    images = data.load(tmp_path, skip_bad=True)
    assert len(images) == 5 and images.reading.skipped[0][0] == "cut.jpg"


def png_of_size(width, height):
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10**6))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000, 2**31 - 1])
def test_absurd_dimensions_are_refused_before_they_are_decoded(tmp_path, side):
    (tmp_path / "a.png").write_bytes(png_of_size(side, side))
    (tmp_path / "b.png").write_bytes(encoded("png", np.random.default_rng(0)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"a.png") as caught:
        data.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_symbolic_links_out_of_the_root_are_refused_and_others_followed(tmp_path):
    random = np.random.default_rng(0)
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir(), outside.mkdir()
    for i in range(3):
        (root / f"{i}.png").write_bytes(encoded("png", random))
    (outside / "secret.png").write_bytes(encoded("png", random))
    (root / "inside.png").symlink_to(root / "0.png")
    assert len(data.load(root)) == 4
    (root / "loop").symlink_to(root)
    assert len(data.load(root)) == 4
    (root / "out.png").symlink_to(outside / "secret.png")
    with pytest.raises(InputError, match=r"out.png is a symbolic link out of"):
        data.load(root)
    (root / "out.png").unlink()
    (root / "folder").symlink_to(outside)
    with pytest.raises(InputError, match="folder is a symbolic link out of"):
        data.load(root)
    images = data.load(root, skip_bad=True)
    assert len(images) == 4 and images.reading.skipped == [("folder", f"is a symbolic link out of {root}")]
    linked = tmp_path / "linked"
    (root / "folder").unlink()
    linked.symlink_to(root)
    assert len(data.load(linked)) == 4


def test_pipes_and_devices_are_not_opened(tmp_path):
    random = np.random.default_rng(0)
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(encoded("png", random))
    os.mkfifo(tmp_path / "pipe.png")
    assert stat.S_ISFIFO((tmp_path / "pipe.png").stat().st_mode)
    assert len(data.load(tmp_path)) == 3


def hostile_zip(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)


@pytest.mark.parametrize("name", ["../../evil.png", "/etc/evil.png", "a/../../evil.png", "..\\evil.png", "C:/evil.png"])
def test_paths_out_of_an_archive_are_refused(tmp_path, name):
    good = encoded("png", np.random.default_rng(0))
    path = tmp_path / "inside" / "x.zip"
    path.parent.mkdir()
    hostile_zip(path, [("a.png", good), ("b.png", good), (name, good)])
    with pytest.raises(InputError, match="is a path out of the archive"):
        data.load(path)
    assert len(data.load(path, skip_bad=True)) == 2
    assert {p.name for p in tmp_path.rglob("*")} == {"inside", "x.zip"}


def test_links_in_a_tar_archive_are_not_followed(tmp_path):
    good = encoded("png", np.random.default_rng(0))
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("a.png", "b.png"):
            member = tarfile.TarInfo(name)
            member.size = len(good)
            archive.addfile(member, io.BytesIO(good))
        link = tarfile.TarInfo("c.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    assert len(data.load(path)) == 2


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_decompression_bombs_are_refused(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(apart, "here", True)
    monkeypatch.setattr("neurosql.data.tree.MAX_SMALL", 2**22)
    path = tmp_path / f"bomb{suffix}"
    zeros = bytes(2**20)
    if suffix == ".zip":
        hostile_zip(path, [(f"{i}.png", zeros) for i in range(12)])
    else:
        with tarfile.open(path, "w:gz") as archive:
            for i in range(12):
                member = tarfile.TarInfo(f"{i}.png")
                member.size = len(zeros)
                archive.addfile(member, io.BytesIO(zeros))
    with pytest.raises(InputError, match="decompression bombs"):
        data.load(path)


def test_a_numpy_bomb_and_objects_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "here", True)
    monkeypatch.setattr("neurosql.data.arrays.MAX_SMALL", 2**22)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (2**25,)})
        with archive.open("images.npy", "w", force_zip64=True) as file:
            file.write(head.getvalue())
            for _ in range(32):
                file.write(bytes(2**20))
    with pytest.raises(InputError, match="decompression bomb"):
        data.load(tmp_path / "x.npz")
    np.save(tmp_path / "o.npy", np.array([{}, []], object), allow_pickle=True)
    with pytest.raises(InputError, match="not a readable numpy file"):
        data.load(tmp_path / "o.npy")
    with open(tmp_path / "huge.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 8, 8)})
    with pytest.raises(InputError, match="not a readable numpy file"):
        data.load(tmp_path / "huge.npy")


@pytest.mark.parametrize("name", ["data.zip", "data.tar.gz", "train.npz", "table.csv"])
def test_a_web_page_under_the_right_name_is_said(tmp_path, name):
    (tmp_path / name).write_text("<!DOCTYPE html><html><title>Google Drive - Virus scan warning</title></html>")
    with pytest.raises(InputError, match="web page, so the download failed"):
        data.load(tmp_path / name)


def test_an_encrypted_archive_is_refused(tmp_path):
    path = tmp_path / "x.zip"
    hostile_zip(path, [("a.png", b"x" * 50)])
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="encrypted"):
        data.load(path)
