"""The codes of images, seen or unseen, written as a table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurosql import origin
from neurosql import run as runs
from neurosql.app import tables
from neurosql.app.observer import Observer
from neurosql.app.training import QUIET, sets, stem_of
from neurosql.checkpoint import RunFolder
from neurosql.data import ImageSet
from neurosql.data.check import counts
from neurosql.errors import InputError, Obstacles
from neurosql.fitted import Run
from neurosql.origin import Misfit
from neurosql.trained_on import TrainedOn

SINGULAR = {
    "losses": "loss",
    "labels": "label",
    "names": "name",
    "positions": "position",
    "parts": "part",
    "rows": "row",
}
GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "F")
"""Pillow's names for modes without colour."""


@dataclass(frozen=True)
class Encoded:
    """Codes of images, and the file that holds them."""

    codes: np.ndarray
    """(n, d)."""
    losses: np.ndarray
    """(n,): the loss between each image and its reconstruction."""
    labels: np.ndarray | None
    """(n,): names of the classes that a class-conditional model found."""
    names: np.ndarray | None
    """(n,): names of the files, if each image has one."""
    path: Path
    known: np.ndarray | None
    """(n,) bool: whether the model was trained on the image, so that its code was looked up; None for vectors, which
    are standardised, so that rounding hides which are the same."""
    notes: list[str] = field(default_factory=list)
    """How images were brought to the shape of the model's."""


@dataclass(frozen=True)
class CodeTable:
    """The codes of the training images, and the file that holds them."""

    columns: dict[str, np.ndarray]
    """As `Run.code_table` returns them."""
    path: Path
    notes: list[str] = field(default_factory=list)
    """Which columns are missing, and why."""


def codes(path: str | Path, out: str | Path | None = None) -> CodeTable:
    """Write the codes of a run's training images to a .csv (by default, in the run's folder) or a .npz file."""
    target = Path(out) if out else Path(path) / "codes.csv"
    tables.check_target(target)
    run, notes = runs.open_run(path), []
    if run.has_codes:
        known, why = _known(run, RunFolder.existing(path))
        run = dataclasses.replace(run, remembered=known)
        if known is None:
            notes.append(f"the run does not hold the names and losses of its training images, and {why}")
    with runs.damage_of(path):
        columns = run.code_table()
    tables.write(target, columns, SINGULAR)
    return CodeTable(columns, target, notes)


def encode(
    path: str | Path,
    source: str,
    limit: int | None = None,
    skip_bad: bool = False,
    part: str = "train",
    out: str | Path | None = None,
    observer: Observer = QUIET,
    convert: bool = False,
) -> Encoded:
    """Find the codes of a source's images and write them to a .npz (by default, in the run's folder) or a .csv file.

    Images that the model was trained on are recognised by their prepared pixels, and have the codes that training gave
    them. `convert` brings images of another size or colour to those of the model; otherwise they are refused.
    """
    run, folder = runs.open_run(path), RunFolder.existing(path)
    target = Path(out) if out else Path(path) / f"codes-{stem_of(source)}.npz"
    tables.check_target(target)
    images, notes = alike(run, source, limit, skip_bad, part, convert)
    with runs.damage_of(path):
        found, labels, losses, known = _looked_up(run, folder, images.x, observer.progress)
    classes = None if labels is None else np.array(run.like.classes)[labels]
    columns = {"codes": found, "losses": losses, "labels": classes, "names": images.names}
    tables.write(target, {name: values for name, values in columns.items() if values is not None}, SINGULAR)
    told = known if run.data.modality.bounded else None
    return Encoded(found, losses, classes, images.names, target, told, notes)


def alike(
    run: Run, source: str, limit: int | None, skip_bad: bool, part: str, convert: bool = False
) -> tuple[ImageSet, list[str]]:
    """A source's images, prepared in the same way as the training images, and how they were converted."""
    wanted = (run.data, run.like, source, limit, skip_bad, part)
    try:
        images = origin.alike(*wanted)
        return images, _converted(run, images, _kind(_as_read(images)))
    except Misfit as error:
        found, before = _as_read(error.images), _kind(_as_read(error.images))
        if not convert or not run.data.modality.is_picture:
            hint = ": --convert brings them to the shape of the model's" if run.data.modality.is_picture else ""
            own = f"{run.data.shape} ({_kind(run.data.shape)})"
            raise InputError(
                f"the model's samples have shape {own}, but those of {source} have {found} ({before}){hint}"
            ) from None
    except Obstacles as error:
        if "image_size" not in error.settled_by or not run.data.modality.is_picture:
            raise
        if not convert:
            raise Obstacles([_for_encode(run, words) for words in error.found], {}) from None
        before = ""
    images = origin.alike(*wanted, **_converting(run))
    return images, _converted(run, images, before)


