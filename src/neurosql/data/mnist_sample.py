"""The embedded sample: 4,096 training and 2,048 test digits of MNIST (see MNIST-SAMPLE.md)."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import numpy as np

from neurosql.data.imageset import ImageSet, from_array

NAME = "mnist-sample"
FILE = "mnist_sample.npz"


def recognises(source: str) -> bool:
    return source == NAME


def read(source: str = NAME, limit: int | None = None) -> ImageSet:
    """The training digits; the test digits are its `heldout`."""
    with files("neurosql.data").joinpath(FILE).open("rb") as file, np.load(file, allow_pickle=False) as parts:
        train, test = (
            from_array(parts[f"{part}_images"], parts[f"{part}_labels"], layout="nhw", source=source)
            for part in ("train", "test")
        )
    return replace(train.take(np.arange(len(train))[:limit]), heldout=test)
