"""Confidence intervals for means, proportions, unbiased statistics and areas under ROC curves."""

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


def proportion_interval(successes: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval for a proportion: it stays within [0, 1] and holds up near its ends."""
    if n == 0:
        return 0.0, 1.0
    z = float(stats.norm.ppf(0.5 + level / 2))
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # Rounding must not leave the share outside its own interval.
    return max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))


def effective_trials(successes: np.ndarray, groups: np.ndarray) -> float:
    """How many independent trials have a share of successes (n,) as uncertain as that of trials in groups (n,).

    Trials of a group depend on each other, however much. With p the share and n_g the size of group g, of which s_g are
    successes, the variance of p is that of a sum over the G groups,

        V = G / (G - 1) * sum over g of (s_g - n_g p)^2 / n^2,

    and n / (n - 1) * p (1 - p) / V trials have it, which is n if all trials are independent; G, if that is less.
    """
    values = np.asarray(successes, dtype=np.float64)
    ids = np.unique(groups, return_inverse=True)[1]
    count = int(ids.max()) + 1
    if count < 2:
        return 1.0
    share = float(values.mean())
    variance = count / (count - 1) * float((np.bincount(ids, values - share) ** 2).sum()) / len(values) ** 2
    n = len(values)
    return float(count) if variance == 0 else min(float(count), n / (n - 1) * share * (1 - share) / variance)


def auc_interval(
    first: np.ndarray,
    second: np.ndarray,
    groups: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
    level: float = LEVEL,
) -> tuple[float, tuple[float, float]]:
    """The area under the ROC curve, P(x > y) + P(x = y) / 2 for x of `first` (n,) and y of `second` (m,), and its
    interval.

    The variance is DeLong's; with groups, of values that depend on each other (Obuchowski, 1997), the sum over groups
    takes the place of that over values. The interval is Wilson's for the number of trials that has this variance: it
    stays within [0, 1] and holds up near its ends. That number is at most that of all values, or groups.
    """
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    ranks = stats.rankdata(np.concatenate([x, y]))
    above = (ranks[: len(x)] - stats.rankdata(x)) / len(y)
    below = 1 - (ranks[len(x) :] - stats.rankdata(y)) / len(x)
    area = float(above.mean())
    variance, trials = 0.0, 0
    for parts, of in ((above, groups[0]), (below, groups[1])):
        ids = np.arange(len(parts)) if of is None else np.unique(of, return_inverse=True)[1]
        count = int(ids.max()) + 1
        trials += count
        if count < 2:
            return area, (0.0, 1.0)
        sums = np.bincount(ids, parts - area)
        variance += count / (count - 1) * float((sums**2).sum()) / len(parts) ** 2
    effective = trials if variance == 0 else min(trials, area * (1 - area) / variance)
    return area, proportion_interval(area * effective, effective, level)


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
