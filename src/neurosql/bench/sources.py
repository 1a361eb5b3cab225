"""Where an experiment's data are, and which of them a run uses for training, validation and test."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurosql import data, files
from neurosql.bench.declare import OF_DIGITS, Job, scale_of
from neurosql.data import mnist_sample, splits
from neurosql.data.imageset import ImageSet
from neurosql.errors import InputError
from neurosql.settings import DataSettings

VARIABLE = "NEUROSQL_DATA"
EMBEDDED = 4096
"""Training digits that come with the package."""
LEAST = 240
"""Samples that are read even for a handful of training images, so that some are left to test on."""


@dataclass(frozen=True)
class Source:
    """How a data set is divided if it has no parts of its own."""

    validation: float = 0.1
    test: float = 0.2
    group: str = "auto"
    credit: str = ""
    """Credit under samples of models that were trained on it."""
    samples_may_be_shared: bool = True
    """Whether pictures of such samples may be published."""


SOURCES = {
    "mnist": Source(),
    "celeba": Source(samples_may_be_shared=False),
    # Its `val` is the test part, and it has few images.
    "afhq": Source(validation=0.05, credit="Models trained on AFHQ cats (Choi et al., StarGAN v2, 2020), CC BY-NC 4.0"),
    # Neighbouring slices of one head must not be on both sides.
    "oasis": Source(
        group="near-duplicates", credit="Models trained on OASIS-1 slices (Marcus et al., 2007), stated licence ODbL"
    ),
}


def path_of(job: Job, root: str | None) -> str | None:
    """The source to read for a job; None if it was not found. `root` holds one folder per data set."""
    if job.data == "mnist" and job.images <= EMBEDDED:
        return mnist_sample.NAME
    root = root or os.environ.get(VARIABLE)
    if root is None or not (Path(root) / job.data).is_dir():
        return None
    return f"{job.data}:{(Path(root) / job.data).resolve()}"


def how_to_get(names: list[str]) -> str:
    """What to do about data sets that were not found."""
    return (
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} not found: give a folder that contains "
        f"{' and '.join(f'{name}/' for name in names)} with --data or in {VARIABLE}"
    )


def read(job: Job, source: str, split: Path) -> ImageSet:
    """A job's images in their parts. The split is drawn by the job's seed and kept in the file `split`."""
    kind = SOURCES[job.data]
    common: dict[str, Any] = {"image_size": None if job.pixels == OF_DIGITS else job.pixels, "group": kind.group}
    if not split.is_file():
        # The embedded digits are divided by their labels alone, and resized only when they are drawn.
        size = None if source == mnist_sample.NAME else common["image_size"]
        wanted = DataSettings(limit=max(3 * job.images, LEAST), **common | {"image_size": size})
        images = data.load(source, seed=job.seed, settings=wanted)
        count = images.reading.found if images.reading else len(images)
        validation, test = (kind.validation, kind.test) if job.samples else (0.0, 0.0)
        parts = images.divide(validation, test, job.seed)
        record: dict[str, Any] = {"count": count} | parts.split_record()
        if not job.samples:
            record = {"count": count, "train": images.split_record()["train"]}
        labels = None if parts.labels is None else parts.labels
        kept = splits.draw(len(record["train"]), job.images, job.seed, labels)
        record["train"] = np.array(record["train"])[kept].tolist()
        for part in ("validation", "test"):
            most = min(scale_of(job.budget).held_out, 20 * job.images)
            if len(record.get(part, [])) > most:
                chosen = splits.draw(len(record[part]), most, job.seed)
                record[part] = np.array(record[part])[chosen].tolist()
        files.replace(split, json.dumps(record).encode())
    images = data.load(source, seed=job.seed, settings=DataSettings(split=str(split), **common))
    if job.samples and images.test is None:
        raise InputError(f"{source} has no images left to test on")
    return images
