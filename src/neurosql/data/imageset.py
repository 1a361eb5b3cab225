"""`ImageSet`: what every method trains on, and the reading of an array's shape."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from neurosql.errors import InputError

LAYOUTS = {
    "np": "vectors (n, p)",
    "nhw": "grey images (n, h, w)",
    "nhwc": "images, channels last (n, h, w, c)",
    "nchw": "images, channels first (n, c, h, w)",
    "ncl": "signals (n, c, length)",
    "ncdhw": "volumes (n, c, depth, h, w)",
}
RANK = {"np": 2, "nhw": 3, "ncl": 3, "nhwc": 4, "nchw": 4, "ncdhw": 5}
CHANNELS = (1, 3)


@dataclass(frozen=True)
class ImageSet:
    """n samples as float32, channels first.

    Images, signals and volumes lie in [0, 1]. Vectors are any finite reals, standardised by column with `mean` and
    `std`, which are None for everything else.
    """

    x: np.ndarray
    """(n, c, *spatial) or (n, p), float32."""
    labels: np.ndarray | None = None
    """(n,) int64 indices into `classes`."""
    classes: tuple[str, ...] = ()
    """The names of the classes."""
    subjects: np.ndarray | None = None
    """(n,) subject ids, where they are known."""
    layout: str = "nchw"
    """How the array lay before it was brought to channels first: a key of `LAYOUTS`."""
    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    source: str = "array"
    """Where the samples came from."""
    heldout: ImageSet | None = field(default=None, repr=False)
    """Samples set aside by the source itself, if it has an official test part."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample, (c, *spatial) or (p,)."""
        return tuple(self.x.shape[1:])

    @property
    def kind(self) -> str:
        return {1: "vector", 2: "signal", 3: "image", 4: "volume"}[len(self.shape)]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of shape, samples and labels: two sets with one fingerprint train the same model."""
        digest = hashlib.sha256(repr((self.x.shape, self.classes)).encode())
        digest.update(np.ascontiguousarray(self.x).data)
        if self.labels is not None:
            digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()

    def describe(self) -> str:
        """One line that says what the samples were taken for."""
        n, shape = len(self), self.shape
        if self.kind == "vector":
            what = f"{n} vectors of {shape[0]} numbers, standardised by column"
        elif self.kind == "image":
            colour = {1: "grey", 3: "colour"}.get(shape[0], f"{shape[0]}-channel")
            what = f"{n} {colour} images of {shape[1]} x {shape[2]} pixels (height x width)"
        else:
            what = f"{n} {self.kind}s of {' x '.join(map(str, shape[1:]))}, {shape[0]} channel(s)"
        return what + (f", {len(self.classes)} classes" if self.classes else "")

    def take(self, index: np.ndarray) -> ImageSet:
        """The samples of these indices, in this order."""
        return replace(
            self,
            x=self.x[index],
            labels=None if self.labels is None else self.labels[index],
            subjects=None if self.subjects is None else self.subjects[index],
            heldout=None,
        )

    def split(self, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Sorted indices (train, held out) of a seeded split, with the class proportions kept where there are classes.

        No sample is held out when that would leave fewer than two to train on.
        """
        n = len(self)
        count = min(round(n * fraction), n - 2)
        if count <= 0:
            return np.arange(n), np.arange(0)
        random = np.random.default_rng([seed, 0x5E1D])
        order = random.permutation(n)
        if self.labels is not None:
            # Rank each sample within its class: the first `fraction` of every class is held out.
            ranks = np.empty(n)
            for label in np.unique(self.labels):
                members = order[self.labels[order] == label]
                ranks[members] = (np.arange(len(members)) + 0.5) / len(members)
            order = order[np.argsort(ranks[order], kind="stable")]
        return np.sort(order[count:]), np.sort(order[:count])

    def restore(self, x: np.ndarray) -> np.ndarray:
        """Samples of this set's shape, back in the layout and units that the caller's array had."""
        return to_layout(x if self.mean is None else x * self.std + self.mean, self.layout)


def to_layout(x: np.ndarray, layout: str) -> np.ndarray:
    """Channels-first samples in another layout."""
    if layout == "nhw":
        return x[:, 0]
    if layout == "nhwc":
        return np.moveaxis(x, 1, -1)
    return x


