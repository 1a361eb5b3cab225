"""MNIST and sets in the same format (Fashion-MNIST, KMNIST, EMNIST): idx files, packed or not."""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib

import numpy as np

from neurosql.data.archive import MAX_RATIO, MAX_SMALL, words_of
from neurosql.data.listing import MAX_SAMPLES, Arrays
from neurosql.data.tree import MAX_MEMBER, Entry, Tree, page_in
from neurosql.errors import InputError
from neurosql.settings import DataSettings

FILE = re.compile(
    r"(?P<set>.*?)(?P<part>train|t10k|test)-(?P<what>images|labels)[-.]idx[13]-ubyte(\.gz)?", re.IGNORECASE
)
PIECE = 2**20
PARTS = {"train": "train", "t10k": "test", "test": "test"}

Files = dict[tuple[str, str], Entry]
"""The files of one data set, by part and content."""


def recognises(tree: Tree) -> bool:
    """Whether there are files with idx names."""
    return any(FILE.fullmatch(entry.base) for entry in tree.entries)


def scan(tree: Tree, settings: DataSettings) -> Arrays:
    """Images and labels of the training and the test files. The path of one file means its whole set."""
    chosen = None
    if tree.kind == "file":
        match = FILE.fullmatch(tree.path.name)
        if match is None:
            raise InputError(f"{tree.path} is not named like an idx file, train-images-idx3-ubyte(.gz)")
        chosen, tree = match["set"].lower(), Tree(tree.path.parent)
    sets: dict[tuple[str, str], Files] = {}
    for entry in tree.entries:
        if match := FILE.fullmatch(entry.base):
            place = "/".join(entry.parts[:-1]), match["set"].lower()
            if chosen is not None and place != ("", chosen):
                continue
            key = PARTS[match["part"].lower()], match["what"].lower()
            files = sets.setdefault(place, {})
            # Unpacked files win: the usual download leaves both.
            if key not in files or not entry.has_suffix(".gz"):
                files[key] = entry
    if not sets:
        raise InputError(f"no idx files such as train-images-idx3-ubyte.gz in {str(tree.path)!r}")
    if len(sets) > 1:
        found = ", ".join(sorted(files[min(files)].name for files in sets.values()))
        raise InputError(
            f"{str(tree.path)!r} holds {len(sets)} sets: give the path of one file of the set that you want ({found})"
        )
    (((_, prefix), files),) = sets.items()
    return _read(tree, files, prefix)


def _read(tree: Tree, files: Files, prefix: str) -> Arrays:
    images, labels, parts = [], [], {}
    for part in ("train", "test"):
        if (part, "images") not in files:
            continue
        array = _idx(tree, files[part, "images"])
        if array.ndim != 3:
            raise InputError(f"{files[part, 'images'].name} has {array.ndim} dimensions: images have 3")
        if "emnist" in prefix:
            # EMNIST's images are transposed.
            array = array.swapaxes(1, 2)
        named = _idx(tree, files[part, "labels"]) if (part, "labels") in files else None
        if named is not None and named.shape != (len(array),):
            raise InputError(f"{files[part, 'labels'].name} has {len(named)} labels for {len(array)} images")
        images.append(array)
        labels.append(named)
        parts[part] = len(array)
    if not images:
        raise InputError(f"{str(tree.path)!r} has labels but no images: train-images-idx3-ubyte(.gz) is missing")
    if len({array.shape[1:] for array in images}) > 1:
        raise InputError(f"training and test images in {str(tree.path)!r} have different sizes")
    notes = []
    if any(named is None for named in labels):
        notes.append("some labels are missing, so all are left out")
    together = None if notes else np.concatenate([named for named in labels if named is not None])
    of_part = np.repeat(list(parts), list(parts.values()))
    return Arrays(np.concatenate(images), together, parts=of_part, layout="nhw", notes=notes)


def _idx(tree: Tree, entry: Entry) -> np.ndarray:
    """An idx file of bytes."""
    content = tree.read(entry, MAX_MEMBER)
    try:
        if content[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
                return _unpacked(stream, MAX_RATIO * len(content) + MAX_SMALL)
        shape, start = _shape(content[:16])
        if start + math.prod(shape) > len(content):
            raise ValueError(f"its header says shape {shape}, but it has {len(content):,} bytes")
        return np.frombuffer(content, np.uint8, offset=start, count=math.prod(shape)).reshape(shape)
    except (ValueError, EOFError, OSError, zlib.error, OverflowError) as error:
        raise InputError(
            f"{entry.name} is not a complete idx file: {page_in(content[:256]) or words_of(error)}"
        ) from None


def _unpacked(stream: gzip.GzipFile, most: int) -> np.ndarray:
    """The array of a packed file. Memory is only touched as far as the file really reaches."""
    head = stream.read(4)
    head += stream.read(4 * head[3] if len(head) == 4 and head[3] <= 3 else 0)
    shape, _ = _shape(head)
    if math.prod(shape) > most:
        raise ValueError(f"its header says shape {shape}: more than {most:,} bytes unpacked are refused")
    values = np.empty(math.prod(shape), np.uint8)
    filled = 0
    while filled < len(values):
        piece = stream.read(min(PIECE, len(values) - filled))
        if not piece:
            raise ValueError(f"its header says shape {shape}, but it holds {filled:,} bytes")
        values[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    return values.reshape(shape)


def _shape(head: bytes) -> tuple[tuple[int, ...], int]:
    if len(head) < 8 or head[:3] != b"\0\0\x08" or not 1 <= head[3] <= 3:
        raise ValueError("it does not begin like an idx file of bytes")
    shape = tuple(int.from_bytes(head[4 + 4 * i : 8 + 4 * i], "big") for i in range(head[3]))
    if len(head) < 4 + 4 * head[3] or 0 in shape or shape[0] > MAX_SAMPLES or math.prod(shape) > MAX_MEMBER:
        raise ValueError(f"its header says shape {shape}")
    return shape, 4 + 4 * head[3]
