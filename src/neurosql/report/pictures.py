"""The pictures of a run: samples, reconstructions, the latent plane, a map over it, and the curves of the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from neurosql.fitted import Run
from neurosql.metrics.memorisation import Memorisation
from neurosql.report.canvas import Figure, colormaps, get_data_path

SHEET = 64
MAP_SIDE = 20
SHEET_PIXELS = 640
INK = "#333333"


def captions(run: Run) -> dict[str, str]:
    """Every picture that a run may have, by file name, in the order of the page."""
    image = run.data.modality.is_picture
    found = {"samples.png": f"{SHEET} samples" if image else "samples over the training data"}
    if run.has_codes:
        found["reconstructions.png"] = "training data and their reconstructions"
        if image:
            found["reconstructions.png"] = "training images (odd rows), each above its reconstruction"
        found["latent.png"] = "the codes' first two dimensions" + (", coloured by label" * (run.labels is not None))
        if image:
            found["map.png"] = map_caption(run)
    found["closest.png"] = "the most suspicious samples (odd rows), each above its nearest training image"
    found["memorisation.png"] = "how close each sample is to the nearest training image and to the nearest held-out one"
    found["curves.png"] = "the run, epoch by epoch"
    return found


def draw_all(run: Run, x: np.ndarray, folder: Path, seed: int = 0) -> list[str]:
    """Draw the pictures of a run on its training samples x (n, *shape); returns file names."""
    image = run.data.modality.is_picture
    fresh = run.sample(SHEET if image else min(len(x), 2000), seed=seed)[0]
    shown = np.random.default_rng(seed).permutation(len(x))[:32]
    again = run.reconstruct() if run.has_codes else x
    draw: dict[str, Callable[[Path], None]] = {
        "samples.png": lambda p: sheet(fresh, p) if image else overlay(x, fresh, p),
        "reconstructions.png": lambda p: (
            sheet(interleave(x[shown], again[shown], 8), p) if image else overlay(x, again, p, "reconstructions")
        ),
        "latent.png": lambda p: latent_plane(run, p),
        "map.png": lambda p: sheet(latent_map(run), p, columns=MAP_SIDE, gap=0, pixels=1000),
        "curves.png": lambda p: curves(run.history, p),
    }
    drawn = [name for name in captions(run) if name in draw]
    for name in drawn:
        draw[name](folder / name)
    return drawn


def draw_copies(run: Run, samples: np.ndarray, train: np.ndarray, found: Memorisation, folder: Path) -> list[str]:
    """Draw the most suspicious samples above their nearest training images, and all distances; returns file names."""
    drawn = []
    if run.data.modality.is_picture:
        first = found.order[:24]
        sheet(interleave(samples[first], train[found.nearest[first]], 8), folder / "closest.png")
        drawn.append("closest.png")
    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    top = 1.05 * float(max(found.distances.max(), found.heldout_distances.max()))
    axes.plot([0, top], [0, top], color="#bbbbbb", lw=1, label="equally close to both")
    axes.plot([0, top], [0, found.threshold * top], color=INK, lw=1, ls="--", label="suspicious below this line")
    odd = found.ratios < found.threshold
    for chosen, colour in ((~odd, "#5b7fa6"), (odd, "#d1495b")):
        axes.scatter(found.heldout_distances[chosen], found.distances[chosen], s=6, c=colour, alpha=0.5, lw=0)
    axes.set(xlim=(0, top), ylim=(0, top), xlabel="loss to the nearest held-out image")
    axes.set_ylabel("loss to the nearest training image")
    axes.set_title(f"memorisation: {found.verdict}", color=INK, fontsize=11)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "memorisation.png", dpi=110)
    return [*drawn, "memorisation.png"]


def sheet(images: np.ndarray, path: Path, columns: int = 8, gap: int = 2, pixels: int = SHEET_PIXELS) -> None:
    """Images (n, c, h, w) in [0, 1] side by side, row by row, enlarged by a whole factor; grey if they are grey."""
    tiles = tiled(images, columns, gap)
    picture = Image.fromarray(tiles if images.shape[1] >= 3 else np.ascontiguousarray(tiles[..., 0]))
    factor = max(1, round(pixels / picture.width))
    picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST).save(path)


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


def overlay(x: np.ndarray, y: np.ndarray, path: Path, name: str = "samples") -> None:
    """Vectors: the first two columns of both sets; signals and volumes: their means and spread."""
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.add_subplot()
    if x.ndim == 2 and x.shape[1] > 1:
        axes.scatter(x[:, 0], x[:, 1], s=6, c="#bbbbbb", label="training data", linewidths=0)
        axes.scatter(y[:, 0], y[:, 1], s=6, c="#d1495b", label=name, linewidths=0, alpha=0.7)
        axes.set(xlabel="first column, standardised", ylabel="second column, standardised")
    elif x.ndim == 2:
        axes.hist(
            [x[:, 0], y[:, 0]],
            bins=40,
            color=["#bbbbbb", "#d1495b"],
            label=["training data", name],
            density=True,
        )
        axes.set(xlabel="value, standardised", ylabel="density")
    else:
        for values, colour, label in ((x, "#777777", "training data"), (y, "#d1495b", name)):
            flat = values.reshape(len(values), -1)
            at = np.arange(flat.shape[1])
            axes.plot(at, flat.mean(0), c=colour, label=label)
            axes.fill_between(at, *np.quantile(flat, [0.1, 0.9], axis=0), color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="position", ylabel="value")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def latent_plane(run: Run, path: Path) -> None:
    """The codes of the training samples, first two dimensions, coloured by label if there are labels."""
    codes = run.method.codes.cpu().numpy()
    plane = codes[:, :2] if codes.shape[1] > 1 else np.column_stack([codes[:, 0], np.zeros(len(codes))])
    if codes.shape[1] == 1:
        # One dimension: spread the points sideways so that they do not hide each other.
        plane[:, 1] = np.random.default_rng(0).uniform(-1, 1, len(codes))
    figure = Figure(figsize=(7.2, 6.4) if run.labels is not None else (6.4, 6.4), layout="constrained")
    axes = figure.add_subplot()
    draw_plane(axes, plane, run.labels, run.like.classes)
    axes.set(xlabel="$z_1$", ylabel="$z_2$" if codes.shape[1] > 1 else "")
    axes.set_title(f"{len(plane)} codes, dimension {codes.shape[1]}", color=INK, fontsize=11)
    if codes.shape[1] == 1:
        axes.set_yticks([])
    else:
        axes.set_aspect("equal")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def draw_plane(
    axes: Any, plane: np.ndarray, labels: np.ndarray | None, classes: tuple[str, ...], legend: bool = True
) -> None:
    """Codes (n, 2) as points, coloured by label if there are labels and not too many classes."""
    size = float(np.clip(30000 / len(plane), 4, 40))
    if labels is None or len(classes) > 20:
        axes.scatter(plane[:, 0], plane[:, 1], s=size, c="#30638e", linewidths=0, alpha=0.8)
        return
    colours = colormaps["tab10" if len(classes) <= 10 else "tab20"]
    for number, name in enumerate(classes):
        x, y = plane[labels == number].T
        axes.scatter(x, y, s=size, color=colours(number), label=name, linewidths=0, alpha=0.85)
    if legend:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, markerscale=2)


def latent_map(run: Run) -> np.ndarray:
    """Decoded images over the plane: the codes' own quantiles along each axis, so equal steps hold equal mass.

    A class-conditional model has one row per class, and z_1 along it.
    """
    codes_seen = run.method.spanned().cpu().numpy()
    shares = (np.arange(MAP_SIDE) + 0.5) / MAP_SIDE
    across = np.quantile(codes_seen[:, 0], shares)
    classes = run.method.classes
    if classes:
        codes = np.tile(np.median(codes_seen, axis=0), (classes * MAP_SIDE, 1))
        codes[:, 0] = np.tile(across, classes)
        return run.decode(codes, np.repeat(np.arange(classes), MAP_SIDE))
    # From the top of the picture down; one row if there is no second dimension.
    down = np.quantile(codes_seen[:, 1], shares[::-1]) if codes_seen.shape[1] > 1 else np.zeros(1)
    codes = np.tile(np.median(codes_seen, axis=0), (len(down) * MAP_SIDE, 1))
    codes[:, 0] = np.tile(across, len(down))
    if codes_seen.shape[1] > 1:
        codes[:, 1] = np.repeat(down, MAP_SIDE)
    decoded = run.decode(codes)
    # Where no samples come from, the map is blank, as the sea is on a map.
    decoded[~run.method.reaches(torch.from_numpy(codes)).cpu().numpy()] = 1.0
    return decoded


def map_caption(run: Run) -> str:
    """What the map of a run shows."""
    if run.method.classes:
        return "decoded images, one row per class, along the first latent dimension"
    rest = "" if run.settings.generator.dim <= 2 else ", the other dimensions at their median"
    sea = "" if bool(run.method.reaches(run.method.spanned()).all()) else "; blank where no samples come from"
    return f"decoded images over the plane of the first two latent dimensions{rest}{sea}"


def curves(history: list[dict[str, Any]], path: Path) -> None:
    """Loss, assignment cost and held-out loss; share of images that changed code; seconds in each part."""
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    loss, change, time = figure.subplots(1, 3)
    epochs = np.arange(1, len(history) + 1)

    def line(axes: Any, key: str, label: str, **style: Any) -> None:
        points = [(e, record[key]) for e, record in zip(epochs, history) if key in record]
        if points:
            axes.plot(*zip(*points), label=label, **style)

    line(loss, "loss", "training loss", c="#30638e")
    line(loss, "discriminator_loss", "discriminator's loss", c="#777777")
    line(loss, "cost", "assignment cost", c="#edae49", marker="o", ms=3)
    line(loss, "heldout_loss", "held-out loss", c="#d1495b", marker="o", ms=3)
    loss.set(xlabel="epoch", ylabel="mean loss")
    line(change, "changed", "share of images that changed code", c="#30638e", marker="o", ms=3)
    line(change, "drift", "variance of codes / of lattice", c="#d1495b")
    change.set(xlabel="epoch", ylim=(0, 1.4))
    parts = sorted({part for record in history for part in record["seconds"]})
    spent = np.array([[record["seconds"].get(part, 0.0) for record in history] for part in parts]).cumsum(axis=1)
    if len(parts):
        time.stackplot(epochs, spent, labels=parts, colors=colormaps["Set2"](range(len(parts))))
    time.set(xlabel="epoch", ylabel="seconds so far")
    for axes in (loss, change, time):
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
