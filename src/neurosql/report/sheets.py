"""Sheets of a bench: the samples and the latent planes of all contenders, side by side.

A run leaves arrays in its folder. If all contenders have left theirs, the sheet is drawn from them; otherwise, as in a
fresh clone, the page shows the sheet in pictures/.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from neurosql import files, intake
from neurosql.bench import rows
from neurosql.bench.declare import Experiment
from neurosql.bench.jobs import PICTURES, PLANE, SAMPLES
from neurosql.bench.sources import SOURCES
from neurosql.data.arrays import array, npz
from neurosql.errors import InputError
from neurosql.report.canvas import Figure, verbatim
from neurosql.report.pictures import draw_plane
from neurosql.report.sheet import font_path, tiled

ACROSS = 5
ENLARGED = 2
GAP, LINE = 12, 20
COLUMNS = 6
MAX_PICTURE = 2**26
"""Most bytes of a sheet."""
MAX_VALUES = 2**24
"""Most values of what a run leaves for the sheets."""
PNG = b"\x89PNG\r\n\x1a\n"

Draw = Callable[[dict[str, Path], str], bytes]


@dataclass(frozen=True)
class Sheet:
    """One picture of several contenders."""

    name: str
    caption: str
    png: bytes


def samples(experiment: Experiment, results: list[rows.Row], path: Path, jobs: Path) -> list[Sheet]:
    """One sheet of samples per data set and latent dimension; contenders without one are in all of them."""
    return _sheets(experiment, results, path, jobs, SAMPLES, "", contact)


def planes(experiment: Experiment, results: list[rows.Row], path: Path, jobs: Path) -> list[Sheet]:
    """One sheet of latent planes per data set."""
    flat = [row for row in results if row["latent_dim"] == 2]
    return _sheets(experiment, flat, path, jobs, PLANE, "plane-", plane_sheet)


def _sheets(
    experiment: Experiment, results: list[rows.Row], path: Path, jobs: Path, left: str, prefix: str, draw: Draw
) -> list[Sheet]:
    first = [row for row in results if int(row["seed"]) == 0]
    sizes = {data: len({row["pixels"] for row in first if row["data"] == data}) for data in {r["data"] for r in first}}
    found = []
    places = [(row["data"], row["pixels"], row["latent_dim"]) for row in first if row["latent_dim"] != ""]
    for data, pixels, dim in dict.fromkeys(places):
        here = [r for r in first if (r["data"], r["pixels"]) == (data, pixels) and r["latent_dim"] in (dim, "")]
        arrays = {str(r["arm"]): jobs / f"{r['config']}-{r['seed']}" / left for r in here}
        there = {arm: intake.inside(jobs, file) for arm, file in arrays.items() if file.is_file()}
        size = f"{pixels}px-" if sizes[data] > 1 else ""
        kept = path.parent / PICTURES / f"{path.stem}-{prefix}{data}-{size}{dim}.png"
        source = SOURCES.get(data)
        if there and (len(there) == len(arrays) or not kept.is_file()):
            png = draw(there, source.credit if source else "")
            # Samples of some data sets may be viewed but not shared: no file of them is kept.
            if source is None or source.samples_may_be_shared:
                files.replace(intake.inside(path.parent, kept), png)
        elif kept.is_file():
            png = intake.read(intake.inside(path.parent, kept), MAX_PICTURE)
            if not png.startswith(PNG):
                raise InputError(f"{kept} is no PNG: remove it")
        else:
            continue
        words = f"{data}{f', {pixels} pixels' if size else ''}, d = {dim}, seed 0"
        found.append(Sheet(kept.name, words, png))
    return found


def contact(named: dict[str, Path], credit: str) -> bytes:
    """Samples of each contender under its name, all enlarged alike, with the credit below."""
    tiles = {}
    for name, path in named.items():
        with npz(path) as left:
            images = array(left, "samples")
        if images.ndim != 4 or images.dtype != np.uint8 or not 0 < images.size <= MAX_VALUES:
            raise InputError(f"{path} holds no samples: remove it")
        tiles[name] = tiled(images.astype(np.float32) / 255, COLUMNS)
    across = min(len(tiles), ACROSS)
    height, width = (ENLARGED * max(tile.shape[i] for tile in tiles.values()) for i in (0, 1))
    down = -(-len(tiles) // across)
    size = (across * (width + GAP) + GAP, down * (height + LINE + GAP) + GAP + (LINE if credit else 0))
    picture = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.truetype(font_path(), 13)
    for number, (name, tile) in enumerate(tiles.items()):
        left_edge = GAP + number % across * (width + GAP)
        top = GAP + number // across * (height + LINE + GAP)
        pen.text((left_edge, top), name, "#333333", font)
        large = tile.repeat(ENLARGED, 0).repeat(ENLARGED, 1)
        picture.paste(Image.fromarray(large), (left_edge, top + LINE))
    if credit:
        pen.text((GAP, size[1] - LINE - GAP // 2), credit, "#333333", ImageFont.truetype(font_path(), 11))
    grey = picture.convert("L")
    content = io.BytesIO()
    same = np.array_equal(np.asarray(grey.convert("RGB")), np.asarray(picture))
    (grey if same else picture).save(content, "PNG", optimize=True)
    return content.getvalue()


def plane_sheet(named: dict[str, Path], credit: str) -> bytes:
    """Codes of each contender in the plane, coloured by label."""
    figure = Figure(figsize=(5 * len(named) + 0.8, 5.2), layout="constrained")
    panels = figure.subplots(1, len(named), squeeze=False).ravel()
    for axes, (name, path) in zip(panels, named.items()):
        with npz(path) as left:
            codes, classes = array(left, "codes"), tuple(map(str, left["classes"].ravel()))
            labels = left.get("labels", None)
        numbers = codes.dtype.kind == "f" and codes.ndim == 2 and codes.shape[1] == 2 and np.isfinite(codes).all()
        known = labels is None or (labels.dtype.kind in "iu" and labels.shape == (len(codes),))
        if not numbers or not known or not 0 < codes.size <= MAX_VALUES:
            raise InputError(f"{path} holds no codes: remove it")
        if labels is not None and not 0 <= labels.min() <= labels.max() < len(classes):
            raise InputError(f"{path} has labels without a class: remove it")
        draw_plane(axes, codes, labels, classes, legend=axes is panels[-1])
        axes.set_title(verbatim(name), fontsize=11)
    if credit:
        figure.supxlabel(credit, fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, dpi=90)
    return content.getvalue()
