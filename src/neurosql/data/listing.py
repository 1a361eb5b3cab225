"""What a reader finds: files to be decoded, or whole arrays, each with labels, subjects and official parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neurosql.data.tree import Entry

PARTS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Item:
    """One sample to be: a file, or a slice of one."""

    entry: Entry
    label: str | None = None
    subject: str | None = None
    part: str = "train"
    slice: int | None = None

    @property
    def name(self) -> str:
        return self.entry.name if self.slice is None else f"{self.entry.name}[{self.slice}]"


@dataclass(frozen=True)
class Listing:
    """Files to be decoded one by one."""

    items: list[Item]
    decoder: str = "image"
    """A key of `decode.DECODERS`."""
    image_size: int | None = None
    """Pixels a side where the user does not say."""
    notes: list[str] = field(default_factory=list)
    """What the user should know before training."""

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class Arrays:
    """Samples that were read at once."""

    values: np.ndarray
    """(n, ...), as `from_array` takes them."""
    labels: Any = None
    """(n,) or None."""
    subjects: np.ndarray | None = None
    parts: np.ndarray | None = None
    """(n,) of `PARTS`."""
    layout: str | None = None
    classes: tuple[str, ...] | None = None
    """Names of the classes 0, 1, ... where the labels are their numbers."""
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Reading:
    """How a source was read: what `config.json` records and the check reports."""

    reader: str
    settings: dict[str, Any] = field(default_factory=dict)
    """The fields of `DataSettings`; a split has a file of its own."""
    seed: int = 0
    """Of the draw and the split."""
    divided: bool = False
    """Whether the parts are those of a split file, or were carved from the data."""
    preparation: dict[str, Any] = field(default_factory=dict)
    """What was done to every file."""
    notes: list[str] = field(default_factory=list)
    """What the user should know before training."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Files that were left out, with the reason."""
    sizes: dict[str, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    remarks: list[tuple[str, str]] = field(default_factory=list)
    found: int = 0
    """Samples in the source, before any limit."""
