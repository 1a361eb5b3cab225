"""NIfTI volumes (`.nii`, `.nii.gz`): whole, or slice by slice along an axis. Needs nibabel."""

from __future__ import annotations

import io
import re

from neurosql.data.decode import HEADER, Bad, need_nibabel, nifti_stream, volume_shape
from neurosql.data.folder import label_by_folder
from neurosql.data.listing import Item, Listing
from neurosql.data.tree import Entry, Tree, words_of
from neurosql.errors import InputError
from neurosql.settings import DataSettings

NAME = "nifti"
SUFFIXES = (".nii", ".nii.gz")
SUBJECT = re.compile(r"(sub-[A-Za-z0-9]+|OAS\d_\d{4})")


def recognises(tree: Tree) -> bool:
    return bool(tree.matching(*SUFFIXES))


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """Volumes, or their slices. A subject is named as in BIDS (sub-01); otherwise each file is one."""
    found = tree.matching(*SUFFIXES)
    if not found:
        raise InputError(f"no .nii or .nii.gz in {str(tree.path)!r}")
    need_nibabel()
    items = label_by_folder(found, _subject)
    # BIDS has a folder a subject and a folder a kind of scan: those are no classes.
    if any(part.startswith("sub-") for item in items for part in (item.label or "").split("/")):
        items = [Item(item.entry, None, item.subject, item.part) for item in items]
    if settings.axis is None:
        return Listing(items, "nifti")
    slices = []
    for item in items:
        for number in range(_depth(tree, item.entry, settings.axis, settings.skip_bad)):
            slices.append(Item(item.entry, item.label, item.subject, item.part, number))
    return Listing(slices, "nifti")


def _subject(entry: Entry) -> str:
    named = SUBJECT.search(entry.name)
    return named.group(1) if named else entry.name


def _depth(tree: Tree, entry: Entry, axis: int, skip_bad: bool) -> int:
    """Slices along an axis of the volume in canonical orientation."""
    nibabel = need_nibabel()
    try:
        path = tree.location(entry)
        with nifti_stream(tree.read(entry, 2**30) if path is None else str(path)) as stream:
            head = stream.read(HEADER)
        shape, _ = volume_shape(head)
        kind = nibabel.Nifti2Header if head[:2] == b"\x1c\x02" else nibabel.Nifti1Header
        affine = kind.from_fileobj(io.BytesIO(head)).get_best_affine()
        # Which of the stored axes runs along the wanted one.
        stored = nibabel.io_orientation(affine)[:, 0].tolist()
        return shape[stored.index(axis)]
    except Exception as error:
        if skip_bad:
            # One slice, which then fails with its reason.
            return 1
        words = str(error) if isinstance(error, Bad) else f"can't be read as a NIfTI volume: {words_of(error)}"
        raise InputError(f"{entry.name} {words}") from None
