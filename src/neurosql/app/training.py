"""Train a model, or resume its training, and finish its folder: scores, pictures and the page."""

from __future__ import annotations

import dataclasses
import itertools
import os
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurosql import circumstances, data, files, ranks, threads
from neurosql import run as runs
from neurosql.app.observer import Observer
from neurosql.checkpoint import CODES, CONFIG, HISTORY, MODEL, SCORES, SPLIT, USED, RunFolder
from neurosql.data import ImageSet, catalogue, check
from neurosql.data.obstacles import suggested_side
from neurosql.errors import InputError, Obstacles
from neurosql.fitted import Run
from neurosql.generators.grid import image_shape
from neurosql.metrics.pairs import reconstruction_score
from neurosql.metrics.score import Score
from neurosql.modality import of_shape
from neurosql.preparing import NO_LABELS
from neurosql.report import page, pictures
from neurosql.settings import DataSettings, Settings
from neurosql.settings.sections import AUTO

QUIET = Observer()
ALREADY_SET = 0
"""As many threads as torch uses already."""


@dataclass
class Trained:
    """A finished run."""

    run: Run
    folder: RunFolder
    written: list[str] = field(default_factory=list)
    """Names of the files that the call wrote to the folder; empty if the run was finished before."""
    scores: list[Score] = field(default_factory=list)


def read(source: str, how: DataSettings, settings: Settings) -> ImageSet:
    """The samples to train on, in parts: official ones, those of a split file, or drawn by the run's seed."""
    training = settings.training
    try:
        return catalogue.load_in_parts(source, how, training.validation_share, training.seed)
    except Obstacles as error:
        raise _with_the_model_s(error, settings) from None


def _with_the_model_s(error: Obstacles, settings: Settings) -> Obstacles:
    """What keeps data from being read and, besides, what the model would refuse once they are read."""
    found, settled_by = list(error.found), dict(error.settled_by)
    if settings.generator.conditional and not error.labelled:
        found.append(NO_LABELS)
    shape, chosen = error.shape, settings.generator.generator
    if shape is not None and of_shape(shape).is_picture and chosen != "mlp":
        try:
            image_shape("the network" if chosen == AUTO else chosen, shape)
        except InputError as refusal:
            side = suggested_side({shape[1:]: 1})
            found.append(f"{refusal}; --image-size {side} resizes them")
            settled_by["image_size"] = side
    return Obstacles(found, settled_by, error.labelled)


def train(
    source: str,
    settings: Settings,
    out: str | Path | None = None,
    how: DataSettings | None = None,
    observer: Observer = QUIET,
    use: int | None = ALREADY_SET,
) -> Trained:
    """Train on the samples of a source and write a run folder, by default the next free one under runs/.

    `use` is how many threads to use: None is the quickest number in a short trial, and by default torch's own.

    Raises `Stopped` after Ctrl-C: its `path` then holds a checkpoint to resume from. If torchrun starts the job again,
    the run in `out` goes on. If several ranks train together, the others call `help_to_train`.
    """
    if _goes_on(out):
        assert out is not None
        return resume(out, observer=observer)
    with ranks.here().after_first():
        images = read(source, how or DataSettings(), settings)
    observer.say(check.brief(images))
    path = Path(out) if out else claimed(source)
    new = not out or not path.exists()
    folder = RunFolder.create(path)
    try:
        with folder.writing(), _threads(use, settings, images, observer):
            run = runs.train(images, settings, path, **_heard(observer))
            return finish(run, images.x[run.index], folder)
    except InputError:
        if new:
            with suppress(OSError):  # only where nothing was written
                path.rmdir()
        raise


def _threads(use: int | None, settings: Settings, images: ImageSet, observer: Observer) -> AbstractContextManager[None]:
    if use == ALREADY_SET:
        return nullcontext()
    return threads.for_training(settings, tuple(images.shape), use, observer.say)


def help_to_train(source: str, settings: Settings, out: str | Path | None, how: DataSettings | None = None) -> None:
    """Take part, as another rank than the first, in what `train` does on rank 0."""
    if _goes_on(out):
        assert out is not None
        help_to_resume(out)
        return
    with ranks.here().after_first():
        images = read(source, how or DataSettings(), settings)
    runs.train(images, settings)


def _goes_on(out: str | Path | None) -> bool:
    """Whether the job was started again, and has a run to go on with."""
    if out is None and ranks.may_restart():
        raise InputError("a job that torchrun may start again needs --out: it goes on from what is in that folder")
    if out is None or not ranks.here().any(ranks.restarts() > 0):
        return False
    return bool(ranks.here().decide(RunFolder(out).has(CONFIG)))


