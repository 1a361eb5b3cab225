r"""Frechet distance between Gaussians fitted to two sets of features.

    d^2 = |m_x - m_y|^2 + tr(S_x + S_y - 2 (S_x S_y)^(1/2))

It is biased upwards at finite n, so it has no interval; a floor at the same n, real against real, shows by how much.
"""

from __future__ import annotations

import numpy as np

from neurosql.errors import InputError
from neurosql.metrics.arrays import takes_tensors


@takes_tensors
def frechet_distance(x: np.ndarray, y: np.ndarray) -> float:
    """d^2 for features x (n, p) and y (m, p), n and m at least 2; covariances with n - 1."""
    if min(len(x), len(y)) < 2:
        raise InputError(f"a Frechet distance needs at least two samples on each side, got {len(x)} and {len(y)}")
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    means = x.mean(0) - y.mean(0)
    # tr (S_x S_y)^(1/2) is the sum of the singular values of A B^T for any factors S_x = A^T A and S_y = B^T B. The
    # triangular factors of the centred data are such factors: no matrix is squared, and few samples need no care.
    centred = ((z - z.mean(0)) / np.sqrt(len(z) - 1) for z in (x, y))
    a, b = (np.asarray(np.linalg.qr(z, mode="r")) for z in centred)
    traces = float((a**2).sum() + (b**2).sum())
    cross = float(np.linalg.svd(a @ b.T, compute_uv=False).sum())
    return max(0.0, float(means @ means) + traces - 2 * cross)
