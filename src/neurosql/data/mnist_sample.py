"""The embedded sample: 4,096 training and 2,048 test digits of MNIST (see MNIST-SAMPLE.md)."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from neurosql.data.listing import Arrays

NAME = "mnist-sample"
FILE = "mnist_sample.npz"
# The test digits are in random order: the first ones are for validation, the others for the test.
VALIDATION = 256


def read() -> Arrays:
    """All digits, in the order of their parts."""
    with files("neurosql.data").joinpath(FILE).open("rb") as file, np.load(file, allow_pickle=False) as stored:
        # An array is unpacked each time that it is asked for.
        train, test = stored["train_images"], stored["test_images"]
        labels = np.concatenate([stored["train_labels"], stored["test_labels"]])
    counts = len(train), VALIDATION, len(test) - VALIDATION
    parts = np.repeat(["train", "validation", "test"], counts)
    return Arrays(np.concatenate([train, test]), labels, parts=parts, layout="nhw")
