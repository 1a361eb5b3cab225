"""What goes over the wire: JSON requests within limits, and answers of JSON with arrays behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from neurosql.errors import InputError

ALIGNED = 8
TYPES = {"float32": "f4", "int32": "i4", "uint8": "u1"}


def packed(plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray | None]) -> bytes:
    """Plain values and arrays as bytes, which remote.js takes apart.

    They are the length of the head (4 bytes, little endian), the head (JSON) and the arrays, each at a multiple of 8.
    """
    there = {name: np.ascontiguousarray(values) for name, values in arrays.items() if values is not None}
    heads, place = {}, 0
    for name, values in there.items():
        heads[name] = {"type": TYPES[values.dtype.name], "shape": list(values.shape), "at": place}
        place = _aligned(place + values.nbytes)
    head = json.dumps({"plain": dict(plain), "arrays": heads}, allow_nan=False).encode()
    head += b" " * (_aligned(4 + len(head)) - 4 - len(head))
    parts = [len(head).to_bytes(4, "little"), head]
    for values in there.values():
        parts += [
            values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes(),
            b"\0" * (-values.nbytes % ALIGNED),
        ]
    return b"".join(parts)


def _aligned(place: int) -> int:
    return place + -place % ALIGNED


def asked(body: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("the request is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("the request must be a JSON object")
    return found


def whole(found: Mapping[str, Any], name: str, least: int, most: int, default: int | None = None) -> int:
    """A whole number of a request."""
    value = found.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} must be a whole number from {least} to {most}, got {str(value)[:40]}")
    return value


def maybe_whole(found: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    """A whole number of a request, or None if it has none."""
    return None if found.get(name) is None else whole(found, name, least, most)


def numbers(found: Mapping[str, Any], name: str, columns: int) -> np.ndarray:
    """Rows of finite numbers of a request: (n, columns) float32."""
    try:
        # Numbers beyond float32 become infinite, and are refused with these.
        with np.errstate(over="ignore"):
            values = np.array(found.get(name), np.float64).astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be rows of {columns} numbers") from None
    if values.ndim != 2 or values.shape[1] != columns or not np.isfinite(values).all():
        raise InputError(f"{name} must be rows of {columns} finite numbers")
    return values


def indices(found: Mapping[str, Any], name: str, most: int) -> np.ndarray | None:
    """A list of at least one whole number of a request, each below `most`: (n,) int64; None if it has none."""
    values = found.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or not values or not all(type(v) is int and 0 <= v < most for v in values):
        raise InputError(f"{name} must be whole numbers from 0 to {most - 1}")
    return np.array(values, np.int64)
