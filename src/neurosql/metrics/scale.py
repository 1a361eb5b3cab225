"""Where a score lies between the worst and the best. Nothing here imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from neurosql.metrics.records import TWO_REAL, Reference
from neurosql.metrics.score import Score

DECADES = 2
"""A distance without a worst value is drawn on a logarithmic scale from 100 times the best possible to once."""


@dataclass(frozen=True)
class Scale:
    """A score on a line from 0, the worst, to 1, the best; what lies beyond an end is drawn at the end."""

    at: float
    reference: float | None
    """Where the figure beside the score lies."""
    between: tuple[float, float] | None
    """Where its interval lies."""
    worst: str
    best: str


def scale_of(score: Score) -> Scale | None:
    """The score between worst and best; None if its record says too little."""
    record, reference = score.known, score.reference
    if record is None or not math.isfinite(score.value):
        return None
    if record.scale is None:
        return _times(score, reference)
    worst, best = record.scale
    if score.floor is not None and reference is not None:
        # From what nothing learned gets; or to what a perfect model gets, where that is far from the end of the scale.
        worst = score.floor if reference.end == "worst" else worst
        best = score.floor if reference is TWO_REAL else best
    if (best - worst) * (record.scale[1] - record.scale[0]) <= 0:
        # A reference beyond the other end, as that of a handful of pairs can be, leaves no room to draw in.
        return None

    def place(value: float) -> float:
        if record.direction == "none":
            value = min(value, best * best / value) if value > 0 else worst
        return min(1.0, max(0.0, (value - worst) / (best - worst)))

    mark = None if score.floor is None else place(score.floor)
    return Scale(place(score.value), mark, _between(score, place), f"{worst:.3g}", f"{best:.3g}")


def _times(score: Score, reference: Reference | None) -> Scale | None:
    """How many times the distance between two sets of real images; that is never taken for less than its noise."""
    if score.floor is None or reference is None or reference.end != "best" or score.direction != "lower":
        return None
    low, high = score.floor_interval or score.interval or (0.0, 0.0)
    unit = max(abs(score.floor), (high - low) / 2)
    if not 0 < unit < math.inf:
        return None

    def place(value: float) -> float:
        return 1 - min(1.0, max(0.0, math.log10(max(value, unit) / unit) / DECADES))

    return Scale(place(score.value), 1.0, _between(score, place), f"{10**DECADES} times real vs. real", "real vs. real")


def _between(score: Score, place: Callable[[float], float]) -> tuple[float, float] | None:
    if score.interval is None or not all(map(math.isfinite, score.interval)):
        return None
    low, high = sorted(map(place, score.interval))
    return low, high