def resume(path: str | Path, source: str | None = None, observer: Observer = QUIET) -> Trained:
    """Continue a stopped run, with as many threads; a finished run only gets the files that its folder lacks.

    If several ranks train together, the others call `help_to_resume`.
    """
    folder = RunFolder.existing(path)
    if ranks.here().several:
        ranks.here().decide(runs.is_finished(folder))
    if runs.is_finished(folder) and folder.has(page.NAME) and not folder.was_left():
        return Trained(runs.open_run(path), folder)
    with folder.writing():
        return _resumed(folder, source, observer)


def help_to_resume(path: str | Path, source: str | None = None) -> None:
    """Take part, as another rank than the first, in what `resume` does on rank 0."""
    folder = RunFolder.existing(path)
    if not ranks.here().decide(0.0):
        runs.assist(path, lambda source, how: _again(folder, source), source)


def _resumed(folder: RunFolder, source: str | None, observer: Observer) -> Trained:
    if runs.is_finished(folder):
        run = runs.open_run(folder.path)
        return Trained(run, folder) if folder.has(page.NAME) else finish(run, sets(run, folder)[0].x, folder)
    seen: list[ImageSet] = []

    def load(source: str, how: tuple[DataSettings, int]) -> ImageSet:
        seen.append(_again(folder, source))
        # The page of a stopped run shows another model. The new one comes last: if it is there, all else is.
        with suppress(FileNotFoundError):
            os.unlink(folder.path / page.NAME)
        return seen[-1]

    with circumstances.as_recorded(folder.config()):
        run = runs.resume(folder.path, load, source, **_heard(observer))
        return finish(run, seen[-1].x[run.index], folder)


def finish(run: Run, x: np.ndarray, folder: RunFolder) -> Trained:
    """Write the scores, the pictures and the page of a run trained on x (n, *shape)."""
    scores = []
    if run.has_codes and "ssim" in run.data.modality.costs:
        scores.append(reconstruction_score(x, run.reconstruct()))
    records = {score.key: score.record() for score in scores}
    folder.write_json(SCORES, records)
    drawn = pictures.draw_all(run, x, folder.path, run.settings.training.seed)
    page.write(run, folder.path, records)
    return Trained(run, folder, [MODEL, CODES, HISTORY, USED, SPLIT, SCORES, *drawn, page.NAME], scores)


def sets(run: Run, folder: RunFolder, source: str | None = None) -> tuple[ImageSet, ImageSet | None]:
    """The images that a run was trained on, in its order, and images that it was not trained on.

    They are read from `source`, by default from where they were.
    """
    if run.shared:
        raise InputError(f"{folder.path} was exported for sharing: it does not say which images it was trained on")
    images = _again(folder, source or run.data.path)
    if images.fingerprint != run.data.fingerprint:
        longer = "no longer holds" if source is None else "does not hold"
        raise InputError(f"{source or run.data.path} {longer} the images that {folder.path} was trained on")
    train = images.take(run.index)
    unseen = images.test or images.validation
    if unseen is not None:
        return train, unseen
    rest = np.setdiff1d(np.arange(len(images)), run.index)
    return train, images.take(rest) if len(rest) else None


def _again(folder: RunFolder, source: str) -> ImageSet:
    """The samples of a run, read as they were when it began."""
    how, seed = runs.reading_of(folder)
    images = data.load(source, settings=how, seed=seed)
    if images.fingerprint == runs.origin_of(folder.config()).fingerprint or how.split is not None:
        return images
    if how.limit is None or not how.skip_bad or not folder.has(SPLIT):
        return images
    # Version 0.1.0 drew samples before it knew which files are bad, and used fewer than the limit allowed.
    return data.load(source, settings=dataclasses.replace(how, split=str(folder.path / SPLIT)), seed=seed)


def claimed(source: str) -> Path:
    """Create runs/NAME-1, or the next free number, so that no other run takes it."""
    stem = stem_of(source)
    for number in itertools.count(1):
        path = Path("runs") / f"{stem}-{number}"
        os.makedirs(path.parent, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir()
            files.sync_folder(path.parent)
            return path
    raise AssertionError("unreachable")


def stem_of(source: str) -> str:
    """A file name for results from a source."""
    try:
        path = catalogue.find(source)[1].resolve()
    except InputError:
        path = Path(source)
    return (path.name if path.is_dir() else path.stem) or "run"


def _heard(observer: Observer) -> dict[str, Any]:
    return {"progress": observer.progress, "say": observer.say, "hear": observer.epoch}
