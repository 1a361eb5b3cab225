"""Pictures: one file is one image, grey or in colour."""

from __future__ import annotations

import io
from importlib import import_module

import numpy as np
from PIL import Image, ImageOps

from neurosql.data.decode import Bad, Decoded, Decoder, Prep

# Only these, if Pillow was built with them: some of its other decoders start programs.
_PLUGINS = ("Jpeg", "Mpo", "Png", "Bmp", "Gif", "Ppm", "Tiff", "WebP")
for _plugin in _PLUGINS:
    import_module(f"PIL.{_plugin}ImagePlugin")
FORMATS = tuple(name.upper() for name in _PLUGINS if name.upper() in Image.OPEN)
MAX_PIXELS = 2**26
TINY = 8
"""Pictures with fewer pixels per side hold next to nothing."""


def _picture(payload: bytes | str, _: int | None, prep: Prep) -> Decoded:
    """A picture as uint8, (1, h, w) if it is grey and (3, h, w) otherwise."""
    with Image.open(io.BytesIO(payload) if isinstance(payload, bytes) else payload, formats=FORMATS) as opened:
        width, height = opened.size
        if width * height > MAX_PIXELS:
            raise Bad(f"has {width} x {height} pixels: more than {MAX_PIXELS:,} are refused")
        frames = getattr(opened, "n_frames", 1) if opened.format in ("GIF", "TIFF", "PNG", "WEBP") else 1
        if opened.format == "TIFF" and frames > 1:
            raise Bad(f"is a stack of {frames} pages: save it as a .npy array, or each page as a file")
        remark = f"animated, only the first of {frames} frames is used" if frames > 1 else ""
        if min(width, height) < TINY:
            remark = f"tiny, {width} x {height} pixels"
        found, mode = f"{width} x {height}", opened.mode
        if prep.size and opened.format == "JPEG":
            # The decoder can halve a JPEG as it goes; twice the wanted size leaves the antialiasing to `resize`.
            opened.draft(None, (2 * prep.size, 2 * prep.size))
        image = ImageOps.exif_transpose(opened) if "exif" in opened.info else opened
        image = plain(image)
        if prep.channels == "grey" and image.mode != "L":
            image = image.convert("L")
        if prep.size:
            image = image.crop(centre(*image.size)).resize((prep.size, prep.size), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[None]
    elif prep.channels == "auto" and _is_grey(pixels):
        # Grey pictures are often saved as colour: one channel holds the same.
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


def plain(image: Image.Image) -> Image.Image:
    """A Pillow image in mode L or RGB."""
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
            # What a transparent pixel hides is arbitrary: put the picture on white.
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


DECODER = Decoder("image", "an image", _picture, record=lambda prep: {"channels": prep.channels})
