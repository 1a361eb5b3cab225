"""The codes of images, seen or unseen, written as a table."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurosql import files
from neurosql import run as runs
from neurosql.app.observer import Observer
from neurosql.app.training import QUIET, stem_of
from neurosql.errors import InputError
from neurosql.origin import alike


@dataclass(frozen=True)
class Encoded:
    """Codes of images, and the file that holds them."""

    codes: np.ndarray
    """(n, d)."""
    losses: np.ndarray
    """(n,): the loss between each image and its reconstruction."""
    labels: np.ndarray | None
    """(n,): names of the classes that a class-conditional model found."""
    names: np.ndarray | None
    """(n,): names of the files, if each image has one."""
    path: Path


def encode(
    path: str | Path,
    source: str,
    limit: int | None = None,
    skip_bad: bool = False,
    part: str = "train",
    out: str | Path | None = None,
    observer: Observer = QUIET,
) -> Encoded:
    """Find the codes of a source's images and write them to a .npz (by default, in the run's folder) or a .csv file."""
    run = runs.open_run(path)
    images = alike(run.data, run.like, source, limit, skip_bad, part)
    target = Path(out) if out else Path(path) / f"codes-{stem_of(source)}.npz"
    if target.suffix not in (".npz", ".csv"):
        raise InputError(f"can't write codes to {target}: give a .npz or a .csv file")
    codes, labels, losses = run.encode(images.x, progress=observer.progress)
    classes = None if labels is None else np.array(run.like.classes)[labels]
    found = Encoded(codes, losses, classes, images.names, target)
    files.replace(target, _npz(found) if target.suffix == ".npz" else _csv(found))
    return found


def _named(found: Encoded) -> dict[str, Any]:
    columns = {"labels": found.labels, "names": found.names}
    return {name: values for name, values in columns.items() if values is not None}


def _npz(found: Encoded) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, codes=found.codes, losses=found.losses, **_named(found))
    return content.getvalue()


def _csv(found: Encoded) -> bytes:
    named = _named(found)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*(f"z{i + 1}" for i in range(found.codes.shape[1])), "loss", *(n.removesuffix("s") for n in named)])
    table.writerows(zip(*found.codes.T.tolist(), found.losses.tolist(), *(v.tolist() for v in named.values())))
    return text.getvalue().encode()
