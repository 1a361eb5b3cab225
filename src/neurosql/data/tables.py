"""Numeric tables, `.csv`, `.tsv` or `.parquet`: one row per sample, read as a vector."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from neurosql.data.listing import Arrays
from neurosql.data.tree import MAX_MEMBER, Tree, page, words_of
from neurosql.errors import InputError
from neurosql.settings import DataSettings

SUFFIXES = (".csv", ".tsv", ".parquet")
LABELS = ("label", "labels", "class", "target", "y")
SUBJECTS = ("subject", "subject_id", "patient", "patient_id", "group")


def recognises(tree: Tree) -> bool:
    """Whether it is a table."""
    return tree.kind == "file" and tree.path.suffix.lower() in SUFFIXES


def scan(tree: Tree, settings: DataSettings) -> Arrays:
    """The numeric columns. Column label (or class, target, y) holds the classes, and column subject the subjects."""
    path = tree.path
    if tree.kind != "file":
        raise InputError(f"{path} is not a table: give the path of a .csv, .tsv or .parquet file")
    if words := page(path):
        raise InputError(f"{path} can't be read as a table: {words}")
    columns = _parquet(tree) if path.suffix.lower() == ".parquet" else _csv(tree)
    labels = next((columns.pop(name) for name in list(columns) if name.lower() in LABELS), None)
    subjects = next((columns.pop(name) for name in list(columns) if name.lower() in SUBJECTS), None)
    numbers, left_out = {}, []
    for name, values in columns.items():
        try:
            numbers[name] = np.asarray(values).astype(np.float64)
        except (ValueError, TypeError):
            left_out.append(name)
    if not numbers:
        raise InputError(f"{path} has no column of numbers")
    table = np.column_stack(list(numbers.values()))
    notes: list[str] = []
    skipped: list[tuple[str, str]] = []
    if left_out:
        notes.append(f"columns that are not numeric are left out: {', '.join(left_out[:8])}")
    good = np.isfinite(table).all(1)
    if not good.all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        name = list(numbers)[column]
        if not settings.skip_bad:
            raise InputError(
                f"{path} has no number in row {row + 1}, column {name!r}: use --skip-bad to leave such rows out"
            )
        skipped = [(f"row {row + 1}", "has no number in every column") for row in np.flatnonzero(~good)]
        notes.append(f"{len(skipped)} rows without a number in every column are left out")
        table = table[good]
        labels, subjects = (None if v is None else np.asarray(v)[good] for v in (labels, subjects))
    if labels is not None and _are_real(labels):
        notes.append("the label column holds real numbers and is left out")
        labels = None
    groups = None if subjects is None else np.asarray(subjects).astype(str)
    return Arrays(table, labels, groups, layout="np", columns=tuple(numbers), notes=notes, skipped=skipped)


def _csv(tree: Tree) -> dict[str, Any]:
    text = tree.read(tree.entries[0], MAX_MEMBER).decode("utf-8-sig", "replace")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    except csv.Error as error:
        raise InputError(f"{tree.path} is not a readable table: {words_of(error)}") from None
    if not rows:
        raise InputError(f"{tree.path} is empty")
    header = rows.pop(0) if not all(_is_number(cell) for cell in rows[0]) else [str(i) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise InputError(f"{tree.path} has {len(row)} cells in row {number + 1}, but {len(header)} in its header")
    return {
        (name.strip() or str(i)): np.array([row[i].strip() or "nan" for row in rows]) for i, name in enumerate(header)
    }


def _parquet(tree: Tree) -> dict[str, Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError("parquet tables need pyarrow: pip install 'neurosql-torch[parquet]'") from None
    try:
        table = parquet.read_table(tree.path)
        return {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in table.column_names}
    except (ArrowException, OSError, ValueError, TypeError, NotImplementedError, MemoryError) as error:
        raise InputError(f"{tree.path} is not a readable table: {words_of(error)}") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell.strip()
    return True


def _are_real(values: Any) -> bool:
    try:
        numbers = np.asarray(values).astype(np.float64)
    except (ValueError, TypeError):
        return False
    return not np.isfinite(numbers).all() or bool((numbers != np.round(numbers)).any())
