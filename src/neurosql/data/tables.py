"""Numeric tables, `.csv`, `.tsv` or `.parquet`: one row per sample, read as a vector.

Rows are read in blocks and each block becomes numbers at once, so that memory stays near that of the table.
"""

from __future__ import annotations

import csv
import io
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from neurosql import intake
from neurosql.data import store
from neurosql.data.archive import printable, words_of
from neurosql.data.listing import MAX_SAMPLES, Arrays
from neurosql.data.tree import MAX_MEMBER, Tree, page
from neurosql.errors import InputError
from neurosql.settings import DataSettings

SUFFIXES = (".csv", ".tsv", ".parquet")
LABELS = ("label", "labels", "class", "target", "y")
SUBJECTS = ("subject", "subject_id", "patient", "patient_id", "group")
BLOCK = 2**18
"""Cells that become numbers at once."""
MAX_LINE = 2**24
"""Most characters of a line."""
MAX_COLUMNS = 100_000
SECONDS = 600
"""A table that takes longer to read is refused."""
COPIES = 4
"""How many times its numbers a table takes while it is read and standardised."""


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
    try:
        with intake.regular(path) as file:
            columns = (_parquet if path.suffix.lower() == ".parquet" else _csv)(path, file).joined()
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or words_of(error)}") from None
    labels, subjects = _taken(columns, LABELS), _taken(columns, SUBJECTS)
    numbers, left_out = {}, []
    for name, values in columns.items():
        found = None if values is None else _as_numbers(values)
        if found is None:
            left_out.append(name)
        else:
            numbers[name] = found
    if not numbers:
        raise InputError(f"{path} has no column of numbers")
    table = np.column_stack(list(numbers.values()))
    notes: list[str] = []
    skipped: list[tuple[str, str]] = []
    if left_out:
        named = printable(", ".join(name[:40] for name in left_out[:8]))
        notes.append(f"columns that are not numeric are left out: {named}")
    good = np.isfinite(table).all(1)
    if not good.all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        name = list(numbers)[column]
        if not settings.skip_bad:
            raise InputError(
                f"{path} has no number in row {row + 1}, column {name[:40]!r}: use --skip-bad to leave such rows out"
            )
        skipped = [(f"row {row + 1}", "has no number in every column") for row in np.flatnonzero(~good)]
        notes.append(f"{len(skipped)} rows without a number in every column are left out")
        table = table[good]
        labels, subjects = (None if v is None else np.asarray(v)[good] for v in (labels, subjects))
    if not len(table):
        raise InputError(f"{path} has no row with a number in every column")
    if labels is not None and _are_real(labels):
        notes.append("the label column holds real numbers and is left out")
        labels = None
    try:
        groups = None if subjects is None else np.asarray(subjects).astype(str)
    except (ValueError, TypeError):
        raise InputError(f"{path}: the subjects must be names or numbers") from None
    return Arrays(table, labels, groups, layout="np", columns=tuple(numbers), notes=notes, skipped=skipped)


def _taken(columns: dict[str, np.ndarray | None], names: Sequence[str]) -> np.ndarray | None:
    """Take the column with the first of these names out of a table. A column `y` beside a `label` is a number."""
    found = next((own for name in names for own in columns if own.lower() == name), None)
    return None if found is None else columns.pop(found)


