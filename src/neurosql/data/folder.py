"""A folder or archive of images, plain or with one folder per class; either may be inside train, val and test."""

from __future__ import annotations

from neurosql.data.listing import Listing, label_by_folder
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
        raise InputError(f"no images in {str(tree.path)!r}: looked for {', '.join(SUFFIXES)}{hint}")
    return Listing(label_by_folder(found))
