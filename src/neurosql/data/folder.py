"""A folder or archive of images, plain or with one folder per class; either may be inside train, val and test."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from neurosql.data.listing import Listing, class_folders, label_by_folder
from neurosql.data.tree import Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".pgm", ".ppm")


def recognises(tree: Tree) -> bool:
    """Whether it is a folder or an archive."""
    return tree.kind != "file"


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """All images in the order of their paths. If every image is in a folder, the folders are the classes."""
    found = tree.matching(*SUFFIXES)
    if not found:
        other = tree.matching(".npz", ".npy", ".csv", ".parquet", ".zip", ".tar", ".tar.gz")
        hint = f", or give the path of {other[0].name}" if other else ""
        kinds = Counter(Path(entry.base).suffix.lower() for entry in tree.entries)
        if kinds and not other:
            usual = ", ".join(f"{count:,} {kind or 'without a suffix'}" for kind, count in kinds.most_common(3))
            hint = f", and found other files ({usual}): convert pictures to .png or .jpg"
        raise InputError(f"no images in {str(tree.path)!r}: looked for {', '.join(SUFFIXES)}{hint}")
    _, names = class_folders(found)
    notes = []
    if "" in names and len(set(names)) > 1:
        stray = names.index("")
        notes.append(
            f"{names.count(''):,} of {len(found):,} images are in no class folder, such as {found[stray].name}, so no "
            "image has a label: move them into the folder of their class, or elsewhere"
        )
    ignored = [entry.name for entry in tree.entries if not entry.has_suffix(*SUFFIXES)]
    return Listing(label_by_folder(found), notes=notes, ignored=ignored)
