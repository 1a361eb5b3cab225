"""From the bytes of one file to one array: pictures, NIfTI volumes and their slices, and audio.

Everything here runs on files from strangers. A decoder raises whatever it likes; `decode` turns that into `Bad`, with
a sentence. Sizes are checked before anything is decoded, so that memory stays bounded.
"""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from neurosql.data.tree import page_in, words_of
from neurosql.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".pgm", ".ppm")
# Only these, so far as Pillow was built with them: some of its other decoders start programs.
_PLUGINS = ("Jpeg", "Mpo", "Png", "Bmp", "Gif", "Ppm", "Tiff", "WebP")
for _plugin in _PLUGINS:
    import_module(f"PIL.{_plugin}ImagePlugin")
FORMATS = tuple(name.upper() for name in _PLUGINS if name.upper() in Image.OPEN)
MAX_PIXELS = 2**26
MAX_FILE = 2**28
MAX_VOLUME = 2**30
HEADER = 540
DECIBELS = 80.0


@dataclass(frozen=True)
class Prep:
    """All that decides how a file becomes an array."""

    decoder: str = "image"
    size: int | None = None
    channels: str = "auto"
    axis: int | None = None
    window: tuple[float, float] | None = None
    audio: str = "log-mel"
    seconds: float = 1.0
    rate: int | None = None


@dataclass(frozen=True)
class Decoded:
    """One sample, channels first: uint8, or float32 in [0, 1]."""

    array: np.ndarray
    size: str
    """As the file has it: width x height, or its like."""
    mode: str
    remark: str = ""
    """What is odd about the file, though it can be read."""


class Bad(Exception):
    """The file can't be read: one sentence that begins after its name."""


