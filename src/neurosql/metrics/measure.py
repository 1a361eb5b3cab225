"""What the function of a score returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurosql.metrics.statistics import mean_interval


@dataclass(frozen=True)
class Measure:
    """What the function of a score found: a value, and whatever else it knows about it."""

    value: float
    interval: tuple[float, float] | None = None
    spread: float | None = None
    floor: float | None = None
    n: int | None = None
    """Number of generated images, if the family does not know it."""
    n_real: int = 0
    note: str = ""
    floor_interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, found: Any) -> Measure:
        """The measure of a number, or the mean of an array (n,), one value per image, with its interval."""
        if isinstance(found, Measure):
            return found
        values = np.asarray(found)
        if values.ndim == 0:
            return cls(float(values))
        return cls(float(values.mean()), interval=mean_interval(values))


def with_floor(found: Measure, floor: Measure | None, n_real: int = 0) -> Measure:
    """What was found, with the floor that its family knows."""
    if floor is not None:
        found = replace(found, floor=floor.value, floor_interval=floor.interval)
    return replace(found, n_real=n_real or found.n_real)
