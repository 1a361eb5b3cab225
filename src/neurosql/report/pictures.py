"""The pictures of a run: samples, reconstructions, the latent plane, a map over it, and the curves of the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from neurosql.fitted import Run
from neurosql.metrics.memorisation import Memorisation
from neurosql.report import maps
from neurosql.report.canvas import Figure, colormaps, save, verbatim
from neurosql.report.sheet import INK, interleave, sheet

SHEET = 64
EACH = 8
"""Samples of each class on the sheet of a class-conditional model."""
MOST_CLASSES = 20


def captions(run: Run) -> dict[str, str]:
    """Every picture that a run may have, by file name, in the order of the page."""
    image, classes = run.data.modality.is_picture, run.method.classes
    found = {"samples.png": f"{SHEET} new images from the model." if image else "New samples over the training data."}
    if image and classes:
        shown = shown_classes(run)
        some = "" if len(shown) == classes else f", for {len(shown)} of {classes} classes"
        found["samples.png"] = f"New images from the model, one row per class{some}."
    if run.has_codes and not run.shared:
        if maps.has_places(run):
            found["images.png"] = maps.own_caption(run)
        if image:
            found["map.png"] = maps.map_caption(run)
        found["reconstructions.png"] = "Training data, and what the model makes of their codes."
        if image:
            found["reconstructions.png"] = "Training images (odd rows), each above what the model makes of its code."
        which = "The place" if run.settings.generator.dim <= 2 else "The first two numbers of the code"
        found["latent.png"] = f"{which} of each training {run.data.modality.name}" + (
            ", coloured by class." if run.labels is not None else "."
        )
    found["closest.png"] = "The most suspicious samples (odd rows), each above the training image nearest to it."
    found["memorisation.png"] = (
        "How far each sample is from the nearest training image (up) and from the nearest held-out image (across)."
    )
    found["curves.png"] = "The training, epoch by epoch."
    return found


def shown_classes(run: Run) -> list[int]:
    """The classes on the sheet of a class-conditional model: those with training images, at most 20."""
    return [i for i, count in enumerate(run.method.class_counts.tolist()) if count][:MOST_CLASSES]


def draw_all(run: Run, x: np.ndarray, folder: Path, seed: int = 0) -> list[str]:
    """Draw the pictures of a run on its training samples x (n, *shape); returns file names."""
    image = run.data.modality.is_picture
    shown = np.random.default_rng(seed).permutation(len(x))[:32]
    again = run.reconstruct() if run.has_codes else x
    draw: dict[str, Callable[[Path], None]] = {
        "samples.png": lambda p: _samples(run, x, p, seed),
        "images.png": lambda p: maps.own_images(run, x, p),
        "reconstructions.png": lambda p: (
            sheet(interleave(x[shown], again[shown], 8), p) if image else overlay(x, again, p, "reconstructions")
        ),
        "latent.png": lambda p: latent_plane(run, p),
        "map.png": lambda p: _map(run, p),
        "curves.png": lambda p: curves(run.history, p),
    }
    drawn = [name for name in captions(run) if name in draw]
    for name in drawn:
        draw[name](folder / name)
    return drawn


def draw_samples(run: Run, folder: Path, seed: int = 0) -> None:
    """Draw new images of a run to its folder; nothing if samples are not images: these are shown over training data."""
    if run.data.modality.is_picture:
        _samples(run, np.empty((0, *run.data.shape)), folder / "samples.png", seed)


def _samples(run: Run, x: np.ndarray, path: Path, seed: int) -> None:
    """A sheet of new images, class by class if the model knows classes; other samples over the training data."""
    if not run.data.modality.is_picture:
        overlay(x, run.sample(min(len(x), 2000), seed=seed)[0], path)
    elif run.method.classes:
        names = [run.like.classes[i] for i in shown_classes(run)]
        made = [run.sample(EACH, label=name, seed=seed)[0] for name in names]
        maps.strips(np.concatenate(made), names, path, EACH)
    else:
        sheet(run.sample(SHEET, seed=seed)[0], path)


def _map(run: Run, path: Path) -> None:
    decoded = maps.latent_map(run)
    if run.method.classes:
        maps.strips(decoded, list(run.like.classes), path, maps.MAP_SIDE, pixels=1000)
    else:
        sheet(decoded, path, columns=maps.MAP_SIDE, gap=0, pixels=1000)


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
    axes.set_title(
        f"signs of copies: {'none' if found.verdict == 'no sign' else found.verdict}", color=INK, fontsize=11
    )
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, folder / "memorisation.png")
    return [*drawn, "memorisation.png"]


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
    save(figure, path)


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
    save(figure, path)


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
        axes.scatter(x, y, s=size, color=colours(number), label=verbatim(name), linewidths=0, alpha=0.85)
    if legend:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, markerscale=2)


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
    if parts:
        spent = np.array([[record["seconds"].get(part, 0.0) for record in history] for part in parts]).cumsum(axis=1)
        time.stackplot(epochs, spent, labels=parts, colors=colormaps["Set2"](range(len(parts))))
    time.set(xlabel="epoch", ylabel="seconds so far")
    for axes in (loss, change, time):
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    save(figure, path)
