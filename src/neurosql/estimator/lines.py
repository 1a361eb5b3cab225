"""Straight lines through the latent space, between samples or codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neurosql.data.given import to_array
from neurosql.data.imageset import RANK, from_array
from neurosql.errors import InputError

if TYPE_CHECKING:
    from neurosql.estimator.neurosql import NeuroSQL


def between(
    model: NeuroSQL, a: Any, b: Any, steps: int, label: Any, codes: bool | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Codes (steps, d) from a to b, both included, and their class numbers; a and b are as `interpolate` takes them."""
    if steps < 2:
        raise InputError(f"steps must be at least 2, the two ends, got {steps}")
    (first, one), (last, other) = (_end(model, end, label, codes) for end in (a, b))
    if one is not None and other is not None and one != other:
        names = " and ".join(model.run_.like.classes[number] for number in (one, other))
        raise InputError(f"the ends are of two classes, {names}: give the label of the samples between them")
    share = np.linspace(0, 1, steps, dtype=np.float32)[:, None]
    return (1 - share) * first + share * last, None if one is None else np.full(steps, one)


def _end(model: NeuroSQL, end: Any, label: Any, codes: bool | None) -> tuple[np.ndarray, int | None]:
    """The code (d,) of one end of a line, and its class number."""
    run, dim = model.run_, model.run_.settings.generator.dim
    number = run.class_number(label)
    unknown = bool(run.method.classes) and number is None
    if isinstance(end, (int, np.integer)):
        return _known(model, int(end), number, unknown)
    array = to_array(end)
    fits = array.size == dim and array.ndim < 3
    if codes is None and fits and array.size == int(np.prod(run.data.shape)):
        raise InputError(f"samples and codes both have {dim} numbers: give codes=True or codes=False")
    if codes and not fits:
        raise InputError(f"a code must have shape ({dim},), got {array.shape}")
    if codes or (codes is None and fits):
        if unknown:
            raise InputError("a class-conditional model needs the class of the codes: give label")
        return array.reshape(-1).astype(np.float32), number
    like, single = run.like, array.ndim == RANK[run.like.layout] - 1
    sample = from_array(array[None] if single else array, layout=like.layout, mean=like.mean, std=like.std)
    if len(sample) != 1:
        raise InputError(f"each end must be one sample, got {len(sample)}")
    found, classes, _ = model._encode(sample, label)
    return found[0], None if classes is None else int(classes[0])


def _known(model: NeuroSQL, place: int, number: int | None, unknown: bool) -> tuple[np.ndarray, int | None]:
    """The code and the class number of a sample that was given to `fit`."""
    if not 0 <= place < len(model.codes_):
        raise InputError(f"there are samples 0 to {len(model.codes_) - 1}, got {place}")
    if not unknown:
        return model.codes_[place], number
    row, labels = np.flatnonzero(model.run_.index == place), model.run_.labels
    if labels is None or not len(row):
        raise InputError(f"the class of sample {place} is not known: give the label")
    return model.codes_[place], int(labels[row[0]])
