"""MedMNIST: one `.npz` file per set, with `train_images`, `train_labels`, `val_...` and `test_...`, 2-d or 3-d."""

from __future__ import annotations

import math

import numpy as np

from neurosql.data import apart
from neurosql.data.arrays import array, keys, npz
from neurosql.data.listing import Arrays
from neurosql.data.tree import Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

PARTS = {"train": "train", "val": "validation", "test": "test"}


def recognises(tree: Tree) -> bool:
    """Whether it is a `.npz` file with the arrays of MedMNIST."""
    return tree.kind == "file" and tree.path.suffix.lower() == ".npz" and "train_images" in apart.keys(tree.path)


def scan(tree: Tree, settings: DataSettings) -> Arrays:
    """Images or volumes of the official parts. Labels are left out if a sample has several."""
    path = tree.path
    found = keys(path)
    if "train_images" not in found:
        raise InputError(f"{path} is not MedMNIST: it has no 'train_images'")
    with npz(path) as stored:
        images = {part: array(stored, f"{part}_images") for part in PARTS if f"{part}_images" in found}
        labels = {part: array(stored, f"{part}_labels") for part in images if f"{part}_labels" in found}
    if not all(array.ndim for array in (*images.values(), *labels.values())):
        raise InputError(
            f"{path} must have one image and one label per sample, but one of its arrays is a single value"
        )
    shapes = {part: array.shape[1:] for part, array in images.items()}
    if len(set(shapes.values())) > 1:
        raise InputError(f"the parts of {path} have different shapes: {shapes}")
    if len({array.dtype for array in images.values()}) > 1:
        raise InputError(f"the parts of {path} have different types")
    values = np.concatenate(list(images.values()))
    notes, named = [], None
    if labels.keys() == images.keys():
        columns = {part: array.reshape(len(array), math.prod(array.shape[1:])) for part, array in labels.items()}
        if {len(columns[p]) == len(images[p]) for p in images} != {True}:
            raise InputError(f"{path} must have one row of labels per image")
        if all(array.shape[1] == 1 for array in columns.values()):
            named = np.concatenate([array[:, 0] for array in columns.values()])
        else:
            notes.append("each sample has several labels, so they are left out")
    layout = None
    if values.ndim == 4 and values.shape[-1] not in (1, 3):
        layout, values = "ncdhw", values[:, None]
    parts = np.repeat([PARTS[part] for part in images], [len(array) for array in images.values()])
    return Arrays(values, named, parts=parts, layout=layout, notes=notes)