def _looked_up(
    run: Run, folder: RunFolder, x: np.ndarray, progress: bool
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]:
    """Codes, class numbers and losses of images (n, *shape), and which of them the model was trained on."""
    trained = _known(run, folder)[0] if run.has_codes and run.data.modality.bounded else None
    places = np.full(len(x), -1) if trained is None else trained.find(x)
    known = places >= 0
    if trained is None or not known.any():
        return *run.encode(x, progress=progress), known
    own = run.method.codes.cpu().numpy()
    codes, losses = np.empty((len(x), own.shape[1]), own.dtype), np.empty(len(x), np.float32)
    codes[known], losses[known] = own[places[known]], trained.losses[places[known]]
    classes = run.method.code_labels()
    labels = None if classes is None else np.empty(len(x), np.int64)
    if labels is not None and classes is not None:
        labels[known] = classes.cpu().numpy()[places[known]]
    if not known.all():
        codes[~known], found, losses[~known] = run.encode(x[~known], progress=progress)
        if labels is not None and found is not None:
            labels[~known] = found
    return codes, labels, losses, known


def _known(run: Run, folder: RunFolder) -> tuple[TrainedOn | None, str]:
    """What the run remembers of its training images, or what can be read of them again; else None, and why."""
    if (remembered := run.trained_on()) is not None:
        return remembered, ""
    try:
        train, _ = sets(run, folder)
    except InputError as error:
        return None, f"they can't be read again: {error}"
    return TrainedOn.of(run.method, torch.from_numpy(train.x), train.names), ""


def _converting(run: Run) -> dict[str, Any]:
    """The settings that bring any image to the size and the colour of the model's."""
    channels, height, width = run.data.shape
    if height != width:
        raise InputError(f"images can only be converted to squares, but the model's have {height} x {width} pixels")
    return {"image_size": height, "channels": "colour" if channels == 3 else "grey"}


def _converted(run: Run, images: ImageSet, before: str) -> list[str]:
    """Notes on what was done to images that are not like the model's."""
    reading = images.reading
    if reading is None or not run.data.modality.is_picture:
        return []
    if not reading.sizes:
        return [f"images were brought from {before} to {_kind(images.shape)}"] if before != _kind(images.shape) else []
    channels, height, width = images.shape
    notes = []
    other = {size: count for size, count in reading.sizes.items() if size != f"{width} x {height}"}
    if other:
        done = f"centre-cropped and resized to {width} x {height} pixels (width x height)"
        notes.append(f"{sum(other.values()):,} images were {done}: files of {counts(other)}")
    coloured = {mode: count for mode, count in reading.modes.items() if (mode in GREY) != (channels == 1)}
    if coloured:
        done = "turned grey" if channels == 1 else "given three equal channels"
        notes.append(f"{sum(coloured.values()):,} images were {done}: files of mode {counts(coloured)}")
    return notes


def _as_read(images: ImageSet) -> tuple[int, ...]:
    """The shape of samples before they were made grey or coloured, if it is known."""
    channels = {} if images.reading is None or images.reading.modes else images.reading.channels
    return (int(next(iter(channels))), *images.shape[1:]) if len(channels) == 1 else images.shape


def _for_encode(run: Run, words: str) -> str:
    """The sentence on an obstacle, with the flag that settles it here."""
    if "--image-size" not in words:
        return words
    size = " x ".join(map(str, run.data.shape[1:]))
    return f"{words.rpartition(': ')[0]}: --convert brings them to the model's {size}"


def _kind(shape: tuple[int, ...]) -> str:
    """What samples of a shape are, in a few words."""
    if len(shape) != 3:
        return " x ".join(map(str, shape))
    return f"{'grey' if shape[0] == 1 else 'colour'}, {shape[1]} x {shape[2]} pixels"
