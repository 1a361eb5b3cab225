"""Score a trained model and write the results: scores.json, pictures of copies, the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neurosql import data
from neurosql import evaluate as evaluation
from neurosql import run as runs
from neurosql.app.observer import Observer
from neurosql.app.training import QUIET, sets
from neurosql.checkpoint import SCORES, RunFolder
from neurosql.errors import InputError
from neurosql.evaluate import Evaluation, Options
from neurosql.fitted import Run
from neurosql.report import page, pictures


@dataclass(frozen=True)
class Evaluated:
    """The scores of a run, and the files that hold them."""

    found: Evaluation
    pictures: list[str]
    """Names of the pictures in the run's folder."""
    written: list[Path]


def evaluate(
    path: str | Path, against: str | None = None, options: Options | None = None, observer: Observer = QUIET
) -> Evaluated:
    """Score a run on its training images and on images that it was not trained on: its own, or those of `against`."""
    run, folder = runs.open_run(path), RunFolder.existing(path)
    with folder.writing():
        return _evaluated(run, folder, against, options, observer)


def _evaluated(
    run: Run, folder: RunFolder, against: str | None, options: Options | None, observer: Observer
) -> Evaluated:
    train, heldout = sets(run, folder)
    if against is not None:
        heldout = data.load(against)
        if heldout.shape != train.shape:
            raise InputError(f"the samples of {against} have shape {heldout.shape}, but the model's have {train.shape}")
    found = evaluation.evaluate(run, train, heldout, options, progress=observer.progress)
    records = {score.key: score.record() for score in found.scores}
    folder.write_json(SCORES, records)
    drawn = []
    if found.memorisation is not None and found.samples is not None:
        drawn = pictures.draw_copies(run, found.samples, train.x, found.memorisation, folder.path)
    return Evaluated(found, drawn, [folder.path / SCORES, *page.write(run, folder.path, records)])
