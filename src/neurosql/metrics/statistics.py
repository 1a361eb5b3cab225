"""Confidence intervals for means, proportions and unbiased statistics."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

LEVEL = 0.95


def mean_interval(values: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """Student's interval for the mean of independent values (n,)."""
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    if n < 2:
        return -math.inf, math.inf
    half = float(stats.t.ppf(0.5 + level / 2, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return float(values.mean()) - half, float(values.mean()) + half


def proportion_interval(successes: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval for a proportion: it stays within [0, 1] and holds up near its ends."""
    if n == 0:
        return 0.0, 1.0
    z = float(stats.norm.ppf(0.5 + level / 2))
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # Rounding must not leave the share outside its own interval.
    return max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))


def jackknife_interval(
    value: float, without_first: np.ndarray, without_second: np.ndarray, level: float = LEVEL
) -> tuple[float, float]:
    """Interval of a two-sample statistic from its values without each element of either sample, (n,) and (m,)."""
    variance = 0.0
    for left_out in (without_first, without_second):
        n = len(left_out)
        if n < 2:
            return -math.inf, math.inf
        variance += (n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum())
    half = float(stats.norm.ppf(0.5 + level / 2)) * math.sqrt(variance)
    return value - half, value + half
