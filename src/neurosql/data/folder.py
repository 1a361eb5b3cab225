"""A folder (or an archive) of images: plain, a folder a class, or either of them below train, val and test."""

from __future__ import annotations

from collections.abc import Callable

from neurosql.data.decode import SUFFIXES
from neurosql.data.listing import Item, Listing
from neurosql.data.tree import Entry, Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

NAME = "folder"
PARTS = {
    **{"train": "train", "training": "train", "test": "test", "testing": "test"},
    **{"val": "validation", "valid": "validation", "validation": "validation", "dev": "validation"},
}


def recognises(tree: Tree) -> bool:
    return tree.kind != "file"


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """All images in the order of their paths. Folders, where every image is in one, are the classes."""
    found = tree.matching(*SUFFIXES)
    if not found:
        other = tree.matching(".npz", ".npy", ".csv", ".parquet", ".zip", ".tar", ".tar.gz")
        hint = f", or give the path of {other[0].name}" if other else ""
        raise InputError(f"no images in {str(tree.path)!r}: looked for {', '.join(SUFFIXES)}{hint}")
    return Listing(label_by_folder(found))


def label_by_folder(found: list[Entry], subject: Callable[[Entry], str | None] = lambda entry: None) -> list[Item]:
    """Items with the official part and the class that their folders name."""
    folders = [entry.parts[:-1] for entry in found]
    # One folder around everything, as archives often have, says nothing.
    depth = 0
    while all(len(parts) > depth for parts in folders) and len({parts[depth] for parts in folders}) == 1:
        depth += 1
    folders = [parts[depth:] for parts in folders]
    official = ["train"] * len(found)
    tops = {parts[0].lower() if parts else "" for parts in folders}
    if len(tops) > 1 and tops <= PARTS.keys() and "train" in {PARTS[top] for top in tops}:
        official = [PARTS[parts[0].lower()] for parts in folders]
        folders = [parts[1:] for parts in folders]
    names = ["/".join(parts) for parts in folders]
    labelled = len(set(names)) > 1 and "" not in names
    return [
        Item(entry, name if labelled else None, subject(entry), part)
        for entry, name, part in zip(found, names, official)
    ]
