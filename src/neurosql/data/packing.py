"""Arrays that a reader has found, as JSON and bytes, for another process. Nothing is pickled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from neurosql.data import store
from neurosql.data.listing import Arrays
from neurosql.errors import InputError

PLAIN = ("layout", "classes", "columns", "notes", "skipped")
ARRAYS = ("values", "labels", "subjects", "parts")


def packed(found: Arrays) -> tuple[dict[str, Any], list[memoryview]]:
    """A description in plain values, and the bytes of the arrays."""
    content: list[memoryview] = []
    head: dict[str, Any] = {name: getattr(found, name) for name in PLAIN}
    for name in ARRAYS:
        head[name] = _described(getattr(found, name), content)
    return head, content


def unpacked(head: dict[str, Any], content: memoryview, path: Path) -> Arrays:
    """What was `packed`; arrays that stayed in a file are in that at the path. An InputError if it is none."""
    try:
        arrays, start = {}, 0
        for name in ARRAYS:
            arrays[name], start = _restored(head[name], content, start, path)
        return Arrays(
            **arrays,
            layout=head["layout"],
            classes=None if head["classes"] is None else tuple(map(str, head["classes"])),
            columns=tuple(map(str, head["columns"])),
            notes=list(map(str, head["notes"])),
            skipped=[(str(name), str(reason)) for name, reason in head["skipped"]],
        )
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{path} can't be read: the process that reads it answers with {error!r}") from None


def _described(array: Any, content: list[memoryview]) -> Any:
    if array is None:
        return None
    if isinstance(array, store.OnDisk):
        kept = {"start": array.start, "by_columns": array.by_columns, "mapped": array.mapped}
        return kept | {"shape": array.shape, "type": np.lib.format.dtype_to_descr(array.dtype)}
    array = np.asarray(array)
    if array.dtype == object:
        return {"list": [_plain(value) for value in array.tolist()]}
    # Sums over rows depend on the order in memory, so it is kept.
    by_columns = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    if array.size:
        bytes_of = np.ascontiguousarray(array.T if by_columns else array).reshape(-1).view(np.uint8)
        content.append(bytes_of.data)
    return {"shape": array.shape, "type": np.lib.format.dtype_to_descr(array.dtype), "by_columns": by_columns}


def _restored(said: Any, content: memoryview, start: int, path: Path) -> tuple[Any, int]:
    if said is None:
        return None, start
    if "list" in said:
        values = np.empty(len(said["list"]), object)
        values[:] = [_plain(value) for value in said["list"]]
        return values, start
    shape, dtype, by_columns = tuple(map(int, said["shape"])), _type(said["type"]), bool(said["by_columns"])
    if dtype.hasobject or not dtype.itemsize or any(side < 0 for side in shape):
        raise ValueError(f"shape {shape} of {dtype}")
    if "start" in said:
        return store.OnDisk(path, shape, dtype, int(said["start"]), by_columns, bool(said["mapped"])), start
    size = math.prod(shape) * dtype.itemsize
    if start + size > len(content):
        raise ValueError(f"shape {shape} of {dtype} in {len(content):,} bytes")
    if not size:
        return np.empty(shape, dtype), start
    flat = np.frombuffer(content[start : start + size], np.uint8).view(dtype)
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape), start + size


def _plain(value: Any) -> Any:
    """A value of a column of objects; what is neither a number nor a word becomes one."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _type(said: Any) -> np.dtype[Any]:
    """The type that `dtype_to_descr` described, once JSON has made lists of its tuples."""
    if isinstance(said, str):
        return np.dtype(said)
    fields = [(str(name), _type(kind), tuple(map(int, *shape)) if shape else ()) for name, kind, *shape in said]
    return np.dtype(fields)
