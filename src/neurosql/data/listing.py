"""What a reader finds: files to be decoded, or whole arrays, each with labels, subjects and official parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neurosql.data.archive import printable
from neurosql.data.tree import Entry
from neurosql.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from neurosql.data.store import OnDisk

PARTS = ("train", "validation", "test")
MAX_SAMPLES = 10_000_000
"""Most samples of a source: each costs memory of its own, however small it is."""
FOLDERS = {
    **{"train": "train", "training": "train", "test": "test", "testing": "test"},
    **{"val": "validation", "valid": "validation", "validation": "validation", "dev": "validation"},
}
"""Names of folders, with the part that each stands for."""


@dataclass(frozen=True, slots=True)
class Item:
    """One sample to read: a file, or a slice of one."""

    entry: Entry
    label: str | None = None
    subject: str | None = None
    part: str = "train"
    slice: int | None = None

    @property
    def name(self) -> str:
        """The name of the file, with the number of the slice."""
        return self.entry.name if self.slice is None else f"{self.entry.name}[{self.slice}]"


@dataclass(frozen=True)
class Listing:
    """Files to be decoded one by one."""

    items: list[Item]
    image_size: int | None = None
    """Pixels per side, unless the user asks for another size."""
    notes: list[str] = field(default_factory=list)
    """What the user should know before training."""
    ignored: list[str] = field(default_factory=list)
    """Files of the source that are none of the items."""

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class Arrays:
    """Samples that were read all at once."""

    values: np.ndarray | OnDisk
    """(n, ...), as `from_array` takes them."""
    labels: Any = None
    """(n,) or None."""
    subjects: np.ndarray | None = None
    parts: np.ndarray | None = None
    """(n,) of `PARTS`."""
    layout: str | None = None
    classes: tuple[str, ...] | None = None
    """Names of the classes 0, 1, ..., if the labels are class numbers."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a table."""
    notes: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Samples of the source that are not among the values, with the reason."""

    def __len__(self) -> int:
        return len(self.values)

    def check(self, source: str) -> None:
        """Refuse arrays without values, or with more samples than can be kept account of."""
        shape = tuple(self.values.shape)
        if 0 in shape or not self.values.dtype.itemsize:
            raise InputError(f"{source} holds no values: its array has shape {shape}")
        if shape and shape[0] > MAX_SAMPLES:
            raise InputError(f"{source} holds {shape[0]:,} samples: more than {MAX_SAMPLES:,} are refused")


@dataclass(frozen=True)
class Reading:
    """How a source was read: what `config.json` records and the check reports."""

    reader: str
    settings: dict[str, Any] = field(default_factory=dict)
    """The fields of `DataSettings` and of the reader's own settings; a split has its own file."""
    seed: int = 0
    """Seed of the draw and the split."""
    divided: bool = False
    """Whether the parts come from a split file or were carved from the data."""
    preparation: dict[str, Any] = field(default_factory=dict)
    """What was done to every file."""
    notes: list[str] = field(default_factory=list)
    """What the user should know before training."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Files that were left out, with the reason."""
    sizes: dict[str, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    """How many files have each number of channels, before all get the same number."""
    remarks: list[tuple[str, str]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    """Files of the source that are no samples."""
    found: int = 0
    """Samples in the source, before any limit."""
    undrawn: int = 0
    """Samples that a limit or a split leaves out."""

    def all_notes(self) -> list[str]:
        """The notes, and one on each kind of file that is not used as it is."""
        notes = list(self.notes)
        if self.skipped:
            first = printable(self.skipped[0][0])
            notes.append(f"{len(self.skipped)} files can't be read and were left out; the first is {first}")
        if self.remarks:
            notes.append(f"{len(self.remarks)} files are odd: {printable(self.remarks[0][0])} is {self.remarks[0][1]}")
        return notes


def class_folders(found: list[Entry]) -> tuple[list[str], list[str]]:
    """The official part of each file, and the folders around it that may name its class ('' if there are none)."""
    folders = [entry.parts[:-1] for entry in found]
    # A folder around everything, as archives often have, is not a class.
    depth = 0
    while all(len(parts) > depth for parts in folders) and len({parts[depth] for parts in folders}) == 1:
        depth += 1
    folders = [parts[depth:] for parts in folders]
    official = ["train"] * len(found)
    tops = {parts[0].lower() if parts else "" for parts in folders}
    if len(tops) > 1 and tops <= FOLDERS.keys() and "train" in {FOLDERS[top] for top in tops}:
        official = [FOLDERS[parts[0].lower()] for parts in folders]
        folders = [parts[1:] for parts in folders]
    return official, ["/".join(parts) for parts in folders]


def label_by_folder(found: list[Entry], subject: Callable[[Entry], str | None] = lambda entry: None) -> list[Item]:
    """Items, each with the official part and the class that its folders give."""
    official, names = class_folders(found)
    labelled = len(set(names)) > 1 and "" not in names
    return [
        Item(entry, name if labelled else None, subject(entry), part)
        for entry, name, part in zip(found, names, official)
    ]
