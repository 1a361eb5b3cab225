"""Copies that were moved or changed a little: a distance between images that sees through that.

The loss l takes a copy that was shifted by a pixel, or mirrored, for another image. Here, images are blurred and halved
in size, so that noise and blur hardly matter, and compared by the Euclidean distance

    d(s, x) = min over t of |f(t s) - f(x)|,    t: as it is, shifted by a pixel (up, down, left, right), mirrored.

The verdict on it is that of memorisation.py: training and held-out images are treated alike, so an honest sample is as
near to the ones as to the others in any distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from neurosql.metrics.memorisation import Look, Memorisation, enough, judged

BLUR, PER_SIDE = 2.0, 14
"""Standard deviation of the blur, in pixels; in images of fewer than 28 pixels per side, the side over 14."""
SHIFTS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
"""Pixels down and across."""
CHUNK = 1024
LOOSE = Look("a training image, as it is, shifted, mirrored, blurred or noisy", level=0.99)


def moved_memorisation(
    samples: np.ndarray, train: np.ndarray, heldout: np.ndarray, subjects: np.ndarray | None = None
) -> Memorisation:
    """`memorisation` of pictures (c, h, w) by the distance d."""
    enough(heldout)
    made, of_train, of_heldout = smoothed(samples), features(train), features(heldout)
    found = judged(
        lambda part: nearest(made, of_train[part]),
        lambda some: nearest(made, of_heldout[some]),
        (len(train), len(heldout)),
        subjects,
    )
    return replace(found, look=LOOSE)


def smoothed(x: np.ndarray) -> np.ndarray:
    """Blurred pictures (n, c, h, w)."""
    sigma = min(BLUR, min(x.shape[2:]) / PER_SIDE)
    return gaussian_filter(np.asarray(x, np.float32), (0, 0, sigma, sigma))


def features(x: np.ndarray) -> Tensor:
    """f(x): pictures (n, c, h, w), blurred and halved in size, as (n, p)."""
    return torch.cat([_halved(smoothed(x[i : i + CHUNK])) for i in range(0, len(x), CHUNK)])


def views(made: np.ndarray) -> Iterator[Tensor]:
    """f(t s) (m, p) of blurred pictures (m, c, h, w), for each t."""
    height, width = made.shape[2:]
    padded = np.pad(made, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    for down, across in SHIFTS:
        yield _halved(padded[:, :, 1 - down : 1 - down + height, 1 - across : 1 - across + width])
    yield _halved(made[..., ::-1])


def nearest(made: np.ndarray, others: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The index of the nearest of the features `others` (k, p) to each of the blurred pictures (m, c, h, w), and its
    distance, (m,) each."""
    places, distances = [], []
    for i in range(0, len(made), CHUNK):
        found = []
        for view in views(made[i : i + CHUNK]):
            at = squares(view, others).argmin(1)
            # Once more for the nearest one: the difference of large squares has no digits left for a copy.
            found.append((at, (view - others[at]).double().norm(dim=1)))
        best = torch.stack([distance for _, distance in found]).argmin(0)
        rows = torch.arange(len(best))
        places.append(torch.stack([at for at, _ in found])[best, rows].numpy())
        distances.append(torch.stack([distance for _, distance in found])[best, rows].numpy())
    return np.concatenate(places), np.concatenate(distances)


def squares(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 of (m, p) and (k, p): (m, k), in the precision of x."""
    middle = y.mean(0)
    a, b = x - middle, y - middle
    return (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp_(min=0)


def _halved(x: np.ndarray) -> Tensor:
    """Pictures (n, c, h, w) at half their size, rounded up, as (n, p)."""
    pixels = torch.from_numpy(np.ascontiguousarray(x))
    return torch.nn.functional.avg_pool2d(pixels, 2, ceil_mode=True).flatten(1)