class _Columns:
    """The columns of a table while it is read: numbers, classes and subjects; other words are not kept."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, list(names)
        self.rows = 0
        self.until = time.monotonic() + SECONDS
        if len(self.names) > MAX_COLUMNS:
            raise InputError(f"{path} has {len(self.names):,} columns: more than {MAX_COLUMNS:,} are refused")
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            places = " and ".join([str(i + 1) for i, name in enumerate(self.names) if name == repeated[0]][:5])
            raise InputError(
                f"{path} has several columns called {repeated[0][:40]!r}, {places}: give each its own name"
            )
        self.blocks: dict[str, list[np.ndarray] | None] = {name: [] for name in self.names}

    def add(self, block: Sequence[np.ndarray]) -> None:
        """Take one more block of rows, given by column."""
        self.rows += len(block[0]) if block else 0
        check_size(self.path, self.rows, len(self.names))
        if time.monotonic() > self.until:
            raise InputError(f"{self.path} takes longer than {SECONDS} s to read: more are refused, make it smaller")
        for name, values in zip(self.names, block):
            blocks = self.blocks[name]
            if blocks is None:
                continue
            if name.lower() in LABELS + SUBJECTS:
                blocks.append(values)
            elif (found := _as_numbers(values)) is None:
                self.blocks[name] = None
            else:
                blocks.append(found)

    def joined(self) -> dict[str, np.ndarray | None]:
        """Every column by name, in their order; None in place of words."""
        if not self.rows:
            raise InputError(f"{self.path} has a header but no rows")
        return {name: None if blocks is None else np.concatenate(blocks) for name, blocks in self.blocks.items()}


def check_size(path: Path, rows: int, columns: int) -> None:
    """Refuse a table with too many rows, or with more cells than there is memory for."""
    if rows > MAX_SAMPLES:
        raise InputError(f"{path} has more than {MAX_SAMPLES:,} rows: more are refused")
    most = store.room() // (8 * COPIES)
    if rows * columns > most:
        raise InputError(f"{path} has more than {most:,} cells, which do not fit in memory: make it smaller")


def _csv(path: Path, file: BinaryIO) -> _Columns:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if size > MAX_MEMBER:
        raise InputError(f"{path} has {size:,} bytes: more than {MAX_MEMBER:,} are refused")
    text = io.TextIOWrapper(file, "utf-8-sig", "replace", newline="")
    try:
        first = text.readline(MAX_LINE)
        text.seek(0)
        rows = csv.reader(_lines(path, text), delimiter=max(",;\t", key=first.count))
        return _from_rows(path, (row for row in rows if row))
    except csv.Error as error:
        raise InputError(f"{path} is not a readable table: {words_of(error)}") from None
    finally:
        # The file belongs to the caller.
        text.detach()


def _lines(path: Path, text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise InputError(f"{path} has a line of more than {MAX_LINE:,} characters: more are refused")
        yield line


def _from_rows(path: Path, rows: Iterator[list[str]]) -> _Columns:
    head = next(rows, None)
    if head is None:
        raise InputError(f"{path} is empty")
    block: list[list[str]] = []
    if all(_is_number(cell) for cell in head):
        block.append(head)
        head = [""] * len(head)
    columns = _Columns(path, [name.strip() or str(i) for i, name in enumerate(head)])
    most = max(1, BLOCK // len(head))
    for row in rows:
        if len(row) != len(head):
            number = columns.rows + len(block) + 1
            raise InputError(f"{path} has {len(row)} cells in row {number}, but {len(head)} in its header")
        block.append(row)
        if len(block) >= most:
            columns.add(_by_column(block))
            block = []
    if block:
        columns.add(_by_column(block))
    return columns


def _by_column(block: list[list[str]]) -> list[np.ndarray]:
    return [np.array([cell.strip() or "nan" for cell in cells]) for cells in zip(*block)]


def _parquet(path: Path, file: BinaryIO) -> _Columns:
    try:
        from pyarrow import parquet
    except ImportError:
        raise InputError("parquet tables need pyarrow: pip install 'neurosql-torch[parquet]'") from None
    try:
        table = parquet.ParquetFile(file)
        names = list(table.schema_arrow.names)
        check_size(path, table.metadata.num_rows, len(names))
        columns = _Columns(path, names)
        for batch in table.iter_batches(max(1, BLOCK // max(1, len(names))), use_threads=False):
            columns.add([np.asarray(column.to_numpy(zero_copy_only=False)) for column in batch.columns])
        return columns
    except InputError:
        raise
    except Exception as error:
        # A damaged file makes pyarrow raise almost anything.
        raise InputError(f"{path} is not a readable table: {words_of(error)}") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell.strip()
    return True


def _as_numbers(values: np.ndarray) -> np.ndarray | None:
    """The values as float64, or None if they are not numbers."""
    if values.dtype.kind in "mMVc":
        return None
    try:
        found = values.astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    return found if found.ndim == 1 else None


def _are_real(values: Any) -> bool:
    numbers = _as_numbers(np.asarray(values))
    return numbers is not None and (not np.isfinite(numbers).all() or bool((numbers != np.round(numbers)).any()))