def from_array(
    x: Any,
    labels: Any = None,
    *,
    layout: str | None = None,
    source: str = "array",
    mean: np.ndarray | None = None,
    std: np.ndarray | None = None,
    minimum: int = 1,
) -> ImageSet:
    """An ImageSet from a numpy array or a torch tensor, uint8 or float.

    Without a `layout` the shape decides: (n, p) are vectors, (n, h, w) grey images, and of the four-dimensional
    shapes the axis of length 1 or 3 is the channel; (n, h, w, c) wins where both ends qualify. uint8 is divided
    by 255. `mean` and `std` standardise vectors by an earlier set's statistics instead of their own.
    """
    array = _numpy(x)
    layout = layout or _guess_layout(array)
    if layout not in LAYOUTS:
        raise InputError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if array.ndim != RANK[layout]:
        raise InputError(f"layout {layout!r} is for {LAYOUTS[layout]}, got an array of shape {array.shape}")
    if 0 in array.shape[1:]:
        raise InputError(f"0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if len(array) < minimum:
        raise InputError(f"at least {minimum} samples are needed, got n_samples = {len(array)}")

    if layout == "np":
        values = _finite(array.astype(np.float64), "values")
        if mean is None or std is None:
            mean, std = values.mean(0), values.std(0)
            # A constant column, up to rounding, carries nothing: leave it at zero instead of blowing up its noise.
            std = np.where(std > 1e-12 * np.maximum(1.0, np.abs(mean)), std, 1.0)
        elif values.shape[1] != len(mean):
            raise InputError(
                f"X has {values.shape[1]} features, but NeuroSQL is expecting {len(mean)} features as input"
            )
        samples = ((values - mean) / std).astype(np.float32)
    else:
        samples = _pixels(array)
        if layout == "nhw":
            samples = samples[:, None]
        elif layout == "nhwc":
            samples = np.moveaxis(samples, -1, 1)
        mean = std = None
    samples = np.ascontiguousarray(samples, dtype=np.float32)
    codes, classes = encode_labels(labels, len(samples))
    return ImageSet(samples, codes, classes, layout=layout, mean=mean, std=std, source=source)


def spread(n: int, limit: int | None) -> np.ndarray:
    """At most `limit` of n indices, evenly spaced, so that data sorted by class keep all their classes."""
    return np.linspace(0, n - 1, n if limit is None else min(limit, n)).round().astype(np.int64)


def encode_labels(labels: Any, n: int) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Labels of any discrete kind as int64 codes and the sorted names of the classes."""
    if labels is None:
        return None, ()
    values = np.asarray(_numpy(labels))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,):
        raise InputError(f"labels must be one a sample, shape ({n},), got shape {values.shape}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all() or (values != np.round(values)).any():
            raise InputError("labels must be classes (integers or names), got real numbers")
        values = values.astype(np.int64)
    names, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), tuple(str(name) for name in names)


def _numpy(x: Any) -> np.ndarray:
    if hasattr(x, "detach"):
        x = x.detach().cpu().numpy()
    array = np.asarray(x)
    if array.dtype.kind == "c":
        raise InputError("Complex data not supported: give real numbers")
    return array


def _guess_layout(array: np.ndarray) -> str:
    if array.ndim == 2:
        return "np"
    if array.ndim == 3:
        return "nhw"
    if array.ndim == 4:
        if array.shape[3] in CHANNELS:
            return "nhwc"
        if array.shape[1] in CHANNELS:
            return "nchw"
        raise InputError(
            f"can't tell the channels of shape {array.shape}: one axis of a 4-dimensional array must have length 1 or 3"
        )
    hint = "Reshape your data: (n, p), (n, h, w), (n, h, w, c) or (n, c, h, w) is expected"
    raise InputError(f"got an array of {array.ndim} dimension(s), shape {array.shape}. {hint}")


def _finite(values: np.ndarray, what: str) -> np.ndarray:
    good = np.isfinite(values)
    if not good.all():
        where = int(np.argwhere(~good)[0][0])
        kind = "NaN" if np.isnan(values[~good]).any() else "infinity"
        raise InputError(f"{what} must be finite, got {kind} in sample {where}")
    return values


def _pixels(array: np.ndarray) -> np.ndarray:
    """Pixels as float32 in [0, 1]."""
    if array.dtype == np.uint8:
        return array.astype(np.float32) / np.float32(255)
    if array.dtype == np.bool_:
        return array.astype(np.float32)
    if array.dtype.kind not in "fiu":
        raise InputError(f"pixels must be uint8 or float, got {array.dtype}")
    pixels = _finite(array, "pixels").astype(np.float32)
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 0.0)
    if low < -1e-6 or high > 1 + 1e-6:
        raise InputError(
            f"pixels must lie in [0, 1] (or be uint8), got values from {low:g} to {high:g}: rescale them first"
        )
    return pixels.clip(0, 1)