@contextmanager
def quietly() -> Iterator[None]:
    """Decoders warn of what is odd in a file on standard error: too large pictures are errors, the rest is nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode(payload: bytes | str, slices: list[int | None], prep: Prep) -> list[Decoded | Bad]:
    """The samples of one file, given as its bytes or its path."""
    try:
        return [DECODERS[prep.decoder](payload, number, prep) for number in slices]
    except Bad as bad:
        return [bad] * len(slices)
    except MemoryError:
        return [Bad("needs more memory than there is")] * len(slices)
    except InputError as error:
        raise error
    except Exception as error:
        words = _page(payload) or words_of(error)
        return [Bad(f"can't be read as {_KINDS[prep.decoder]}: {words}")] * len(slices)


def _page(payload: bytes | str) -> str | None:
    if isinstance(payload, bytes):
        return page_in(payload[:256])
    try:
        with open(payload, "rb") as file:
            return page_in(file.read(256))
    except OSError:
        return None


def picture(payload: bytes | str, _: int | None, prep: Prep) -> Decoded:
    """A picture as uint8, (1, h, w) where it is grey and (3, h, w) otherwise."""
    with Image.open(io.BytesIO(payload) if isinstance(payload, bytes) else payload, formats=FORMATS) as opened:
        width, height = opened.size
        if width * height > MAX_PIXELS:
            raise Bad(f"has {width} x {height} pixels: more than {MAX_PIXELS:,} are refused")
        frames = getattr(opened, "n_frames", 1) if opened.format in ("GIF", "TIFF", "PNG", "WEBP") else 1
        if opened.format == "TIFF" and frames > 1:
            raise Bad(f"is a stack of {frames} pages: save it as a .npy array, or each page as a file")
        remark = f"animated, only the first of {frames} frames is used" if frames > 1 else ""
        found, mode = f"{width} x {height}", opened.mode
        if prep.size and opened.format == "JPEG":
            # The decoder can halve a JPEG as it goes; twice the wanted size leaves the antialiasing to `resize`.
            opened.draft(None, (2 * prep.size, 2 * prep.size))
        image = ImageOps.exif_transpose(opened) if "exif" in opened.info else opened
        image = _plain(image)
        if prep.channels == "grey" and image.mode != "L":
            image = image.convert("L")
        if prep.size:
            image = image.crop(centre(*image.size)).resize((prep.size, prep.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[None]
    elif prep.channels == "auto" and _is_grey(pixels):
        # Grey pictures are often saved as colour: one channel says the same.
        pixels = pixels[None, ..., 0]
    else:
        pixels = pixels.transpose(2, 0, 1)
    if prep.channels == "colour" and len(pixels) == 1:
        pixels = np.repeat(pixels, 3, axis=0)
    return Decoded(np.ascontiguousarray(pixels), found, mode, remark)


def centre(width: int, height: int) -> tuple[int, int, int, int]:
    """The largest square in the middle: left, top, right, bottom."""
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def _plain(image: Image.Image) -> Image.Image:
    """The picture in mode L or RGB."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.mode.startswith("I"):
        # Sixteen bits: Pillow's own conversion would cut the values off at 255.
        return Image.fromarray((np.asarray(image).astype(np.int64).clip(0, 65535) // 257).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers, save them as .npy instead")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layered = image.convert("RGBA")
        if layered.getchannel("A").getextrema() != (255, 255):
            # What a transparent pixel hides is arbitrary: show the picture as on a white page.
            layered = Image.alpha_composite(Image.new("RGBA", layered.size, "white"), layered)
        return layered.convert("RGB")
    return image.convert("RGB")


def _is_grey(pixels: np.ndarray) -> bool:
    middle = pixels[len(pixels) // 2]
    if (middle[:, 0] != middle[:, 1]).any():
        return False
    return bool((pixels[..., :1] == pixels[..., 1:]).all())


def resize_float(plane: np.ndarray, height: int, width: int) -> np.ndarray:
    """A float plane (h, w) at another size, antialiased."""
    image = Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))


def volume_shape(head: bytes) -> tuple[tuple[int, ...], int]:
    """The shape of a NIfTI volume and its bytes in all, from the first bytes of the (unpacked) file."""
    nibabel = need_nibabel()
    kind = nibabel.Nifti2Header if head[:4] in (b"\x1c\x02\0\0", b"\0\0\x02\x1c") else nibabel.Nifti1Header
    header = kind.from_fileobj(io.BytesIO(head), check=True)
    shape = tuple(int(side) for side in header.get_data_shape())
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    if len(shape) != 3 or min(shape) < 1:
        raise Bad(f"has shape {' x '.join(map(str, shape))}: volumes of three dimensions are read")
    size = int(header.get_data_offset()) + int(np.prod(shape, dtype=object)) * header.get_data_dtype().itemsize
    if size > MAX_VOLUME:
        raise Bad(f"has shape {' x '.join(map(str, shape))}: volumes over {MAX_VOLUME >> 20} MiB are refused")
    return shape, size


@contextmanager
def nifti_stream(payload: bytes | str) -> Iterator[Any]:
    """The unpacked content, to be read piece by piece."""
    with io.BytesIO(payload) if isinstance(payload, bytes) else open(payload, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield gzip.GzipFile(fileobj=file) if packed else file


@lru_cache(maxsize=1)
def _volume(payload: bytes | str, window: tuple[float, float] | None) -> np.ndarray:
    """A volume in the closest canonical orientation, float32 in [0, 1]."""
    nibabel = need_nibabel()
    with nifti_stream(payload) as stream:
        head = stream.read(HEADER)
        _, size = volume_shape(head)
        content = head + stream.read(max(0, size - len(head)))
    kind = nibabel.Nifti2Image if head[:4] in (b"\x1c\x02\0\0", b"\0\0\x02\x1c") else nibabel.Nifti1Image
    image = nibabel.as_closest_canonical(kind.from_bytes(content))
    values = np.asarray(image.dataobj, dtype=np.float32)
    values = values.reshape(values.shape[:3])
    if not np.isfinite(values).all():
        raise Bad("holds NaN or infinite intensities")
    low, high = window if window is not None else np.percentile(values, [0.5, 99.5])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return ((values - low) / max(high - low, 1e-12)).clip(0, 1).astype(np.float32)


def nifti(payload: bytes | str, number: int | None, prep: Prep) -> Decoded:
    """A volume (1, d, h, w), or one of its slices (1, h, w), float32 in [0, 1]."""
    values = _volume(payload, prep.window)
    found = " x ".join(map(str, values.shape))
    if number is not None:
        # Rows from the top: canonical axes point to the right, to the front and up.
        plane = np.take(values, number, axis=prep.axis or 0).T[::-1]
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
    try:
        import nibabel
    except ImportError:
        raise InputError("NIfTI volumes need nibabel: pip install 'neurosql-torch[medical]'") from None
    return nibabel


def audio(payload: bytes | str, _: int | None, prep: Prep) -> Decoded:
    """A clip as a signal (1, length), or as a picture of its log-mel spectrum (1, mels, frames), in [0, 1]."""
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    content = payload if isinstance(payload, bytes) else Path(payload).read_bytes()
    rate, samples = wavfile.read(io.BytesIO(content))
    rate = int(rate)
    if not 100 <= rate <= 1_000_000:
        raise Bad(f"has a sampling rate of {rate}")
    values = np.asarray(samples)
    if values.size == 0:
        raise Bad("holds no sound")
    if values.dtype.kind == "f":
        signal = values.astype(np.float32).clip(-1, 1)
    elif values.dtype == np.uint8:
        signal = (values.astype(np.float32) - 128) / 128
    else:
        signal = values.astype(np.float32) / float(np.iinfo(values.dtype).max)
    if not np.isfinite(signal).all():
        raise Bad("holds NaN or infinite values")
    if signal.ndim == 2:
        signal = signal.mean(1)
    found = f"{len(signal) / rate:.2f} s at {rate} Hz"
    # Cut before resampling: only what is kept costs time and memory.
    signal = _middle(signal, round(prep.seconds * rate))
    if prep.rate and prep.rate != rate:
        signal = resample_poly(signal, prep.rate, rate).astype(np.float32)
        signal, rate = _middle(signal, round(prep.seconds * prep.rate)), prep.rate
    if prep.audio == "waveform":
        array = (signal[None].clip(-1, 1) + 1) / 2
    else:
        array = log_mel(signal, rate, prep.size or 64)[None]
    return Decoded(np.ascontiguousarray(array, dtype=np.float32), found, f"{rate} Hz")


def _middle(signal: np.ndarray, length: int) -> np.ndarray:
    if len(signal) < length:
        before = (length - len(signal)) // 2
        return np.pad(signal, (before, length - len(signal) - before))
    start = (len(signal) - length) // 2
    return signal[start : start + length]


def log_mel(signal: np.ndarray, rate: int, side: int) -> np.ndarray:
    """A picture (side, side): mel bands from high to low, time from left to right; 0 is 80 dB below the loudest."""
    window = max(64, min(2 ** round(np.log2(max(rate * 0.03, 2))), len(signal)))
    hop = max(1, (len(signal) - window) // max(1, side - 1)) if len(signal) > window else 1
    padded = np.pad(signal, (0, max(0, (side - 1) * hop + window - len(signal))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[: (side - 1) * hop + 1 : hop]
    power = np.abs(np.fft.rfft(frames * np.hanning(window), axis=1)) ** 2
    mel_top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, mel_top, side + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(window, 1 / rate)
    # Triangles at least as wide as one bin, so that no low band is empty.
    bin_width = frequencies[1]
    low, mid, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (frequencies - np.minimum(low, mid - bin_width)) / np.maximum(mid - low, bin_width)
    falling = (np.maximum(high, mid + bin_width) - frequencies) / np.maximum(high - mid, bin_width)
    bands = np.clip(np.minimum(rising, falling), 0, None)
    bands /= np.maximum(bands.sum(1, keepdims=True), 1e-12)
    decibels = 10 * np.log10(np.maximum(power @ bands.T, 1e-10))
    picture = 1 + (decibels - max(decibels.max(), DECIBELS - 100)) / DECIBELS
    return picture.T[::-1].clip(0, 1).astype(np.float32)


DECODERS = {"image": picture, "nifti": nifti, "audio": audio}
_KINDS = {"image": "an image", "nifti": "a NIfTI volume", "audio": "a WAV file"}
