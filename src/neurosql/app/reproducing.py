"""Train a run again from its record, and compare: the weights, the codes and the history, bit by bit."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurosql import circumstances
from neurosql import run as runs
from neurosql.app.observer import Observer
from neurosql.app.training import QUIET, _again, finish
from neurosql.checkpoint import CODES, MODEL, RunFolder
from neurosql.errors import InputError

ALLOWED = 0.1
"""Largest relative difference of the last epoch's loss under other circumstances: another machine, other versions."""


@dataclass(frozen=True)
class Compared:
    """One part of two runs."""

    name: str
    equal: bool
    """Whether all bits are the same."""
    words: str
    """The result in a few words."""


@dataclass(frozen=True)
class Reproduced:
    """A run and its repetition."""

    parts: tuple[Compared, ...]
    """Weights, codes and history."""
    reasons: tuple[str, ...]
    """What differs in the circumstances, a few words each."""
    loss: float
    """Relative difference of the loss in the last epoch."""
    path: Path | None = None
    """Where the repetition is, if it was kept."""

    @property
    def equal(self) -> bool:
        """Whether all bits are the same."""
        return all(part.equal for part in self.parts)

    @property
    def as_promised(self) -> bool:
        """Whether the repetition is what docs/reproducing.md promises.

        That is the same bits under the same circumstances, and about the same loss under others.
        """
        return self.equal or (bool(self.reasons) and self.loss <= ALLOWED)


def reproduce(
    path: str | Path, out: str | Path | None = None, source: str | None = None, observer: Observer = QUIET
) -> Reproduced:
    """Train a finished run again, from its record, and compare.

    `source` is where the training samples are, if they have moved. The repetition is written to `out`, a new folder; by
    default it is not kept. It uses as many threads as the run did.
    """
    folder = RunFolder.existing(path)
    if not runs.is_finished(folder):
        raise InputError(f"{path} is not finished: finish it first, with `neurosql resume {path}`")
    config = folder.config()
    settings, origin = runs.settings_of(config), runs.origin_of(config)
    if sum(record.get("epoch") == 1 and record.get("phase") == "main" for record in folder.history()) > 1:
        raise InputError(f"{path} went on from an earlier model, which is not in its folder: it can't be trained again")
    if source is None and not origin.settings:
        raise InputError(f"{path} was trained on samples given in Python: save them to a file, and give it with --data")
    images = _again(folder, source or origin.path)
    if images.fingerprint != origin.fingerprint:
        raise InputError(
            f"{images.source} does not hold the samples that {path} was trained on: give their path with --data"
        )
    with circumstances.as_recorded(config), tempfile.TemporaryDirectory() as scratch:
        reasons = circumstances.differences(config)
        if settings.training.device != "cpu":
            reasons.append(f"device {settings.training.device}, on which sums may be added up in any order")
        if settings.training.seconds is not None:
            reasons.append(f"a budget of {settings.training.seconds:g} seconds, in which another run takes other steps")
        target = Path(out) if out else Path(scratch) / "run"
        run = runs.train(images, settings, target, progress=observer.progress, say=observer.say, hear=observer.epoch)
        again = RunFolder(target)
        if out:
            finish(run, images.x[run.index], again)
        parts = (_tensors("weights", MODEL, folder, again), _tensors("codes", CODES, folder, again))
        first, second = folder.history(), again.history()
    return Reproduced(
        (*parts, _history(first, second)), tuple(reasons), _loss_apart(first, second), Path(out) if out else None
    )


def _tensors(name: str, file: str, first: RunFolder, second: RunFolder) -> Compared:
    """Whether all tensors of a file are the same; if not, where they differ most."""
    a, b = first.read_tensors(file)[0], second.read_tensors(file)[0]
    if a.keys() != b.keys() or any(a[key].shape != b[key].shape for key in a):
        return Compared(name, False, "other tensors, or other shapes")
    if all(_same_bits(a[key], b[key]) for key in a):
        return Compared(name, True, "the same, bit for bit")
    apart = {key: float((a[key].double() - b[key].double()).abs().max()) for key in a if a[key].numel()}
    worst = max(apart, key=lambda key: apart[key])
    count = sum(not _same_bits(a[key], b[key]) for key in a)
    return Compared(name, False, f"{count} of {len(a)} tensors differ, {worst} most: by {apart[worst]:.2g}")


def _same_bits(a: Tensor, b: Tensor) -> bool:
    # Not torch.equal: a figure that was not computed is NaN in both.
    return a.dtype == b.dtype and bool((a.contiguous().view(torch.uint8) == b.contiguous().view(torch.uint8)).all())


def _history(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> Compared:
    """Whether all epochs have the same figures, apart from seconds; if not, from which epoch on they differ."""
    a, b = ([{k: v for k, v in record.items() if k != "seconds"} for record in records] for records in (first, second))
    if a == b:
        return Compared("history", True, f"the same in all {len(a)} epochs")
    if len(a) != len(b):
        return Compared("history", False, f"{len(a)} epochs then, {len(b)} now")
    where = next(number for number, (x, y) in enumerate(zip(a, b)) if x != y)
    return Compared("history", False, f"differs from epoch {where + 1} of {len(a)} on")


def _loss_apart(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> float:
    """Relative difference of the loss in the last epoch."""
    if not first or not second or "loss" not in first[-1] or "loss" not in second[-1]:
        return 0.0
    a, b = first[-1]["loss"], second[-1]["loss"]
    return abs(a - b) / max(abs(a), abs(b), 1e-12)
