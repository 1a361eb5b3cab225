"""From images and settings to a fitted model, in a run folder or in memory, and on from where a run was stopped."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurosql import circumstances, estimate, held, networks, presets, prior, ranks, together
from neurosql.checkpoint import CHECKPOINT, SPLIT, RunFolder, whole_records
from neurosql.data import ImageSet, from_array, from_dataset
from neurosql.data.catalogue import load_in_parts
from neurosql.data.dataset import is_dataset
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.preparing import prepare, summary
from neurosql.recorded import damage_of, is_finished, origin_of, reading_of, settings_of, state_of
from neurosql.restoring import check_moments, check_progress, open_run, used_by
from neurosql.settings import DataSettings, QuantileSettings, Settings
from neurosql.training import Diverged, Stopped, Trainer, batches_of

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

    If several ranks train together, all of them call this. Rank 0 alone writes, calls `say` and `hear`, and returns a
    run that is complete.
    """
    run, heldout = prepare(images, settings, law, None if begin is None else begin.index)
    with ranks.among(_with_work(run)) as group:
        if out is None or not group.first:
            return _begin(run, images, heldout, None, progress, say, hear, begin)
        return _begin_in(RunFolder.create(out), run, images, heldout, progress, say, hear, begin)


def _with_work(run: Run) -> ranks.Ranks:
    """The ranks that have images in every step: with fewer images than ranks, not all do."""
    group, training, own = ranks.here(), run.settings.training, run.settings.own
    fewest = len(run.index) // batches_of(len(run.index), training)
    if isinstance(own, QuantileSettings) and own.fresh:
        fewest = min(fewest, own.fresh_batch)
    if fewest < group.size:
        run.notes.append(f"{fewest} of {group.size} ranks have work: there are batches of {fewest} images")
    return group.of_first(max(1, fewest))


def _begin_in(
    folder: RunFolder,
    run: Run,
    images: ImageSet,
    heldout: ImageSet | None,
    progress: bool,
    say: Callable[[str], None],
    hear: Callable[[dict[str, Any]], Any],
    begin: Beginning | None,
) -> Run:
    """`_begin`, in a folder."""
    with folder.writing():
        if folder.begin():
            say(
                f"note       {folder.path} held a run that was interrupted before its first checkpoint: it starts again"
            )
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
    if ranks.here().first:
        say(summary(run, images))
    if begin is None:
        if folder is not None:
            folder.write_config(run.config())
        together.start(run.method)
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

    A finished run is opened as it is. If several ranks train together, the others call `assist`.
    """
    folder = RunFolder.existing(path)
    if is_finished(folder) and not folder.was_left():
        return open_run(path)
    with folder.writing():
        if is_finished(folder):
            return open_run(path)
        settings = settings_of(folder.config())
        # A run that was killed before its first checkpoint starts again: the seed makes it the same run.
        begun = folder.read_tensors(CHECKPOINT) if folder.has(CHECKPOINT) else None
        images = _read_again(folder, read, source)
        return _go_on(folder, settings, images, begun, progress, say, hear)


def assist(
    path: str | Path, read: Callable[[str, tuple[DataSettings, int]], ImageSet], source: str | None = None
) -> None:
    """Take part, as another rank than the first, in the training that `resume` continues on rank 0."""
    folder = RunFolder.existing(path)
    settings, images = settings_of(folder.config()), _read_again(folder, read, source)
    _go_on(folder, settings, images, None, False, lambda line: None, _unheard)


def _read_again(
    folder: RunFolder, read: Callable[[str, tuple[DataSettings, int]], ImageSet], source: str | None
) -> ImageSet:
    """The images of a run, which must be those that it was trained on."""
    origin = origin_of(folder.config())
    with ranks.here().after_first():
        images = read(source or origin.path, reading_of(folder))
    if images.fingerprint != origin.fingerprint:
        raise InputError(
            f"{images.source} does not hold the images that {folder.path} was trained on: give their path with --data"
        )
    return images


def _go_on(
    folder: RunFolder,
    settings: Settings,
    images: ImageSet,
    begun: tuple[dict[str, Tensor], dict[str, Any]] | None,
    progress: bool,
    say: Callable[[str], None],
    hear: Callable[[dict[str, Any]], Any],
) -> Run:
    """Train on from what rank 0 has read of a checkpoint."""
    tensors, plain = ranks.here().tell(*(begun or ({}, None)))
    begun = None if plain is None else (tensors, plain)
    most = sum(map(Tensor.numel, begun[0].values())) if begun else estimate.most_parameters()
    with networks.at_most(most):
        run, heldout = prepare(images, settings, begun=True)
    with ranks.among(_with_work(run)) as group:
        if group.first:
            run.notes += circumstances.note(folder.config())
            run.history[:] = _recorded(folder, begun)
            folder.write_history(run.history)
            say(summary(run, images))
        if begun is None:
            together.start(run.method)
        with damage_of(folder.path):
            return _fit(run, images, heldout, folder if group.first else None, progress, hear, begun)


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
        validation = held.tensors(heldout, shown.astype(np.int64), device)

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
        return ranks.here().first and bool(hear(copy.deepcopy(figures)))

    if ranks.here().several:
        run.method.x = held.for_a_rank(run.method.x, images, run.index)
    x, labels = run.method.x, held.labels(images, run.index, device)
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
        with ranks.here().first_ends_last():
            _keep(run, trainer, images, folder)
        stop.path = None if folder is None else folder.path
        raise
    except Diverged as error:
        with ranks.here().first_ends_last():
            raise _best_kept(run, trainer, images, folder, error) from None
    _keep(run, trainer, images, folder)
    # Last of all: if a run is killed before this, resuming it writes its model again.
    save(trainer, complete=True)
    return run


def _best_kept(run: Run, trainer: Trainer, images: ImageSet, folder: RunFolder | None, error: Diverged) -> Diverged:
    """What to say of a training that has diverged; the best model so far is kept, if there is one."""
    if folder is None:
        return error
    again = f"{error}. Train again with that: resuming {folder.path} would take the same steps"
    if trainer.best is None:
        return Diverged(again)
    run.method.load_state(trainer.best)
    _keep(run, trainer, images, folder)
    return Diverged(f"{again}. The best model so far, of epoch {trainer.best_epoch}, was kept in the run")


def _keep(run: Run, trainer: Trainer, images: ImageSet, folder: RunFolder | None) -> None:
    """Save the current model, and what the training has used; rank 0 does it alone."""
    if not ranks.here().first:
        return
    if ranks.here().several:
        run.method.x = held.tensors(images, run.index, run.method.device)[0]
    run.method.finish()
    run.used = trainer.used()
    if folder is not None:
        run.save(folder)
