"""NIfTI volumes (`.nii`, `.nii.gz`): whole, or slice by slice along an axis."""

from __future__ import annotations

import re
from dataclasses import dataclass

from neurosql.data.listing import Item, Listing, label_by_folder
from neurosql.data.tree import MAX_ENTRIES, Entry, Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

SUFFIXES = (".nii", ".nii.gz")
SUBJECT = re.compile(r"(sub-[A-Za-z0-9]+|OAS\d_\d{4})")


@dataclass(frozen=True)
class NiftiSettings:
    """How NIfTI volumes are read."""

    axis: int | None = None
    """NIfTI: read the slices along this axis (0, 1 or 2) as images; by default whole volumes."""
    window: tuple[float, float] | None = None
    """NIfTI: intensities that become 0 and 1; by default each volume's 0.5 and 99.5 percentiles."""

    def check(self) -> None:
        """Refuse what can't be used."""
        if self.axis not in (None, 0, 1, 2):
            raise InputError(f"axis must be 0, 1 or 2, got {self.axis}")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise InputError(f"window must be two increasing numbers, got {self.window[0]} and {self.window[1]}")


def recognises(tree: Tree) -> bool:
    """Whether there are NIfTI files."""
    return bool(tree.matching(*SUFFIXES))


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """Volumes, or their slices. Names such as sub-01 (BIDS) give the subjects; otherwise each file is one."""
    from neurosql.data import volume

    found = tree.matching(*SUFFIXES)
    if not found:
        raise InputError(f"no .nii or .nii.gz in {str(tree.path)!r}")
    volume.need_nibabel()
    items = label_by_folder(found, _subject)
    # BIDS has one folder per subject and one per kind of scan: those are not classes.
    if any(part.startswith("sub-") for item in items for part in (item.label or "").split("/")):
        items = [Item(item.entry, None, item.subject, item.part) for item in items]
    axis = settings.of(NiftiSettings).axis
    if axis is None:
        return Listing(items)
    from neurosql.data import apart

    slices = []
    depths = apart.depths(tree.path, [item.entry.name for item in items], axis)
    for item in items:
        for number in range(depths[item.entry.name]):
            slices.append(Item(item.entry, item.label, item.subject, item.part, number))
        if len(slices) > MAX_ENTRIES:
            raise InputError(f"{str(tree.path)!r} holds more than {MAX_ENTRIES:,} slices")
    return Listing(slices)


def _subject(entry: Entry) -> str:
    named = SUBJECT.search(entry.name)
    return named.group(1) if named else entry.name


def depth(tree: Tree, entry: Entry, axis: int) -> int:
    """The number of slices along an axis of the volume in a file."""
    from neurosql.data import volume

    path = tree.location(entry)
    try:
        return volume.depth(tree.read(entry, volume.MAX_VOLUME) if path is None else str(path), axis)
    except Exception:
        # One slice, which then fails with its reason, like every other bad file.
        return 1
