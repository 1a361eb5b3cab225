r"""Precision, recall, density and coverage: four scores from nearest neighbours.

With r_k(x) the distance from a real x to its k-th nearest real neighbour, and likewise for generated y:

    precision   share of generated y that are within r_k(x) of some real x
    recall      share of real x that are within r_k(y) of some generated y
    density     mean over y of 1/k times the number of real x with y within r_k(x)
    coverage    share of real x with a generated y within r_k(x)
"""

from __future__ import annotations

import numpy as np

from neurosql.errors import InputError
from neurosql.metrics.arrays import takes_tensors

NEAREST = 5


@takes_tensors
def prdc(real: np.ndarray, generated: np.ndarray, k: int = NEAREST, chunk: int = 1024) -> dict[str, float]:
    """The four scores for features real (n, p) and generated (m, p)."""
    n, m = len(real), len(generated)
    if min(n, m) <= k:
        raise InputError(f"neighbours need more than {k} samples on each side, got {n} and {m}")
    real, generated = np.asarray(real, dtype=np.float64), np.asarray(generated, dtype=np.float64)
    real_radius, generated_radius = _radii(real, k, chunk), _radii(generated, k, chunk)
    hits = np.zeros(m)
    recalled, covered = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for i in range(0, n, chunk):
        squares = squared_distances(real[i : i + chunk], generated)
        inside = squares <= real_radius[i : i + chunk, None]
        hits += inside.sum(0)
        recalled[i : i + chunk] = (squares <= generated_radius).any(1)
        covered[i : i + chunk] = inside.any(1)
    return {
        "precision": float((hits > 0).mean()),
        "recall": float(recalled.mean()),
        "density": float(hits.mean() / k),
        "coverage": float(covered.mean()),
    }


@takes_tensors
def neighbours(made: np.ndarray, real: np.ndarray) -> dict[str, float]:
    """The four scores of two sets of features."""
    return prdc(real, made)


def squared_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|x_i - y_j|^2 for x (n, p) and y (m, p): (n, m)."""
    return np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T, 0)


def _radii(x: np.ndarray, k: int, chunk: int) -> np.ndarray:
    """The squared distance of each x to its k-th nearest neighbour, (n,)."""
    radii = np.empty(len(x))
    for i in range(0, len(x), chunk):
        squares = squared_distances(x[i : i + chunk], x)
        squares[np.arange(len(squares)), np.arange(i, i + len(squares))] = np.inf
        radii[i : i + chunk] = np.partition(squares, k - 1, axis=1)[:, k - 1]
    return radii
