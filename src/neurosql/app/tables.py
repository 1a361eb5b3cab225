"""Codes as tables: a .csv file for people and spreadsheets, or a .npz file of arrays."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from neurosql import files
from neurosql.errors import InputError

SUFFIXES = (".npz", ".csv")


def check_target(target: Path) -> None:
    """Refuse a path that a table can't be written to."""
    if target.suffix not in SUFFIXES:
        raise InputError(f"can't write codes to {target}: give a .npz or a .csv file")


def write(target: Path, columns: Mapping[str, np.ndarray], singular: Mapping[str, str]) -> None:
    """Write columns (n,) or (n, k), by name: as they are to a .npz file, or to a .csv file with a row per sample.

    In the .csv file, column `codes` (n, d) becomes z1, z2, ... and the others have the names in `singular`.
    """
    if target.suffix == ".npz":
        content = io.BytesIO()
        np.savez_compressed(content, **dict(columns))  # type: ignore[arg-type]
        files.replace(target, content.getvalue())
        return
    heads: list[str] = []
    cells: list[list[object]] = []
    for name, values in columns.items():
        if values.ndim == 2:
            heads += [f"z{i + 1}" for i in range(values.shape[1])]
            cells += values.T.tolist()
        else:
            heads.append(singular.get(name, name))
            cells.append(values.tolist())
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(heads)
    table.writerows(zip(*cells))
    # Names of files need not be text.
    files.replace(target, text.getvalue().encode("utf-8", "surrogateescape"))
