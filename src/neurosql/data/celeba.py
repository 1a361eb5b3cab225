"""CelebA: `img_align_celeba/*.jpg` (Kaggle nests this folder once more), with `list_eval_partition.txt` or `.csv`."""

from __future__ import annotations

import re

from neurosql.data.listing import Item, Listing
from neurosql.data.tree import Entry, Tree, page_in
from neurosql.errors import InputError
from neurosql.settings import DataSettings

FOLDER = "img_align_celeba"
PARTITION = ("list_eval_partition.txt", "list_eval_partition.csv")
IDENTITY = "identity_celeba.txt"
PARTS = {"0": "train", "1": "validation", "2": "test"}


def recognises(tree: Tree) -> bool:
    """Whether there is a folder or a partition file of CelebA."""
    return any(FOLDER in entry.parts[:-1] or entry.base in PARTITION for entry in tree.entries)


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """Unlabelled faces, divided by the official partition if its file is there."""
    found = [entry for entry in tree.matching(".jpg", ".jpeg", ".png") if re.match(r"\d+\.", entry.base)]
    if not found:
        packed = next((entry for entry in tree.entries if entry.base == f"{FOLDER}.zip"), None)
        hint = f": give the archive itself, {tree.path / packed.name}" if packed and tree.kind == "folder" else ""
        raise InputError(f"{str(tree.path)!r} has no images such as {FOLDER}/000001.jpg{hint}")
    notes = []
    stem = {entry.name: entry.stem for entry in found}
    parts: dict[str, str] = {}
    listed = next((entry for entry in tree.entries if entry.base in PARTITION), None)
    if listed is None:
        notes.append("there is no list_eval_partition.txt, so the parts are drawn by seed")
    else:
        parts = _table(tree, listed, re.compile(r"^\s*(\d+)\.(?:jpg|png)[\s,]+([012])\s*$"))
        missing = len(parts.keys() - set(stem.values()))
        unlisted = sum(name not in parts for name in stem.values())
        if missing:
            notes.append(f"{missing:,} of {len(parts):,} images in {listed.base} are missing")
        if unlisted:
            notes.append(f"{unlisted:,} images are not in {listed.base} and count as training images")
    people = next((entry for entry in tree.entries if entry.base.lower() == IDENTITY), None)
    subjects = {} if people is None else _table(tree, people, re.compile(r"^\s*(\d+)\.jpg\s+(\d+)\s*$"))
    items = [
        Item(entry, None, subjects.get(stem[entry.name]), PARTS[parts.get(stem[entry.name], "0")]) for entry in found
    ]
    return Listing(items, image_size=64, notes=notes)


def _table(tree: Tree, entry: Entry, row: re.Pattern[str]) -> dict[str, str]:
    """The second column of a table, by image number."""
    content = tree.read(entry)
    if words := page_in(content[:256]):
        raise InputError(f"{entry.name} in {str(tree.path)!r} can't be read: {words}")
    lines = content.decode("utf-8", "replace").splitlines()
    rows = [match.groups() for line in lines if (match := row.match(line))]
    if not rows or len(rows) < len(lines) - 2:
        raise InputError(
            f"{entry.name} in {str(tree.path)!r} is damaged: only {len(rows)} of its {len(lines)} lines can be read"
        )
    return {match[0]: match[1] for match in rows}
