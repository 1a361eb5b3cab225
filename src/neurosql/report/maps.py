"""The map of a run, twice: the training images that have their codes at each place, and what the model makes there.

Both pictures have the same grid, the codes' own quantiles along two axes, so that equal steps hold equal mass and a
place in one is the same place in the other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from neurosql.fitted import Run
from neurosql.report.canvas import colormaps, printable
from neurosql.report.sheet import INK, drawn, font_path, save, tiled

MAP_SIDE = 16
CELL = 63
"""Pixels of a training image on the map, with its frame."""
FRAME = 3
MOST_COLOURS = 10
LEGEND = 34
LONGEST = 200
"""Characters of a name that may be drawn; finding out how many there is room for takes a while."""


def plane(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Where the training images lie in the plane (n, 2), and the points that a map of it has to cover (m, 2).

    Codes of two dimensions lie in a plane. Of longer ones, the map has the first two principal components; codes of
    one dimension lie on its first axis.
    """
    codes, spanned = (z.cpu().double().numpy() for z in (run.method.codes, run.method.spanned()))
    if codes.shape[1] == 1:
        codes, spanned = (np.column_stack([z[:, 0], np.zeros(len(z))]) for z in (codes, spanned))
    if codes.shape[1] > 2:
        mean, axes = main_axes(codes)
        codes = spanned = (codes - mean) @ axes.T
    return codes, spanned


def main_axes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (d,) of codes (n, d) and their first two principal directions (2, d), whose signs are settled."""
    mean = codes.mean(0)
    axes = np.linalg.svd(codes - mean, full_matrices=False)[2][:2]
    axes *= np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None]
    return mean, axes


def grid(spanned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of points (m, 2) in the middle of each column, from left to right, and of each row, from the top."""
    shares = (np.arange(MAP_SIDE) + 0.5) / MAP_SIDE
    across, up = (np.quantile(values, shares) for values in spanned.T)
    return across, up[::-1]


def latent_map(run: Run) -> np.ndarray:
    """Decoded images over the plane, row by row; blank where no samples come from, as the sea is on a map.

    A class-conditional model has one row per class, and z_1 along it; a model of one dimension has a single row. Where
    codes are longer than two, a plane through them passes by most samples, so that each place has the decoded image of
    a training code.
    """
    spanned = run.method.spanned().cpu().numpy()
    middle, dim = np.median(spanned, axis=0), spanned.shape[1]
    across, down = grid(plane(run)[1])
    classes = run.method.classes
    if classes:
        codes = np.tile(middle, (classes * MAP_SIDE, 1))
        codes[:, 0] = np.tile(np.quantile(spanned[:, 0], (np.arange(MAP_SIDE) + 0.5) / MAP_SIDE), classes)
        return run.decode(codes, np.repeat(np.arange(classes), MAP_SIDE))
    if dim > 2:
        places = chosen(run).ravel()
        shown = np.ones((len(places), *run.data.shape), np.float32)
        shown[places >= 0] = run.decode(run.method.codes.cpu().numpy()[places[places >= 0]])
        return shown
    rows = MAP_SIDE if dim == 2 else 1
    codes = np.column_stack([np.tile(across, rows), np.repeat(down[:rows], MAP_SIDE)])[:, :dim]
    decoded = run.decode(codes)
    decoded[~run.method.reaches(torch.from_numpy(codes)).cpu().numpy()] = 1.0
    return decoded


def map_caption(run: Run) -> str:
    """What the map of a run shows."""
    dim = run.settings.generator.dim
    if run.method.classes:
        return "What the model makes of each class, as the first number of the code goes from low to high."
    if dim == 1:
        return "What the model makes of each place: the code, a single number, goes from low to high."
    sea = "" if bool(run.method.reaches(run.method.spanned()).all()) else " It makes no samples where the map is blank."
    return f"What the model makes of each place.{sea if dim == 2 else ''}"


def own_caption(run: Run) -> str:
    """What the picture of the training images shows."""
    words = "Your images, each where the model has placed it: images that it finds similar lie side by side."
    if run.settings.generator.dim > 2:
        words += f" The map has the two main directions of {run.settings.generator.dim}."
    return words + (" The frame shows the class." if _coloured(run) else "")


