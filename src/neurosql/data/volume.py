"""NIfTI volumes: one file is one volume, or as many images as it has slices. Needs nibabel."""

from __future__ import annotations

import gzip
import io
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from neurosql import intake
from neurosql.data.archive import MAX_RATIO, MAX_SMALL, words_of
from neurosql.data.decode import Bad, Decoded, Decoder, Prep
from neurosql.data.nifti import NiftiSettings
from neurosql.data.picture import centre, resize_float
from neurosql.errors import InputError

MAX_VOLUME = 2**30
"""Most bytes of a volume, packed or unpacked."""
MAX_VOXELS = 2**28
"""Most voxels: each takes several floats while it is read."""
MAX_SIDE = 2**15
SECONDS = 300
MEMORY = 6 * 2**30
HEADER = 540


def depth(payload: bytes | str, axis: int) -> int:
    """The number of slices along an axis, in canonical orientation; raises `Bad` if the file can't be read."""
    nibabel = need_nibabel()
    try:
        with _silence(), _stream(payload) as stream:
            head = stream.read(HEADER)
            shape, _ = _shape(head)
            kind = nibabel.Nifti2Header if _is_second(head) else nibabel.Nifti1Header
            affine = kind.from_fileobj(io.BytesIO(head)).get_best_affine()
            # Which of the stored axes runs along the wanted one.
            stored = nibabel.io_orientation(affine)[:, 0].tolist()
            return shape[stored.index(axis)]
    except Bad:
        raise
    except Exception as error:
        raise Bad(f"can't be read as a NIfTI volume: {words_of(error)}") from None


def _shape(head: bytes) -> tuple[tuple[int, ...], int]:
    """The shape of a NIfTI volume and its total size in bytes, from the first bytes of the unpacked file."""
    nibabel = need_nibabel()
    kind = nibabel.Nifti2Header if _is_second(head) else nibabel.Nifti1Header
    header = kind.from_fileobj(io.BytesIO(head), check=True)
    shape = tuple(int(side) for side in header.get_data_shape())
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    words = " x ".join(map(str, shape))
    if len(shape) != 3 or min(shape) < 1:
        raise Bad(f"has shape {words}: only volumes of three dimensions can be read")
    if max(shape) > MAX_SIDE or math.prod(shape) > MAX_VOXELS:
        raise Bad(f"has shape {words}: more than {MAX_VOXELS:,} voxels, or {MAX_SIDE:,} along an axis, are refused")
    size = max(0, int(header.get_data_offset())) + math.prod(shape) * header.get_data_dtype().itemsize
    if size > MAX_VOLUME:
        raise Bad(f"has shape {words}: volumes over {MAX_VOLUME >> 20} MiB are refused")
    return shape, size


def _is_second(head: bytes) -> bool:
    """Whether a file begins like one of version 2."""
    return head[:4] in (b"\x1c\x02\0\0", b"\0\0\x02\x1c")


@contextmanager
def _silence() -> Iterator[None]:
    """No word of nibabel's on headers that it mends, and no warning of numpy's on odd numbers in them."""
    logger = need_nibabel().imageglobals.logger
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


@contextmanager
def _stream(payload: bytes | str) -> Iterator[Any]:
    """The unpacked content, to be read piece by piece."""
    with io.BytesIO(payload) if isinstance(payload, bytes) else intake.regular(payload) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield gzip.GzipFile(fileobj=file) if packed else file


@lru_cache(maxsize=1)
def _volume(payload: bytes | str, window: tuple[float, float] | None, mark: tuple[int, ...]) -> np.ndarray:
    """A volume in the closest canonical orientation, float32 in [0, 1]; another `mark` is another file."""
    nibabel = need_nibabel()
    with _stream(payload) as stream:
        head = stream.read(HEADER)
        _, size = _shape(head)
        packed = len(payload) if isinstance(payload, bytes) else os.stat(payload).st_size
        if size > MAX_RATIO * packed + MAX_SMALL:
            raise Bad(f"unpacks to {size:,} bytes: more than {MAX_RATIO} times its size are refused")
        content = head + stream.read(max(0, size - len(head)))
    kind = nibabel.Nifti2Image if _is_second(head) else nibabel.Nifti1Image
    image = nibabel.as_closest_canonical(kind.from_bytes(content))
    values = np.array(image.dataobj, dtype=np.float32)
    values = values.reshape(values.shape[:3])
    if not np.isfinite(values).all():
        raise Bad("holds NaN or infinite intensities")
    low, high = window if window is not None else np.percentile(values, [0.5, 99.5])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    for plane in values:
        # One by one: the whole volume would take several times its memory.
        plane[:] = ((plane - low) / max(high - low, 1e-12)).clip(0, 1)
    return values


def _sample(payload: bytes | str, number: int | None, prep: Prep) -> Decoded:
    """A volume (1, d, h, w), or one of its slices (1, h, w), float32 in [0, 1]."""
    status = os.stat(payload) if isinstance(payload, str) else None
    mark = () if status is None else (status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    with _silence():
        values = _volume(payload, prep.own.window, mark)
    found = " x ".join(map(str, values.shape))
    if number is not None:
        # Rows from the top: canonical axes point to the right, to the front and up.
        plane = np.take(values, number, axis=prep.own.axis or 0).T[::-1]
        if prep.size:
            left, top, right, bottom = centre(plane.shape[1], plane.shape[0])
            plane = resize_float(plane[top:bottom, left:right], prep.size, prep.size)
        return Decoded(np.ascontiguousarray(plane[None], dtype=np.float32), found, "slice")
    if prep.size:
        side = prep.size
        values = np.stack([resize_float(plane, side, side) for plane in values])
        values = np.stack([resize_float(values[:, i], side, side) for i in range(side)], axis=1)
    return Decoded(np.ascontiguousarray(values[None].clip(0, 1)), found, "volume")


def need_nibabel() -> Any:
    """The library nibabel, or an InputError that says how to install it."""
    try:
        import nibabel
    except ImportError:
        raise InputError("NIfTI volumes need nibabel: pip install 'neurosql-torch[medical]'") from None
    return nibabel


def _record(prep: Prep) -> dict[str, Any]:
    return {"axis": prep.own.axis, "window": prep.own.window or "0.5 to 99.5 percent"}


DECODER = Decoder(
    "nifti", "a NIfTI volume", _sample, NiftiSettings, _record, max_bytes=MAX_VOLUME, seconds=SECONDS, memory=MEMORY
)
