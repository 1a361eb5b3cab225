"""What a model was trained on: the part of `config.json` that says where the samples came from and what they were."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from neurosql.data import ImageSet, load
from neurosql.data.catalogue import absolute
from neurosql.data.listing import Reading
from neurosql.errors import InputError
from neurosql.modality import Modality, of_shape
from neurosql.settings import DataSettings
from neurosql.settings.checks import at_least, check_types

MOST_VALUES = 2**28
"""Values of one sample; a volume of 512 voxels per side has half as many."""


@dataclass(frozen=True)
class Origin:
    """The samples of a run: their source, how they were read, their shape and their counts."""

    source: str
    """As the user gave it."""
    path: str
    """The same with an absolute path."""
    description: str
    """What the samples were read as, in one line."""
    kind: str
    """image, signal, volume or vector."""
    shape: tuple[int, ...]
    """Shape of one sample."""
    layout: str
    """Layout of the array before it was brought to channels first."""
    classes: tuple[str, ...]
    fingerprint: str
    """SHA-256 of the training samples."""
    trained: int
    """Samples that were trained on."""
    heldout: int
    """Samples for validation."""
    test: int
    """Samples that training never sees."""
    reader: str = "array"
    settings: dict[str, Any] = field(default_factory=dict)
    """How the samples were read; empty if they were never on disk."""
    seed: int = 0
    """Seed of the draw and the split."""
    divided: bool = False
    """Whether the parts come from a split file or were carved from the data."""
    preparation: dict[str, Any] = field(default_factory=dict)
    """What was done to every file."""
    notes: list[str] = field(default_factory=list)
    skipped: list[list[str]] = field(default_factory=list)
    """Files that were left out, with the reason."""

    columns: tuple[str, ...] = ()
    """Names of the columns of a table, if it has any."""
    column_types: tuple[str, ...] = ()
    """Their types, if the table was a data frame."""

    @property
    def modality(self) -> Modality:
        """What kind of samples these are."""
        return of_shape(self.shape)

    @classmethod
    def of(cls, images: ImageSet, trained: int, heldout: int) -> Origin:
        """The record of a set, given how many of its samples are trained on and how many are held out."""
        read = images.reading or Reading("array")
        return cls(
            source=images.source,
            path=absolute(images.source),
            description=images.describe(),
            kind=images.kind,
            shape=tuple(images.shape),
            layout=images.layout,
            classes=tuple(images.classes),
            fingerprint=images.fingerprint,
            trained=trained,
            heldout=heldout,
            test=0 if images.test is None else len(images.test),
            reader=read.reader,
            settings=read.settings,
            seed=read.seed,
            divided=read.divided,
            preparation=read.preparation,
            notes=read.all_notes(),
            skipped=[list(pair) for pair in read.skipped],
            columns=() if images.columns is None else images.columns.names,
            column_types=() if images.columns is None else images.columns.types,
        )

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Origin:
        """The origin from a `record`, also one of another version: unknown entries are left out.

        The record may be a stranger's: an InputError says what is wrong with it.
        """
        if not isinstance(record, dict):
            raise InputError(f"the record of the data must be an object, got {type(record).__name__}")
        known = {f.name for f in dataclasses.fields(cls)}
        values = {name: value for name, value in record.items() if name in known}
        tuples = {"shape", "classes"} | ({"columns", "column_types"} & values.keys())
        origin = cls(**values | {name: tuple(values[name]) for name in tuples})
        check_types(origin)
        if not 1 <= len(origin.shape) <= 4 or min(origin.shape) < 1 or math.prod(origin.shape) > MOST_VALUES:
            raise InputError(f"samples can't have the shape {origin.shape}")
        at_least(origin, 0, "trained", "heldout", "test", "seed")
        if len(set(origin.classes)) < len(origin.classes):
            raise InputError("two classes have the same name")
        return origin


class Misfit(InputError):
    """Samples that have another shape than the model's."""

    def __init__(self, origin: Origin, images: ImageSet, source: str) -> None:
        super().__init__(f"the model's samples have shape {origin.shape}, but those of {source} have {images.shape}")
        self.images = images


def alike(
    origin: Origin,
    like: ImageSet,
    source: str,
    limit: int | None = None,
    skip_bad: bool | None = None,
    part: str = "train",
    **changed: Any,
) -> ImageSet:
    """A part of a source, prepared in the same way as the training images, which `like` is an empty set of.

    `skip_bad` is, by default, what it was for the training images; `changed` are other fields of `DataSettings` that
    are not as they were then. Raises `Misfit` if the samples have another shape.
    """
    how = DataSettings.from_record(origin.settings)
    skips = how.skip_bad if skip_bad is None else skip_bad
    how = as_prepared(origin, dataclasses.replace(how, limit=limit, skip_bad=skips, split=None, group="none"))
    images = load(source, settings=dataclasses.replace(how, **changed), like=like)
    if part not in images.parts:
        raise InputError(f"{source} has no {part} part: it has {', '.join(images.parts)}")
    images = images.parts[part]
    if images.shape != origin.shape:
        raise Misfit(origin, images, source)
    return images


def as_prepared(origin: Origin, how: DataSettings) -> DataSettings:
    """How to read samples so that they come out as the training images did."""
    done = origin.preparation
    if how.image_size is None and "image_size" in done:
        how = dataclasses.replace(how, image_size=done["image_size"])
    if how.channels == "auto" and origin.modality.is_picture and done.get("decoder", "image") == "image":
        how = dataclasses.replace(how, channels="colour" if origin.shape[0] == 3 else "grey")
    return how
