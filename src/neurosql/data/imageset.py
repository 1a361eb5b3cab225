"""`ImageSet`, which every method trains on, and how the shape of an array is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from neurosql.data import splits, store
from neurosql.data.columns import Columns, named
from neurosql.data.given import as_pixels, finite, numbers, to_array, top_of
from neurosql.data.listing import Reading
from neurosql.errors import InputError
from neurosql.modality import Modality, of_shape

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
    """n training samples, channels first, with the validation and test parts that the source has, if any.

    Images, signals and volumes lie in [0, 1]. Vectors are any finite reals, standardised by column with `mean` and
    `std`, which are None for everything else.
    """

    pixels: np.ndarray
    """(n, c, *spatial) or (n, p), float32; or uint8 as decoded, possibly a memory map. `x` has them as float32."""
    labels: np.ndarray | None = None
    """(n,) int64 indices into `classes`."""
    classes: tuple[str, ...] = ()
    """The names of the classes."""
    subjects: np.ndarray | None = None
    """(n,) ids of what must not be split between parts, if known: subjects, or groups of near duplicates."""
    layout: str = "nchw"
    """Layout of the array before it was brought to channels first: a key of `LAYOUTS`."""
    mean: np.ndarray | None = None
    std: np.ndarray | None = None
    columns: Columns | None = field(default=None, repr=False)
    """What is known about the columns, if the samples are vectors."""
    source: str = "array"
    """Where the samples came from."""
    names: np.ndarray | None = field(default=None, repr=False)
    """(n,) names of the files, if each sample has one."""
    rows: np.ndarray | None = field(default=None, repr=False)
    """(n,) positions in the source, counted over all its parts; None is 0, 1, 2, ..."""
    validation: ImageSet | None = field(default=None, repr=False)
    """Samples for early stopping and for choosing the best model."""
    test: ImageSet | None = field(default=None, repr=False)
    """Samples that training never sees."""
    reading: Reading | None = field(default=None, repr=False)
    """How the samples were read, if they came from files."""

    def __len__(self) -> int:
        return len(self.pixels)

    @cached_property
    def x(self) -> np.ndarray:
        """(n, c, *spatial) or (n, p), float32. An array that does not fit in memory is mapped from a scratch file."""
        return store.as_float(self.pixels) if self.pixels.dtype == np.uint8 else self.pixels

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample, (c, *spatial) or (p,)."""
        return tuple(self.pixels.shape[1:])

    @property
    def modality(self) -> Modality:
        """What the samples are: images, signals, volumes or vectors."""
        return of_shape(self.shape)

    @property
    def kind(self) -> str:
        """The name of the modality."""
        return self.modality.name

    @property
    def parts(self) -> dict[str, ImageSet]:
        """The existing parts, by name."""
        named = {"train": self, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of shape, samples and labels: two sets with the same fingerprint train the same model."""
        digest = hashlib.sha256(repr((self.pixels.shape, self.classes)).encode())
        digest.update(np.ascontiguousarray(self.pixels).data)
        if self.labels is not None:
            digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()

    def describe(self) -> str:
        """One line that says what the samples of all parts were read as."""
        n, shape = sum(len(part) for part in self.parts.values()), self.shape
        if not self.modality.bounded:
            what = f"{n} vectors of {shape[0]} numbers, standardised by column"
        elif self.modality.is_picture:
            colour = {1: "grey", 3: "colour"}.get(shape[0], f"{shape[0]}-channel")
            what = f"{n} {colour} images of {shape[1]} x {shape[2]} pixels (height x width)"
        else:
            what = f"{n} {self.modality.plural} of {' x '.join(map(str, shape[1:]))}, {shape[0]} channel(s)"
        return what + (f", {len(self.classes)} classes" if self.classes else "")

    def take(self, index: np.ndarray) -> ImageSet:
        """The samples of these indices, in this order, without the other parts."""
        index = np.asarray(index, np.int64)
        optional = {"labels": self.labels, "subjects": self.subjects, "names": self.names}
        taken: dict[str, Any] = {k: None if values is None else values[index] for k, values in optional.items()}
        return replace(
            self,
            pixels=store.gather(self.pixels, index),
            rows=index if self.rows is None else self.rows[index],
            validation=None,
            test=None,
            **taken,
        )

    def split(self, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Sorted indices (train, held out) of a seeded split: `splits.hold_out` of these samples."""
        return splits.hold_out(len(self), fraction, seed, self.labels, self.subjects)

    def divide(self, validation: float, test: float, seed: int) -> ImageSet:
        """The set with its missing parts carved from its own samples: shares of them, by seed.

        Vectors are standardised again, by the columns of the samples that are left for training.
        """
        shares = {"test": test, "validation": validation}
        lacking = {part: share for part, share in shares.items() if getattr(self, part) is None}
        places = splits.divide(len(self), lacking, seed, self.labels, self.subjects)
        carved = {part: self.take(index) for part, index in places.items() if part != "train"}
        if not carved:
            return self
        parts: dict[str, Any] = {"validation": self.validation, "test": self.test} | carved
        if self.reading is not None:
            parts["reading"] = replace(self.reading, divided=True, seed=seed)
        return replace(self.take(places["train"]), **parts).standardised()

    def standardised(self) -> ImageSet:
        """The set with its vectors standardised by the columns of the training part; other samples are unchanged."""
        if self.mean is None or self.std is None:
            return self
        values = {name: part.x * self.std + self.mean for name, part in self.parts.items()}
        new = from_array(values["train"], layout="np")
        columns = None if self.columns is None or new.columns is None else self.columns.within(new.columns)
        others: dict[str, Any] = {
            name: replace(
                part, pixels=((values[name] - new.mean) / new.std).astype(np.float32), mean=new.mean, std=new.std
            )
            for name, part in self.parts.items()
            if name != "train"
        }
        return replace(self, pixels=new.pixels, mean=new.mean, std=new.std, columns=columns, **others)

    def in_units_of(self, like: ImageSet) -> ImageSet:
        """The set, with all its parts, with vectors standardised as in another set."""
        if like.mean is None or self.mean is None or like.std is None or self.std is None or self.shape != like.shape:
            return self
        if np.array_equal(like.mean, self.mean) and np.array_equal(like.std, self.std):
            return self
        pixels = ((self.x * self.std + self.mean - like.mean) / like.std).astype(np.float32)
        others: dict[str, Any] = {n: part.in_units_of(like) for n, part in self.parts.items() if n != "train"}
        return replace(self, pixels=pixels, mean=like.mean, std=like.std, **others)

    def numbered_as(self, like: ImageSet) -> ImageSet:
        """The set, with all its parts, with its classes numbered as in another set, which has all of them."""
        if self.labels is None or self.classes == like.classes:
            return self
        if unknown := sorted(set(self.classes) - set(like.classes)):
            raise InputError(f"no class {unknown[0]!r}: the model has {', '.join(like.classes)}")
        numbers = np.array([like.classes.index(name) for name in self.classes], dtype=np.int64)
        others: dict[str, Any] = {n: part.numbered_as(like) for n, part in self.parts.items() if n != "train"}
        return replace(self, labels=numbers[self.labels], classes=like.classes, **others)

    def labelled(self, labels: Any) -> ImageSet:
        """The set with other labels (n,), or None."""
        codes, classes = encode_labels(labels, len(self))
        return replace(self, labels=codes, classes=classes)

    def joined(self, more: ImageSet) -> ImageSet:
        """These samples and then those of another set in the same units, with the parts of this set."""
        both = self.labels is not None and more.labels is not None
        columns = self.columns if more.columns is None or self.columns is None else self.columns.joined(more.columns)
        return replace(
            self,
            pixels=np.concatenate([self.x, more.x]),
            labels=np.concatenate([self.labels, more.labels]) if both else None,
            classes=self.classes if both else (),
            subjects=None,
            names=None,
            rows=None,
            columns=columns,
            reading=None,
        )

    def split_record(self) -> dict[str, list[int]]:
        """The positions in the source of each part's samples, as in `split.json`."""
        return {
            name: (np.arange(len(part)) if part.rows is None else part.rows).tolist()
            for name, part in self.parts.items()
        }

    def restore(self, x: np.ndarray) -> np.ndarray:
        """Samples of this set's shape, converted back to the layout and units of the caller's array."""
        return to_layout(x if self.mean is None else x * self.std + self.mean, self.layout)

    def restore_new(self, x: np.ndarray) -> np.ndarray:
        """`restore` for new samples: rows of a table stay within the range of each column, and whole where it is."""
        restored = self.restore(x)
        return restored if self.columns is None else self.columns.settled(restored)


def to_layout(x: np.ndarray, layout: str) -> np.ndarray:
    """Channels-first samples in another layout."""
    if layout == "nhw":
        return x[:, 0]
    if layout == "nhwc":
        return np.moveaxis(x, 1, -1)
    return x


def channels_first(x: np.ndarray, layout: str) -> np.ndarray:
    """Samples of a layout as a view with channels first."""
    if layout == "nhw":
        return x[:, None]
    return np.moveaxis(x, -1, 1) if layout == "nhwc" else x


def from_array(
    x: Any,
    labels: Any = None,
    *,
    layout: str | None = None,
    source: str = "array",
    mean: np.ndarray | None = None,
    std: np.ndarray | None = None,
    minimum: int = 1,
    top: int | None = None,
) -> ImageSet:
    """An ImageSet from a numpy array, a torch tensor, or a list of arrays, tensors or Pillow images.

    Without a `layout` the shape decides: (n, p) are vectors and (n, h, w) grey images. With four dimensions, the axis
    of length 1 or 3 has the channels; (n, h, w, c) wins if both axes qualify. Pixels are floats in [0, 1], uint8, or
    other whole numbers: from 0 to 255 if one is above 1, otherwise 0 and 1; `top`, 1 or 255, says which. `mean` and
    `std` standardise vectors by an earlier set's statistics instead of their own.
    """
    array = to_array(x)
    layout = layout or guess_layout(array)
    if layout not in LAYOUTS:
        raise InputError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if array.ndim != RANK[layout]:
        raise InputError(f"layout {layout!r} is for {LAYOUTS[layout]}, got an array of shape {array.shape}")
    if 0 in array.shape[1:]:
        raise InputError(f"0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    if len(array) < minimum:
        raise InputError(f"at least {minimum} samples are needed, got n_samples = {len(array)}")

    columns = None
    if layout == "np":
        values = finite(numbers(array), "values")
        if mean is None or std is None:
            with np.errstate(over="ignore"):
                mean, std = values.mean(0), values.std(0)
            if not np.isfinite(std).all():
                place = int(np.argmin(np.isfinite(std)))
                size = np.abs(values[:, place]).max()
                raise InputError(f"column {place} holds values up to {size:.3g}, too large to standardise: rescale it")
            # A constant column, up to rounding, carries nothing: leave it at zero instead of blowing up its noise.
            std = np.where(std > 1e-12 * np.maximum(1.0, np.abs(mean)), std, 1.0)
        elif values.shape[1] != len(mean):
            raise InputError(
                f"X has {values.shape[1]} features, but NeuroSQL is expecting {len(mean)} features as input"
            )
        samples = ((values - mean) / std).astype(np.float32)
        columns = Columns.of(values, *named(x)) if len(values) else None
    else:
        white = top or top_of(array)
        samples = store.empty(channels_first(array, layout).shape, np.float32)
        for rows in store.pieces(len(array), samples[:1].nbytes):
            samples[rows] = channels_first(as_pixels(array[rows], white, rows.start), layout)
        mean = std = None
    samples = np.ascontiguousarray(samples, dtype=np.float32)
    codes, classes = encode_labels(labels, len(samples))
    return ImageSet(samples, codes, classes, layout=layout, mean=mean, std=std, columns=columns, source=source)


def encode_labels(labels: Any, n: int) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Labels of any discrete kind as int64 codes and the sorted names of the classes."""
    if labels is None:
        return None, ()
    values = to_array(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape != (n,):
        raise InputError(f"labels must have shape ({n},), one per sample, got {values.shape}")
    if values.dtype.kind == "f":
        if not np.isfinite(values).all() or (values != np.round(values)).any():
            raise InputError("labels must be classes (integers or names), got real numbers")
        values = values.astype(np.int64)
    names, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int64), tuple(str(name) for name in names)


def layout_of(shape: tuple[int, ...]) -> str:
    """The layout in which samples of this shape (channels first) are returned: the usual one in files."""
    by_axes = {0: "np", 1: "ncl", 2: "nhw" if shape[0] == 1 else "nhwc", 3: "ncdhw"}
    return by_axes[of_shape(shape).axes]


def guess_layout(array: np.ndarray) -> str:
    """The layout that an array's shape suggests."""
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
            f"can't tell which axis of {array.shape} has the channels: one axis of four must have length 1 or 3"
        )
    hint = "Reshape your data: (n, p), (n, h, w), (n, h, w, c) or (n, c, h, w) is expected"
    raise InputError(f"got an array of {array.ndim} dimension(s), shape {array.shape}. {hint}")
