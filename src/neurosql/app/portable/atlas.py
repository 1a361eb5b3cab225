"""Samples that are made beforehand on a grid of the plane, for models that a browser can't run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from neurosql.app.explorer import Shown
from neurosql.fitted import Run

LARGEST, SMALLEST = 33, 5
"""Places along each side of the grid."""
MOST_BYTES = 12 * 2**20


@dataclass(frozen=True)
class Atlas:
    """Samples (classes, side, side, *shape) of a grid over a box of the plane, from the low ends of its two axes."""

    values: np.ndarray
    side: int
    box: list[list[float]]
    """[low, high] of both axes of the plane."""


def made(run: Run, description: dict[str, Any]) -> Atlas:
    """The atlas of a model over the plane that its page shows first."""
    classes, dim = run.method.classes or 1, description["dim"]
    each = classes * math.prod(run.data.shape) * (1 if run.data.modality.bounded else 4)
    side = max(SMALLEST, min(LARGEST, math.isqrt(MOST_BYTES // each)))
    ranges = np.array(description["range"], np.float64)
    if dim > 2:
        mean, axes = (np.array(description["main"][part]) for part in ("mean", "axes"))
        # The half-widths of the box of codes, seen along the main directions, reach far beyond the codes.
        half = np.sqrt(((axes * (ranges[:, 1] - ranges[:, 0]) / 2) ** 2).sum(1))
        box = np.stack([-half, half], 1)
    else:
        box = ranges if dim == 2 else np.vstack([ranges, [[-0.5, 0.5]]])
    across, up = (np.linspace(low, high, side) for low, high in box)
    plane = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)
    codes = mean + plane @ axes if dim > 2 else plane[:, :dim]
    parts = []
    for label in range(classes):
        labels = np.full(len(codes), label) if run.method.classes else None
        parts.append(Shown.of(run, run.decode(codes, labels)).values)
    return Atlas(np.stack(parts).reshape(classes, side, side, *run.data.shape), side, box.tolist())
