"""OASIS brain slices as on Kaggle: four folders by degree of dementia, in all their spellings."""

from __future__ import annotations

import re

from neurosql.data.folder import SUFFIXES
from neurosql.data.listing import FOLDERS, Item, Listing
from neurosql.data.tree import Entry, Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

CLASSES = {
    "non": "Non Demented",
    "verymild": "Very mild Dementia",
    "mild": "Mild Dementia",
    "moderate": "Moderate Dementia",
}
SUBJECT = re.compile(r"(OAS\d_\d{4})_(MR\d+)", re.IGNORECASE)


def recognises(tree: Tree) -> bool:
    """Whether there are images in folders of at least two degrees of dementia."""
    return len({_class(entry) for entry in tree.matching(*SUFFIXES)} - {None}) > 1


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """Slices by class; the subject is in the file's name, such as OAS1_0028_MR1_mpr-1_100.jpg."""
    items = []
    for entry in tree.matching(*SUFFIXES):
        if label := _class(entry):
            named = SUBJECT.match(entry.base)
            items.append(Item(entry, label, named.group(1).upper() if named else None, _part(entry)))
    if not items:
        raise InputError(f"{str(tree.path)!r} is not OASIS: no folder such as 'Non Demented' with images")
    notes = []
    nameless = sum(item.subject is None for item in items)
    if nameless and settings.group != "near-duplicates":
        notes.append(
            f"{nameless:,} slices have no subject id in their names, so neighbouring slices of one person may be in "
            "different parts: --group near-duplicates keeps lookalikes together"
        )
    return Listing(items, image_size=64, notes=notes)


def _class(entry: Entry) -> str | None:
    for folder in reversed(entry.parts[:-1]):
        letters = re.sub(r"[^a-z]", "", folder.lower())
        if match := re.fullmatch(r"(non|verymild|mild|moderate)(demented|dementia|dement)", letters):
            return CLASSES[match.group(1)]
    return None


def _part(entry: Entry) -> str:
    return next((FOLDERS[folder.lower()] for folder in entry.parts[:-1] if folder.lower() in FOLDERS), "train")
