"""What all decoders share: from the bytes of one file to one array.

Files may be damaged or hostile. A decoder may raise anything; `decode` turns it into `Bad`, with a sentence for the
user. Sizes are checked before anything is decoded, so that memory stays bounded.

The processes that decode import this file and that of their decoder: keep the imports of both few.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from PIL import Image

from neurosql.data.archive import words_of
from neurosql.data.tree import page, page_in
from neurosql.errors import InputError
from neurosql.intake import odd

MAX_FILE = 2**28
SECONDS = 60
MEMORY = 3 * 2**30


@dataclass(frozen=True)
class Prep:
    """Everything that decides how a file becomes an array."""

    decoder: str
    """A `Decoder`, as `module:name`."""
    size: int | None = None
    """Pixels per side, if samples are to be resized."""
    channels: str = "auto"
    """Channels of images: auto, grey or colour."""
    own: Any = None
    """The settings that the decoder asks for."""

    def to_json(self) -> str:
        """The settings as JSON, for a process that decodes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Prep:
        """The `Prep` that `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        own = values.pop("own")
        if own is None:
            return cls(**values)
        kind = decoder_of(values["decoder"]).settings
        assert kind is not None
        return cls(**values, own=kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()}))


@dataclass(frozen=True)
class Decoded:
    """One sample (c, *spatial): uint8, or float32 in [0, 1]."""

    array: np.ndarray
    size: str
    """The file's own size: width x height, or whatever describes this kind of file."""
    mode: str
    """The file's own mode: the mode of an image, the rate of a sound."""
    remark: str = ""
    """What is odd about a file that can be read."""


class Bad(Exception):
    """The file can't be read. The message is a sentence that begins after the file's name."""


def _nothing(prep: Prep) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Decoder:
    """How the files of a reader become samples, one file at a time."""

    name: str
    """Its name in `config.json`."""
    what: str
    """What it decodes, as in "can't be read as a WAV file"."""
    sample: Callable[[bytes | str, int | None, Prep], Decoded]
    """Returns one sample of a file, given as its bytes or its path: the slice of that number, or the whole file."""
    settings: type[Any] | None = None
    """The class of the reader's settings, if it needs them; they are in `Prep.own`."""
    record: Callable[[Prep], dict[str, Any]] = _nothing
    """Returns what `config.json` records of the preparation, besides size and crop."""
    cure: str = "--image-size"
    """The flag that brings files of different sizes to one size."""
    max_bytes: int = MAX_FILE
    """Larger files are refused."""
    seconds: float = SECONDS
    """A file that takes longer is refused."""
    memory: int = MEMORY
    """A file that takes more bytes of memory is refused."""
    version: int = 1
    """Increase it when the same file gives a different array: cached files are then decoded again."""


@lru_cache
def decoder_of(path: str) -> Decoder:
    """The decoder at `module:name`."""
    try:
        found = resolve_name(path)
    except Exception as error:  # somebody else's code may raise anything
        raise InputError(f"decoder {path} can't be loaded: {type(error).__name__}: {words_of(error)}") from error
    if not isinstance(found, Decoder):
        raise InputError(f"decoder {path} must be a Decoder, got {type(found).__name__}")
    return found


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the warnings of decoders. Pictures that are too large are still errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode(payload: bytes | str, slices: list[int | None], prep: Prep) -> list[Decoded | Bad]:
    """The samples of one file, given as its bytes or its path."""
    decoder = decoder_of(prep.decoder)
    try:
        if isinstance(payload, str) and (words := odd(os.stat(payload).st_mode)):
            raise Bad(f"is {words}, not a file that can be read")
        return [_checked(decoder.sample(payload, number, prep)) for number in slices]
    except Bad as bad:
        return [bad] * len(slices)
    except MemoryError:
        most = f"{decoder.memory >> 20:,} MiB"
        return [Bad(f"needs more memory than there is, or than the {most} that are allowed")] * len(slices)
    except InputError as error:
        raise error
    except Exception as error:
        words = _page(payload) or words_of(error)
        return [Bad(f"can't be read as {decoder.what}: {words}")] * len(slices)


def _checked(sample: Decoded) -> Decoded:
    """The sample, with a contiguous array. Raises `Bad` if the array can't be used."""
    array = sample.array
    if not 2 <= array.ndim <= 4 or 0 in array.shape or array.dtype not in (np.uint8, np.float32):
        shape = " x ".join(map(str, array.shape))
        raise Bad(f"gives an array of {array.dtype}, {shape}: it must be uint8 or float32, channels first")
    return sample if array.flags.c_contiguous else replace(sample, array=np.ascontiguousarray(array))


def _page(payload: bytes | str) -> str | None:
    if isinstance(payload, bytes):
        return page_in(payload[:256])
    return page(Path(payload))
