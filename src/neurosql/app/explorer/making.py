"""What a model makes, and the training images that are like it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from PIL import Image

from neurosql import errors, memory
from neurosql.app.explorer.opened import Opened, Shown
from neurosql.errors import InputError
from neurosql.methods.base import USUAL
from neurosql.metrics.memorisation import EXPECTED, LEAST_HELD_OUT, TINY, memorisation, nearest_images
from neurosql.settings import Sampling

MOST_VALUES = 2**24
"""Values of the samples in one answer."""
MOST_CODES = 4096
MOST_PAIRS = 2**21
"""Pairs of images that may be compared to find out what is suspiciously close."""
REFERENCE = 256
"""Draws that say what is suspiciously close."""
LARGEST = 1e6
"""Numbers of a code that are larger are refused."""


@dataclass(frozen=True)
class Drawn:
    """New samples; what is not known is None."""

    samples: Shown
    codes: np.ndarray | None
    labels: np.ndarray | None
    nearest: np.ndarray | None
    """(m,): the training image that is nearest to each, by the loss of the model."""
    losses: np.ndarray | None
    suspicious: np.ndarray | None
    """(m,) bool: whether it is so near that it may be a copy."""
    verdict: str = ""


def decode(opened: Opened, codes: np.ndarray, labels: np.ndarray | None = None) -> Shown:
    """What the model makes of codes (m, d), of these classes (m,) if it is class-conditional."""
    run = opened.run
    if not run.has_codes:
        raise InputError(f"{run.settings.method} has no codes: samples come from noise")
    _check_size(opened, len(codes))
    if codes.size and not float(np.abs(codes).max()) <= LARGEST:
        raise InputError(f"numbers of a code must lie between -{LARGEST:g} and {LARGEST:g}")
    if run.method.classes:
        if labels is None:
            raise InputError("the model is class-conditional: say which class")
        _check_classes(labels, run.method.classes)
    else:
        labels = None
    with torch.inference_mode():
        return Shown.of(run, run.decode(codes, labels))


def _check_classes(labels: np.ndarray, classes: int) -> None:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(f"classes must be numbers from 0 to {classes - 1}")


def _check_size(opened: Opened, n: int) -> None:
    most = min(MOST_CODES, max(1, MOST_VALUES // math.prod(opened.run.data.shape)))
    if not 1 <= n <= most:
        raise InputError(f"the number of samples must be from 1 to {most:,}, got {n}")


def reach(opened: Opened, codes: np.ndarray) -> np.ndarray:
    """Whether samples come from the neighbourhood of each of these codes (m, d): (m,) bool."""
    if not opened.run.has_codes or codes.ndim != 2 or codes.shape[1] != opened.run.settings.generator.dim:
        raise InputError(f"codes must have shape (n, {opened.run.settings.generator.dim}), got {codes.shape}")
    if len(codes) > 16 * MOST_CODES:
        raise InputError(f"at most {16 * MOST_CODES:,} codes can be asked for at a time, got {len(codes):,}")
    return opened.run.method.reaches(torch.from_numpy(codes)).cpu().numpy()


def images(opened: Opened, indices: np.ndarray, side: int | None = None) -> Shown:
    """Training samples of these numbers; pictures are shrunk to `side` pixels along the longer side, if given."""
    train = opened.train()
    _check_size(opened, len(indices))
    if not 0 <= int(indices.min()) <= int(indices.max()) < len(train):
        raise InputError(f"training samples have numbers from 0 to {len(train) - 1}")
    taken = train.take(indices)
    if not taken.modality.bounded:
        return Shown.of(opened.run, taken.x)
    pixels = taken.pixels if taken.pixels.dtype == np.uint8 else Shown.of(opened.run, taken.x).values
    if side is not None and taken.modality.is_picture and max(taken.shape[1:]) > side:
        pixels = np.stack([_shrunk(image, side) for image in pixels])
    return Shown(pixels)


def _shrunk(image: np.ndarray, side: int) -> np.ndarray:
    """A picture (c, h, w) of bytes with `side` pixels along its longer side."""
    height, width = image.shape[1:]
    factor = side / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return np.stack([np.asarray(Image.fromarray(plane).resize(size, Image.Resampling.BOX)) for plane in image])


def neighbours(opened: Opened, index: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The training samples most like one, nearest first, without itself: their numbers and losses, (count,) each."""
    n = len(opened.run.index)
    if not 0 <= index < n:
        raise InputError(f"training samples have numbers from 0 to {n - 1}, got {index}")
    x = opened.train().take(np.array([index])).x
    losses = _losses(opened, x)
    losses[index] = np.inf
    places = nearest_of(losses, min(count, n - 1))
    return places, losses[places]


