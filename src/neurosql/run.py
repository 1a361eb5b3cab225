"""From images and settings to a fitted model, in a run folder or in memory, and on from where a run was stopped."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurosql import circumstances, dimension, estimate, memory, methods, networks, presets, prior
from neurosql.checkpoint import CHECKPOINT, SPLIT, RunFolder, whole_records
from neurosql.data import ImageSet, from_array, from_dataset
from neurosql.data.account import account
from neurosql.data.catalogue import load_in_parts
from neurosql.data.dataset import is_dataset
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.methods.base import Task
from neurosql.origin import Origin
from neurosql.recorded import damage_of, is_finished, origin_of, reading_of, settings_of, state_of
from neurosql.restoring import check_moments, check_progress, device_of, open_run, used_by
from neurosql.settings import DataSettings, Settings
from neurosql.training import Diverged, Stopped, Trainer

__all__ = [
    "Beginning",
    "damage_of",
    "fit",
    "images_of",
    "is_finished",
    "open_run",
    "origin_of",
    "reading_of",
    "resume",
    "settings_of",
    "state_of",
    "train",
    "used_by",
]

RECORDS = "history"
"""The tensor of a checkpoint that holds the history as JSON lines: a damaged `history.jsonl` loses nothing."""
UNBOUNDED = 2**62
"""A run without a checkpoint is begun again, with networks as large as its settings say."""
NO_LABELS = "conditional=True needs labels: one folder per class, 'labels' in the .npz, or y; else leave it out"


def fit(
    X: Any,
    y: Any = None,
    method: str = "neurosql",
    *,
    preset: str = "recommended",
    budget: str = "laptop",
    out: str | Path | None = None,
    progress: bool = False,
    callback: Callable[[dict[str, Any]], Any] | None = None,
    **settings: Any,
) -> Run:
    """Train the named method on samples, with labels y.

    The samples are an array, a tensor, a list of these or of Pillow images, a torch Dataset or DataLoader, an ImageSet,
    or what `neurosql train` takes: a path, `NAME:PATH` or `mnist-sample`, which is then divided into parts as there.
    Use `data.load` to choose how files are read.

    `preset` and `budget` are those of `neurosql train`. `settings` are its settings by name; they override both.
    `callback` is called with the figures of each epoch, a dictionary; training stops early if it returns True.
    """
    chosen = presets.settings(method, preset, budget, **settings)
    return train(images_of(X, y, chosen), chosen, out, progress=progress, hear=callback or _unheard)


def images_of(X: Any, y: Any, settings: Settings) -> ImageSet:
    """The samples to train on, of any kind that `fit` takes."""
    if isinstance(X, (str, Path)):
        if y is not None:
            raise InputError(f"the labels of {str(X)!r} come from its files: leave out y, or read it with data.load")
        training = settings.training
        return load_in_parts(X, DataSettings(), training.validation_share, training.seed)
    if isinstance(X, ImageSet) or is_dataset(X):
        images = X if isinstance(X, ImageSet) else from_dataset(X)
        return images if y is None else images.labelled(y)
    return from_array(X, y)


def _unheard(figures: dict[str, Any]) -> None:
    """For callers that do not follow the training."""


@dataclasses.dataclass(frozen=True)
class Beginning:
    """A trained model to go on from."""

    run: Run
    codes: np.ndarray | None = None
    """(n, d): codes of the images, NaN where they are not known; those are encoded. None encodes all."""
    index: np.ndarray | None = None
    """Which of the images to train on; None divides them anew."""

    def codes_of(self, images: ImageSet, index: np.ndarray) -> np.ndarray:
        """Codes (m, d) of the images `index`."""
        dim = self.run.settings.generator.dim
        codes = np.full((len(index), dim), np.nan, np.float32) if self.codes is None else self.codes[index]
        unknown = np.flatnonzero(np.isnan(codes).any(1))
        if len(unknown):
            labels = images.labels if self.run.method.classes else None
            codes = codes.copy()
            some = index[unknown]
            codes[unknown] = self.run.encode(images.x[some], None if labels is None else labels[some])[0]
        return codes


def train(
    images: ImageSet,
    settings: Settings,
    out: str | Path | None = None,
    law: prior.Prior | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
    hear: Callable[[dict[str, Any]], Any] = _unheard,
    begin: Beginning | None = None,
) -> Run:
    """Train a model on images and, if `out` is given, write a run folder; `law` is a prior given in Python.

    `begin` is a trained model to go on from. Its history comes first.

    `say` is called with lines for the user, and `hear` with the figures of each epoch: if it returns True, training
    ends early, as if its budget were spent.

    Raises `Stopped` after Ctrl-C: the folder then holds a checkpoint to resume from, and the model so far.
    """
    run, heldout = _prepare(images, settings, law, None if begin is None else begin.index)
    if out is None:
        return _begin(run, images, heldout, None, progress, say, hear, begin)
    folder = RunFolder.create(out)
    with folder.writing():
        if folder.begin():
            say(f"note       {out} held a run that was interrupted before its first checkpoint: it starts again")
        folder.write_json(SPLIT, run.split)
        return _begin(run, images, heldout, folder, progress, say, hear, begin)


def _begin(
    run: Run,
    images: ImageSet,
    heldout: ImageSet | None,
    folder: RunFolder | None,
    progress: bool,
    say: Callable[[str], None],
    hear: Callable[[dict[str, Any]], Any],
    begin: Beginning | None,
) -> Run:
    """Train from the beginning, or from that of another model.

    The folder becomes a run when its config is written: from then on, everything is there to resume it.
    """
    say(_summary(run, images))
    if begin is None:
        if folder is not None:
            folder.write_config(run.config())
        run.method.start()
        return _fit(run, images, heldout, folder, progress, hear)
    run.history[:] = begin.run.history
    codes = torch.from_numpy(begin.codes_of(images, run.index)).to(run.method.device)
    run.method.start_from(begin.run.method, codes)
    return _fit(run, images, heldout, folder, progress, hear, at_once=True)


def resume(
    path: str | Path,
    read: Callable[[str, tuple[DataSettings, int]], ImageSet],
    source: str | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
    hear: Callable[[dict[str, Any]], Any] = _unheard,
) -> Run:
    """Continue a stopped run; `read(source, (how, seed))` returns its images, in the same parts.

    A finished run is opened as it is.
    """
    folder = RunFolder.existing(path)
    if is_finished(folder) and not folder.was_left():
        return open_run(path)
    with folder.writing():
        if is_finished(folder):
            return open_run(path)
        config = folder.config()
        settings = settings_of(config)
        # A run that was killed before its first checkpoint starts again: the seed makes it the same run.
        begun = folder.read_tensors(CHECKPOINT) if folder.has(CHECKPOINT) else None
        origin = origin_of(config)
        images = read(source or origin.path, reading_of(folder))
        if images.fingerprint != origin.fingerprint:
            raise InputError(
                f"{images.source} does not hold the images that {path} was trained on: give their path with --data"
            )
        most = sum(map(Tensor.numel, begun[0].values())) if begun else UNBOUNDED
        with networks.at_most(most):
            run, heldout = _prepare(images, settings, begun=True)
        run.notes += circumstances.note(config)
        run.history[:] = _recorded(folder, begun)
        folder.write_history(run.history)
        say(_summary(run, images))
        if begun is None:
            run.method.start()
        with damage_of(path):
            return _fit(run, images, heldout, folder, progress, hear, begun)


def _recorded(folder: RunFolder, begun: tuple[dict[str, Tensor], dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The history that a checkpoint stands for; what came after it is written again."""
    if begun is None:
        return []
    tensors, plain = begun
    if RECORDS in tensors:
        return whole_records(tensors[RECORDS].numpy().tobytes())
    # Checkpoints of version 0.1.0 only know how long it was.
    records = plain.get("records")
    return folder.history()[: records if isinstance(records, int) and records >= 0 else 0]


