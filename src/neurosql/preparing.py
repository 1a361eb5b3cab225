"""A model before its first step: the split, what `auto` stands for, and the memory that it will need."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from neurosql import dimension, estimate, held, memory, methods, precision, prior, ranks
from neurosql.data import ImageSet
from neurosql.data.account import account
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.methods.base import Task
from neurosql.origin import Origin
from neurosql.restoring import device_of
from neurosql.settings import Settings

NO_LABELS = "conditional=True needs labels: one folder per class, 'labels' in the .npz, or y; else leave it out"


def prepare(
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
    settings = precision.resolved(settings, precision.has_bfloat16(device))
    x, y = held.tensors(images, index, device, settings.own)
    settings, notes = dimension.resolved(settings, x, law)
    classes = len(images.classes) if conditional else None
    sizes = [len(x)] if y is None or not conditional else torch.bincount(y.cpu()).tolist()
    if not begun:
        settings, changed = estimate.fitting(settings, sizes, math.prod(images.shape))
        notes += changed
    if ranks.here().several:
        # What depends on the memory of a machine, its processor or its rounding, is rank 0's to choose.
        settings = Settings.from_sections(settings.method, ranks.here().tell({}, settings.sections())[1])
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


def summary(run: Run, images: ImageSet) -> str:
    """What the user reads before training begins."""
    parts = account(images, run.data.trained, run.data.heldout)
    lines = [f"data       {run.data.description}", f"parts      {parts}"]
    if run.settings.method != Settings.method:
        lines.append(f"method     {run.settings.method}, {run.method.title}")
    lines += [f"{name:<10} {fact}" for name, fact in run.method.facts().items()]
    if run.expected_memory:
        lines.append(f"memory     about {memory.figure(run.expected_memory)}")
    return "\n".join(lines + [f"note       {note}" for note in (*run.notes, *run.method.notes())])
