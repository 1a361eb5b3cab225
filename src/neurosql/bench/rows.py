"""Results as rows of one CSV a bench: what was run, what it took, its scores and their floors."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from neurosql import files
from neurosql.bench.declare import Job
from neurosql.errors import InputError

DONE, FAILED = "done", "failed"
# Columns that tell runs apart, then what they took, then (after these) scores and floors by name.
IDENTITY = ("data", "images", "pixels", "backbone", "latent_dim", "batch", "arm", "preset", "seed", "config")
OUTCOME = ("status", "reason")
RESOURCES = (
    *("epochs", "steps", "seconds", "epoch seconds", "scoring seconds", "peak megabytes"),
    *("parameters trained", "parameters sampling"),
)
MACHINE = ("version", "python", "torch", "cpu", "threads")
MEASURED = ("seconds", "epoch seconds", "scoring seconds", "peak megabytes")
"""Columns that differ when a run is repeated."""
FLOOR = "floor: "
VERDICT = "memorisation"
WORDS = ("data", "backbone", "arm", "preset", "config", *OUTCOME, "version", "python", "torch", "cpu", VERDICT)
"""Columns that are never numbers, though a hash may look like one."""

Row = dict[str, Any]
Key = tuple[str, int]


def identity(job: Job) -> Row:
    """What a row says of its job."""
    values = {name: getattr(job, name) for name in IDENTITY}
    return {name: "" if value is None else value for name, value in values.items()}


def key_of(row: Row) -> Key:
    return row["config"], int(row["seed"])


def read(path: Path) -> dict[Key, Row]:
    """The rows of a CSV file, by config and seed; no file is no rows."""
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{name: _value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]
        return {key_of(row): row for row in rows}
    except (KeyError, ValueError, TypeError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a table of results: {error}") from None


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace a CSV file whole; columns that no row has are left out."""
    rows = list(rows)
    fixed = [*IDENTITY, *OUTCOME, *RESOURCES, *MACHINE]
    scores = sorted({name for row in rows for name in row} - set(fixed), key=lambda n: (n.startswith(FLOOR), n))
    text = io.StringIO()
    table = csv.DictWriter(text, [*fixed, *scores], restval="", lineterminator="\n")
    table.writeheader()
    table.writerows({name: _text(value) for name, value in row.items()} for row in rows)
    files.replace(path, text.getvalue().encode())


def merge(tables: Iterable[dict[Key, Row]]) -> dict[Key, Row]:
    """All rows of several tables: of two rows of a run a finished one wins, then the first."""
    merged: dict[Key, Row] = {}
    for table in tables:
        for key, row in table.items():
            if key not in merged or (merged[key]["status"] != DONE and row["status"] == DONE):
                merged[key] = row
    return merged


def _text(value: Any) -> Any:
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _value(name: str, text: str | None) -> Any:
    """A cell as a number where it is one."""
    for kind in (int, float) if name not in WORDS else ():
        try:
            return kind(text or "")
        except ValueError:
            continue
    return text or ""
