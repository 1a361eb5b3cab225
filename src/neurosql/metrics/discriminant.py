"""A linear discriminant of two groups, with covariances shrunk as Ledoit and Wolf do.

scikit-learn's is the same (solver `lsqr`, shrinkage `auto`), but for a hundred images it spends most of its time on
checks, and an evaluation fits dozens.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lstsq


def tells(train: np.ndarray, second: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Whether each row of `test` (m, p) is rather of the second group; `second` (n,) says it of each row of `train`.

    Row x is of the second group if x'w > (a + b)'w / 2 - log(n_b / n_a), with S w = b - a: a and b are the means of the
    groups, S is the mean of their covariances by their sizes n_a and n_b.
    """
    groups = train[~second], train[second]
    shares = [len(group) / len(train) for group in groups]
    means = [group.mean(0) for group in groups]
    covariance = sum(share * shrunk_covariance(group) for share, group in zip(shares, groups))
    weights = lstsq(covariance, means[1] - means[0], check_finite=False)[0]
    threshold = (means[0] + means[1]) @ weights / 2 - np.log(shares[1] / shares[0])
    return np.asarray(test @ weights > threshold)


def shrunk_covariance(x: np.ndarray) -> np.ndarray:
    """The covariance (p, p) of the rows of x (n, p), shrunk in units of each column's standard deviation.

    The share of the way to a multiple of the identity is that of Ledoit and Wolf (2004).
    """
    n, p = x.shape
    mean, variance = x.mean(0), x.var(0)
    rounding = np.finfo(x.dtype).eps * n
    # A column whose variance is that of rounding is constant.
    scale = np.sqrt(np.where(variance <= rounding * variance + (rounding * mean) ** 2, 1.0, variance))
    z = (x - mean) / scale
    empirical = z.T @ z / n
    mean_variance = float(np.trace(empirical)) / p
    norm = float(np.square(empirical).sum())
    distance = (norm - p * mean_variance**2) / p
    # The sum over all entries of the covariance of its own estimate, from the fourth moments.
    error = (float(np.square(np.square(z).sum(1)).sum()) / n - norm) / (p * n)
    share = min(error, distance) / distance if distance > 0 else 0.0
    return np.asarray(np.outer(scale, scale) * ((1 - share) * empirical + share * mean_variance * np.eye(p)))