def _prepare(
    images: ImageSet,
    settings: Settings,
    law: prior.Prior | None = None,
    chosen: np.ndarray | None = None,
    begun: bool = False,
) -> tuple[Run, ImageSet | None]:
    """The model before its first step, and the images held out for validation: all but the `chosen` ones, if any.

    The strategy of a run that has `begun` stays as it is, whatever memory there is.
    """
    settings = settings.resolve(images.modality)
    training = settings.training
    index, heldout = np.arange(len(images)), images.validation
    parts = images.split_record()
    if heldout is None:
        if chosen is None:
            index, rest = images.split(training.validation_share, training.seed)
        else:
            index, rest = chosen, np.setdiff1d(index, chosen)
        heldout = images.take(rest) if len(rest) else None
        places = np.array(parts["train"], np.int64)
        parts |= {"train": places[index].tolist()} | ({"validation": places[rest].tolist()} if len(rest) else {})
    conditional = settings.generator.conditional
    if conditional and images.labels is None:
        raise InputError(NO_LABELS)
    if conditional and heldout is not None and heldout.labels is not None and images.labels is not None:
        # A class without training images has no codes to validate on.
        heldout = heldout.take(np.flatnonzero(np.isin(heldout.labels, images.labels[index]))) or None
    device = device_of(training.device)
    x, y = _tensors(images, index, device)
    settings, notes = dimension.resolved(settings, x, law)
    classes = len(images.classes) if conditional else None
    sizes = [len(x)] if y is None or not conditional else torch.bincount(y.cpu()).tolist()
    if not begun:
        settings, changed = estimate.fitting(settings, sizes, math.prod(images.shape))
        notes += changed
    method = methods.make(Task(settings, tuple(images.shape), classes, law)).to(device)
    method.attach(x, y, training.seed)
    expected = 0
    if device.type == "cpu":
        more = estimate.training(method, settings, sizes, len(heldout or ()), copied=len(index) < len(images))
        estimate.check(more)
        expected = memory.used() + more
    origin = Origin.of(images, len(index), 0 if heldout is None else len(heldout))
    labels = None if images.labels is None else images.labels[index]
    found = images.reading.found if images.reading else 0
    split = {"count": found or len(images), **parts}
    like = images.take(np.arange(0))
    names = None if images.names is None else images.names[index]
    more_of_it: dict[str, Any] = {"split": split, "notes": notes, "names": names, "expected_memory": expected}
    return Run(settings, origin, method, like, index, labels, [], **more_of_it), heldout