def _losses(opened: Opened, x: np.ndarray) -> np.ndarray:
    """The loss between one sample (1, *shape) and each training sample: (n,)."""
    train = opened.train()
    with torch.inference_mode():
        return opened.run.method.cost.matrix(x, train.pixels)[0].cpu().numpy()


def nearest_of(losses: np.ndarray, count: int) -> np.ndarray:
    """The places of the smallest of these losses (n,), smallest first."""
    some = np.argpartition(losses, count - 1)[:count] if 0 < count < len(losses) else np.arange(len(losses))[:count]
    return some[np.argsort(losses[some], kind="stable")]


def like(opened: Opened, x: np.ndarray, count: int) -> np.ndarray:
    """The training samples most like one sample (1, *shape), nearest first."""
    return nearest_of(_losses(opened, x), min(count, len(opened.run.index)))


def sample(opened: Opened, n: int, seed: int, how: Sampling = USUAL, label: int | None = None) -> Drawn:
    """New samples and, if the training images are there, which of those is nearest to each."""
    run = opened.run
    _check_size(opened, n)
    memory.require(8 * n * math.prod(run.data.shape), f"{n:,} samples", "draw fewer")
    random = torch.Generator().manual_seed(errors.seed("seed", seed))
    how = run.usual if how == USUAL else how
    if label is not None:
        if not run.method.classes:
            raise InputError("this model is not class-conditional: it can't be asked for a class")
        _check_classes(np.array([label]), run.method.classes)
    with torch.no_grad():
        if run.has_codes:
            codes, labels = run.method.draw_codes(n, label, random, how)
            made = run.method.decode(codes, labels)
        else:
            codes = None
            made, labels = run.method.sample(n, label, random, how)
    x = made.cpu().numpy()
    drawn = Drawn(
        Shown.of(run, x),
        None if codes is None else codes.cpu().float().numpy(),
        None if labels is None else labels.cpu().numpy().astype(np.int32),
        *(None, None, None),
    )
    return drawn if run.shared or opened.images().train is None else _compared(opened, drawn, x)


def _compared(opened: Opened, drawn: Drawn, x: np.ndarray) -> Drawn:
    """The same samples with the nearest training image of each and, if some were held out, which may be copies."""
    cost, train, unseen = opened.run.method.cost, opened.train(), opened.images().unseen
    nearest, losses = nearest_images(cost, x, train.pixels)
    suspicious, verdict = None, "Images that the model has not seen are missing, so nothing says what is too close."
    if unseen is not None and len(unseen) >= LEAST_HELD_OUT:
        threshold, heldout = _threshold(opened)
        apart = nearest_images(cost, x, unseen.take(heldout).pixels)[1]
        suspicious = losses / np.maximum(apart, TINY) < threshold
        count, by_chance = int(suspicious.sum()), f"about {100 * EXPECTED:.0f} % are by chance"
        words = (
            "None of these samples is" if not count else f"{count} of {len(x)} samples {'is' if count == 1 else 'are'}"
        )
        verdict = f"{words} suspiciously close to a training image; {by_chance}."
    return Drawn(
        drawn.samples,
        drawn.codes,
        drawn.labels,
        nearest.astype(np.int32),
        losses.astype(np.float32),
        suspicious,
        verdict,
    )


@lru_cache(maxsize=8)
def _threshold(opened: Opened) -> tuple[float, np.ndarray]:
    """The ratio of losses below which a sample is suspicious, and the held-out images that it is measured against."""
    run, train, unseen = opened.run, opened.train(), opened.images().unseen
    assert unseen is not None
    draws = max(32, min(REFERENCE, MOST_PAIRS // (len(train) + len(unseen))))
    samples = run.draw(draws, seed=0)[0]
    found = memorisation(run.method.cost, samples, train.x, unseen.x, train.subjects)
    return found.threshold, np.arange(found.heldout) * len(unseen) // found.heldout
