r"""Unbiased maximum mean discrepancy, and KID, which is its case of a cubic kernel on features.

    MMD^2 = mean_{i != j} k(x_i, x_j) + mean_{i != j} k(y_i, y_j) - 2 mean_{i, j} k(x_i, y_j)

This is the full U-statistic: the average over all subsets, of which others draw a few at random. Its value may be below
zero. The interval is the jackknife's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neurosql.errors import InputError
from neurosql.metrics.arrays import takes_tensors
from neurosql.metrics.measure import Measure
from neurosql.metrics.neighbours import squared_distances
from neurosql.metrics.statistics import jackknife_interval

Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]


def cubic_kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(<x, y> / p + 1)^3, the kernel of KID."""
    return (x @ y.T / x.shape[1] + 1) ** 3


def gaussian_kernel(bandwidths: tuple[float, ...]) -> Kernel:
    """The mean over bandwidths s of exp(-|x - y|^2 / (2 s^2))."""

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        squares = squared_distances(x, y)
        return np.mean([np.exp(-squares / (2 * s * s)) for s in bandwidths], axis=0)

    return kernel


def median_bandwidths(x: np.ndarray, at_most: int = 1000) -> tuple[float, ...]:
    """Half, once and twice the median distance within x."""
    some = x[:: max(1, len(x) // at_most)]
    squares = squared_distances(some, some)
    middle = float(np.sqrt(np.median(squares[np.triu_indices(len(some), 1)]))) if len(some) > 1 else 1.0
    return tuple(factor * (middle or 1.0) for factor in (0.5, 1.0, 2.0))


@takes_tensors
def mmd(x: np.ndarray, y: np.ndarray, kernel: Kernel, chunk: int = 2048) -> tuple[float, tuple[float, float]]:
    """MMD^2 of features x (n, p) and y (m, p), n and m at least 3, and its 95 % interval."""
    n, m = len(x), len(y)
    if min(n, m) < 3:
        raise InputError(f"MMD needs at least three samples on each side, got {n} and {m}")
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    within_x, within_y = _row_sums(x, kernel, chunk), _row_sums(y, kernel, chunk)
    across_x, across_y = np.zeros(n), np.zeros(m)
    for i in range(0, n, chunk):
        k = kernel(x[i : i + chunk], y)
        across_x[i : i + chunk] = k.sum(1)
        across_y += k.sum(0)
    xx, yy, xy = within_x.sum(), within_y.sum(), across_x.sum()
    value = xx / (n * (n - 1)) + yy / (m * (m - 1)) - 2 * xy / (n * m)
    without_x = (xx - 2 * within_x) / ((n - 1) * (n - 2)) + yy / (m * (m - 1)) - 2 * (xy - across_x) / ((n - 1) * m)
    without_y = xx / (n * (n - 1)) + (yy - 2 * within_y) / ((m - 1) * (m - 2)) - 2 * (xy - across_y) / (n * (m - 1))
    return float(value), jackknife_interval(float(value), without_x, without_y)


def _row_sums(x: np.ndarray, kernel: Kernel, chunk: int) -> np.ndarray:
    """The sum of k(x_i, x_j) over all j other than i, for each i: (n,)."""
    sums = np.empty(len(x))
    for i in range(0, len(x), chunk):
        k = kernel(x[i : i + chunk], x)
        sums[i : i + chunk] = k.sum(1) - k[np.arange(len(k)), np.arange(i, i + len(k))]
    return sums


@takes_tensors
def kid(made: np.ndarray, real: np.ndarray) -> Measure:
    """KID of two sets of features."""
    return Measure(*mmd(made, real, cubic_kernel))


@takes_tensors
def gaussian_mmd(made: np.ndarray, real: np.ndarray) -> Measure:
    """MMD^2 of two sets of features, with Gaussians as wide as the typical distance between real ones."""
    return Measure(*mmd(made, real, gaussian_kernel(median_bandwidths(real))))
