"""Families of images in [0, 1] that are hard for single precision: flat areas, few levels, faint contrast."""

import numpy as np
from scipy.ndimage import gaussian_filter, zoom

from neurosql.data import load


def _coordinates(shape):
    """Positions along each axis in [0, 1], broadcast to (1, *spatial)."""
    return np.meshgrid(*(np.linspace(0, 1, length) for length in shape[1:]), indexing="ij")


def _noise(n, shape, random):
    return random.random((n, *shape))


def _gradients(n, shape, random):
    """Linear ramps of any direction and height."""
    axes = _coordinates(shape)
    slopes = random.normal(size=(len(axes), n, shape[0], *[1] * len(axes)))
    ramp = sum(slope * axis for slope, axis in zip(slopes, axes)) + random.random((n, shape[0], *[1] * len(axes)))
    return ramp.clip(0, 1)


def _smooth(n, shape, random):
    """Blurred noise stretched to the whole range: like a photograph out of focus."""
    blurred = gaussian_filter(random.random((n, *shape)), (0, 0, *(length / 10 for length in shape[1:])))
    axes = tuple(range(1, blurred.ndim))
    low, high = blurred.min(axes, keepdims=True), blurred.max(axes, keepdims=True)
    return (blurred - low) / np.maximum(high - low, 1e-9)


def _halves(n, shape, random):
    """One side black and the other white, cut across a random axis."""
    images = np.zeros((n, *shape))
    for image in images:
        axis = random.integers(1, image.ndim)
        cut = random.integers(1, image.shape[axis])
        np.moveaxis(image, axis, 0)[cut:] = 1
        if random.random() < 0.5:
            image[:] = 1 - image
    return images


def _cartoons(n, shape, random, levels=(0.2, 0.5, 0.9)):
    """Boxes of a few flat levels on top of each other."""
    images = np.empty((n, *shape))
    for image in images:
        image[:] = random.choice(levels)
        for _ in range(4):
            ends = [sorted(random.integers(0, length + 1, 2)) for length in shape[1:]]
            image[(slice(None), *(slice(*end) for end in ends))] = random.choice(levels)
    return images


def _strokes(n, shape, random):
    """Black lines two pixels wide on white."""
    images = np.ones((n, *shape))
    for image in images:
        for _ in range(3):
            axis = random.integers(1, image.ndim)
            at = random.integers(0, image.shape[axis] - 1)
            np.moveaxis(image, axis, 1)[:, at : at + 2] = 0
    return images


def _constants(n, shape, random):
    return np.zeros((n, *shape)) + random.random((n, *[1] * len(shape)))


def _digits(n, shape, random):
    digits = load("mnist-sample", limit=300).x[random.choice(300, n), 0].astype(np.float64)
    if len(shape) == 2:
        digits = digits[:, 14]
    factors = [1.0, *(length / 28 for length in shape[1:3])]
    resized = zoom(digits, factors[: digits.ndim], order=1).clip(0, 1)
    if len(shape) == 4:
        resized = np.repeat(resized[..., None], shape[3], -1)
    return np.repeat(resized[:, None], shape[0], 1)


def _noisy(make, amount):
    return lambda n, shape, random: (make(n, shape, random) + amount * (random.random((n, *shape)) - 0.5)).clip(0, 1)


FAMILIES = {
    "noise": _noise,
    "gradients": _gradients,
    "smooth": _smooth,
    "8 bits": lambda n, shape, random: np.round(255 * _smooth(n, shape, random)) / 255,
    "halves": _halves,
    "cartoons": _cartoons,
    "levels": lambda n, shape, random: _cartoons(n, shape, random, tuple(random.random(5))),
    "strokes": _strokes,
    "constants": _constants,
    "digits": _digits,
    "inverted digits": lambda n, shape, random: 1 - _digits(n, shape, random),
    "faint": _noisy(_constants, 1e-3),
    "faint halves": _noisy(_halves, 1e-3),
    "faint cartoons": _noisy(_cartoons, 1e-3),
    "weak halves": _noisy(_halves, 0.03),
    "weak cartoons": _noisy(_cartoons, 0.03),
}


def images(family, n, shape, seed=0):
    """(n, *shape) float32 images of a family, shape being (channels, *spatial)."""
    return FAMILIES[family](n, shape, np.random.default_rng(seed)).astype(np.float32)