def _fit(
    run: Run,
    images: ImageSet,
    heldout: ImageSet | None,
    folder: RunFolder | None,
    progress: bool,
    hear: Callable[[dict[str, Any]], Any],
    begun: tuple[dict[str, Tensor], dict[str, Any]] | None = None,
    at_once: bool = False,
) -> Run:
    """Train to the end. `at_once` writes a checkpoint before the first step."""
    device = run.method.x.device
    validation = None
    if heldout is not None:
        # Evenly spaced: the images of a folder come class by class.
        shown = np.linspace(0, len(heldout) - 1, min(len(heldout), run.settings.training.validate_on)).round()
        validation = _tensors(heldout, shown.astype(np.int64), device)

    def save(trainer: Trainer, complete: bool = False) -> None:
        if folder is not None:
            tensors, plain = trainer.state()
            lines = "".join(json.dumps(figures) + "\n" for figures in run.history).encode()
            tensors[RECORDS] = torch.frombuffer(bytearray(lines), dtype=torch.uint8) if lines else torch.empty(0).byte()
            folder.write_tensors(CHECKPOINT, tensors, plain | {"records": len(run.history), "complete": complete})

    def record(figures: dict[str, Any]) -> bool:
        run.history.append(figures)
        if folder is not None:
            folder.append_history(figures)
        return bool(hear(copy.deepcopy(figures)))

    x, labels = _tensors(images, run.index, device)
    trainer = Trainer(run.method, x, labels, run.settings.training, validation, save, record, progress)
    if begun is not None:
        check_progress(*begun, len(x))
        trainer.load_state(*begun)
        check_moments(trainer)
    if at_once:
        save(trainer)
        if folder is not None:
            folder.write_history(run.history)
            folder.write_config(run.config())
    try:
        trainer.run()
    except Stopped as stop:
        _keep(run, trainer, folder)
        stop.path = None if folder is None else folder.path
        raise
    except Diverged as error:
        if folder is None:
            raise
        again = f"{error}. Train again with that: resuming {folder.path} would take the same steps"
        if trainer.best is None:
            raise Diverged(again) from None
        run.method.load_state(trainer.best)
        _keep(run, trainer, folder)
        raise Diverged(f"{again}. The best model so far, of epoch {trainer.best_epoch}, was kept in the run") from None
    _keep(run, trainer, folder)
    # Last of all: if a run is killed before this, resuming it writes its model again.
    save(trainer, complete=True)
    return run


def _keep(run: Run, trainer: Trainer, folder: RunFolder | None) -> None:
    """Save the current model, and what the training has used."""
    run.method.finish()
    run.used = trainer.used()
    if folder is not None:
        run.save(folder)


def _tensors(images: ImageSet, index: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor | None]:
    # If all are wanted, nothing is copied: a memory-mapped array stays in its file.
    x = torch.from_numpy(images.x if len(index) == len(images) else images.x[index]).to(device)
    return x, None if images.labels is None else torch.from_numpy(images.labels[index]).to(device)


def _summary(run: Run, images: ImageSet) -> str:
    parts = account(images, run.data.trained, run.data.heldout)
    lines = [f"data       {run.data.description}", f"parts      {parts}"]
    if run.settings.method != Settings.method:
        lines.append(f"method     {run.settings.method}, {run.method.title}")
    lines += [f"{name:<10} {fact}" for name, fact in run.method.facts().items()]
    if run.expected_memory:
        lines.append(f"memory     about {memory.figure(run.expected_memory)}")
    return "\n".join(lines + [f"note       {note}" for note in (*run.notes, *run.method.notes())])
