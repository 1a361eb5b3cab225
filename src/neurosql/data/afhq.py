"""Animal faces: `train|val/cat|dog|wild/*.jpg` (version 1), or PNG with `test` in place of `val` (version 2)."""

from __future__ import annotations

from neurosql.data.folder import SUFFIXES
from neurosql.data.listing import Item, Listing
from neurosql.data.tree import Entry, Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

ANIMALS = ("cat", "dog", "wild")
# Results are reported on the authors' `val`: it is a test part by another name.
PARTS = {"train": "train", "val": "test", "test": "test"}


def recognises(tree: Tree) -> bool:
    """Whether there are images in folders with AFHQ's names."""
    return any(_place(entry) for entry in tree.matching(*SUFFIXES))


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """Faces by animal, in the official parts."""
    items = []
    for entry in tree.matching(*SUFFIXES):
        if place := _place(entry):
            items.append(Item(entry, place[1], part=PARTS[place[0]]))
    if not items:
        raise InputError(f"{str(tree.path)!r} is not AFHQ: no train/cat, train/dog or train/wild with images")
    if len({item.label for item in items}) == 1:
        items = [Item(item.entry, part=item.part) for item in items]
    return Listing(items, image_size=64)


def _place(entry: Entry) -> tuple[str, str] | None:
    """The folder of the part and that of the animal, or None."""
    parts = entry.parts
    if len(parts) >= 3 and parts[-3].lower() in PARTS and parts[-2].lower() in ANIMALS:
        return parts[-3].lower(), parts[-2].lower()
    return None
