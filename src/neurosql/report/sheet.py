"""Images side by side: arrays in [0, 1] as pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from neurosql import files
from neurosql.report.canvas import get_data_path

SHEET_PIXELS = 640
INK = "#333333"


def drawn(image: np.ndarray) -> Image.Image:
    """An image (c, h, w) in [0, 1] as a picture."""
    return Image.fromarray(tiled(image[None], 1, gap=0))


def sheet(images: np.ndarray, path: Path, columns: int = 8, gap: int = 2, pixels: int = SHEET_PIXELS) -> None:
    """Images (n, c, h, w) in [0, 1] side by side, row by row, enlarged by a whole factor; grey if they are grey."""
    tiles = tiled(images, columns, gap)
    picture = Image.fromarray(tiles if images.shape[1] >= 3 else np.ascontiguousarray(tiles[..., 0]))
    factor = max(1, round(pixels / picture.width))
    save(picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST), path)


def save(picture: Image.Image, path: Path, optimize: bool = False) -> None:
    """Write a picture as a PNG file, whole or not at all."""
    content = io.BytesIO()
    picture.save(content, "PNG", optimize=optimize)
    files.replace(path, content.getvalue())


def tiled(images: np.ndarray, columns: int, gap: int = 2) -> np.ndarray:
    """Images (n, c, h, w) in [0, 1] side by side, row by row, as uint8 (height, width, 3)."""
    n, channels, height, width = images.shape
    columns = min(columns, n)
    rows = -(-n // columns)
    canvas = np.ones((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), np.float32)
    for i, image in enumerate(images):
        top, left = gap + i // columns * (height + gap), gap + i % columns * (width + gap)
        picture = np.moveaxis(image[:3] if channels >= 3 else np.repeat(image[:1], 3, 0), 0, -1)
        canvas[top : top + height, left : left + width] = picture
    return (canvas.clip(0, 1) * 255).round().astype(np.uint8)


def font_path() -> str:
    """The path of the font that comes with matplotlib."""
    return str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")


def interleave(first: np.ndarray, second: np.ndarray, columns: int) -> np.ndarray:
    """Rows of `columns` images, from `first` and `second` in turn."""
    rows = []
    for i in range(0, len(first), columns):
        rows += [first[i : i + columns], second[i : i + columns]]
    return np.concatenate(rows)
