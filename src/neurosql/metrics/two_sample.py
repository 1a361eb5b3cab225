"""The classifier two-sample test: can a classifier tell generated images from real ones?"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import StratifiedKFold

from neurosql.errors import InputError
from neurosql.metrics.arrays import takes_tensors
from neurosql.metrics.discriminant import tells
from neurosql.metrics.measure import Measure
from neurosql.metrics.statistics import proportion_interval

FOLDS = 5


@takes_tensors
def two_sample_accuracy(real: np.ndarray, generated: np.ndarray, seed: int = 0) -> tuple[float, tuple[float, float]]:
    """Cross-validated accuracy of a linear discriminant on features (n, p) and (m, p), and its 95 % interval.

    The larger set is cut to the size of the other. 0.5 is chance: the two sets look alike to the classifier. 1 means
    that every image gives itself away.
    """
    n = min(len(real), len(generated))
    if n < FOLDS:
        raise InputError(f"the two-sample test needs at least {FOLDS} samples on each side, got {n}")
    random = np.random.default_rng(seed)
    x = np.concatenate([part[random.permutation(len(part))[:n]] for part in (real, generated)]).astype(np.float64)
    y = np.repeat([0, 1], n)
    right = 0
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, y):
        right += int((tells(x[train], y[train] == 1, x[test]) == y[test]).sum())
    return right / (2 * n), proportion_interval(right, 2 * n)


@takes_tensors
def told_apart(made: np.ndarray, real: np.ndarray, seed: int) -> Measure:
    """How well two sets of features can be told apart."""
    return Measure(*two_sample_accuracy(real, made, seed))