def has_places(run: Run) -> bool:
    """Whether training images can be shown at their places: they are pictures with a plane that all classes share."""
    return run.has_codes and run.data.modality.is_picture and run.settings.generator.dim > 1 and not run.method.classes


def chosen(run: Run) -> np.ndarray:
    """The training image of each place of the map (rows, columns): that with the nearest code; -1 where none is."""
    points, spanned = plane(run)
    across, down = grid(spanned)
    found = np.full((MAP_SIDE, MAP_SIDE), -1)
    # Borders are half-way between the middles, so that every code belongs to one place.
    column = np.searchsorted((across[1:] + across[:-1]) / 2, points[:, 0])
    row = MAP_SIDE - 1 - np.searchsorted(((down[1:] + down[:-1]) / 2)[::-1], points[:, 1])
    far = (points[:, 0] - across[column]) ** 2 + (points[:, 1] - down[row]) ** 2
    # The nearest comes last and stays.
    for i in np.argsort(-far, kind="stable"):
        found[row[i], column[i]] = i
    return found


def _coloured(run: Run) -> bool:
    return run.labels is not None and len(run.like.classes) <= MOST_COLOURS


def own_images(run: Run, x: np.ndarray, path: Path) -> None:
    """The training images x (n, c, h, w) at their places, framed in the colour of their class if there are few."""
    places = chosen(run)
    coloured = _coloured(run)
    colours = [tuple(int(255 * part) for part in colormaps["tab10"](i)[:3]) for i in range(MOST_COLOURS)]
    below = LEGEND if coloured else 0
    picture = Image.new("RGB", (places.shape[1] * CELL, places.shape[0] * CELL + below), "white")
    pen = ImageDraw.Draw(picture)
    side = CELL - 1 - 2 * FRAME
    for (row, column), i in np.ndenumerate(places):
        if i < 0:
            continue
        left, top = column * CELL, row * CELL
        if coloured and run.labels is not None:
            pen.rectangle((left, top, left + CELL - 2, top + CELL - 2), colours[int(run.labels[i])])
        image = drawn(x[i])
        factor = side / max(image.size)
        size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
        shown = image.resize(size, Image.Resampling.BICUBIC if factor < 1 else Image.Resampling.NEAREST)
        picture.paste(shown, (left + (CELL - 1 - size[0]) // 2, top + (CELL - 1 - size[1]) // 2))
    if coloured:
        _legend(pen, run.like.classes, colours, places.shape[0] * CELL, picture.width)
    save(picture, path, optimize=True)


def _legend(
    pen: ImageDraw.ImageDraw, classes: tuple[str, ...], colours: list[tuple[int, ...]], top: int, width: int
) -> None:
    """Names of the classes in their colours, in one line of equal columns."""
    step = width // len(classes)
    font = ImageFont.truetype(font_path(), 20)
    for number, name in enumerate(classes):
        left = number * step
        pen.rectangle((left + 2, top + 8, left + 20, top + 26), colours[number])
        pen.text((left + 26, top + 5), fitted(name, font, step - 30), INK, font)


def strips(images: np.ndarray, names: list[str], path: Path, columns: int, pixels: int = 640) -> None:
    """Images (len(names) * columns, c, h, w), one row per name, with the names on the left."""
    sheet = Image.fromarray(tiled(images, columns))
    factor = max(1, round(pixels / sheet.width))
    sheet = sheet.resize((sheet.width * factor, sheet.height * factor), Image.Resampling.NEAREST)
    step = sheet.height // len(names)
    font = ImageFont.truetype(font_path(), max(12, min(26, step // 2)))
    texts = [fitted(name, font, pixels // 3) for name in names]
    left = round(max(font.getlength(text) for text in texts)) + 16
    picture = Image.new("RGB", (left + sheet.width, sheet.height), "white")
    picture.paste(sheet, (left, 0))
    pen = ImageDraw.Draw(picture)
    for number, text in enumerate(texts):
        pen.text((left - 8, (number + 0.5) * step), text, INK, font, anchor="rm")
    save(picture, path)


def fitted(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """The text, shortened until it is as wide as there is room."""
    text = printable(text[:LONGEST])
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"
