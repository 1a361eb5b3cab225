"""Is any sample a copy? Distances to the nearest training image, set against what held-out images have.

A held-out image was not trained on, so its distance to the nearest training image is what an honest sample may have. A
sample is suspicious when it is nearer to its training image than all but 1 % of the held-out images are to theirs. By
chance 1 % of honest samples are; more than that, beyond what chance explains, is a sign.

What this does not show: that nothing about a training image can be inferred from the model (that would need
membership-inference tests or differential privacy), nor copies under a transformation that the distance does not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from neurosql.cost import Cost
from neurosql.errors import InputError
from neurosql.metrics.statistics import proportion_interval

EXPECTED = 0.01
CLEAR = 0.05
IDENTICAL = 1e-3

Verdict = Literal["no sign", "some", "clear"]


@dataclass(frozen=True, eq=False)
class Memorisation:
    """Nearest training images of samples and of held-out images."""

    nearest: np.ndarray
    """(m,) int64: the training image nearest to each sample."""
    distances: np.ndarray
    """(m,): the loss l between each sample and that image."""
    heldout_distances: np.ndarray
    """(k,): the same for held-out images."""
    threshold: float
    """The distance that 1 % of the held-out images go below."""
    suspicious: np.ndarray
    """(s,) int64: samples below the threshold, nearest first."""

    @property
    def share(self) -> float:
        """Share of samples that are suspicious; 0.01 is what chance gives."""
        return len(self.suspicious) / len(self.distances)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the share."""
        return proportion_interval(len(self.suspicious), len(self.distances))

    @property
    def verdict(self) -> Verdict:
        """No sign of memorisation, some, or clear memorisation."""
        low, _ = self.interval
        if low > CLEAR or (self.distances < IDENTICAL * max(float(np.median(self.heldout_distances)), 1e-12)).any():
            return "clear"
        # The threshold is itself an estimate from the held-out images: allow for its own sampling error.
        _, most = proportion_interval(round(EXPECTED * len(self.heldout_distances)), len(self.heldout_distances))
        return "some" if low > most else "no sign"

    def sentence(self) -> str:
        """The verdict in words, with what it rests on."""
        low, high = self.interval
        return (
            f"memorisation: {self.verdict} ({100 * self.share:.1f} % of {len(self.distances)} samples are nearer to a "
            f"training image than 99 % of {len(self.heldout_distances)} held-out images are; "
            f"95 % interval {100 * low:.1f} to {100 * high:.1f} %, 1 % by chance)"
        )


def memorisation(cost: Cost, samples: np.ndarray, train: np.ndarray, heldout: np.ndarray) -> Memorisation:
    """Compare samples (m, *shape) and held-out images (k, *shape) with training images (n, *shape) by the loss l."""
    if len(heldout) < 20:
        raise InputError(f"memorisation is judged against held-out images: at least 20 are needed, got {len(heldout)}")
    nearest, distances = nearest_images(cost, samples, train)
    _, apart = nearest_images(cost, heldout, train)
    threshold = float(np.quantile(apart, EXPECTED))
    below = np.flatnonzero(distances < threshold)
    return Memorisation(nearest, distances, apart, threshold, below[np.argsort(distances[below], kind="stable")])


def nearest_images(cost: Cost, x: np.ndarray, among: np.ndarray, rows: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """For each x (m, ...) the place of the nearest of `among` (n, ...) and the loss between them, (m,) each."""
    others = torch.from_numpy(np.ascontiguousarray(among))
    places, distances = [], []
    for i in range(0, len(x), rows):
        costs = cost.matrix(torch.from_numpy(np.ascontiguousarray(x[i : i + rows])), others)
        found = costs.min(1)
        places.append(found.indices.numpy())
        distances.append(found.values.double().numpy())
    return np.concatenate(places), np.concatenate(distances)
