"""Results as two CSV files per experiment.

`NAME.csv` has one row per run: what was run, how it ended, what it took, and on which machine. `scores/NAME.csv` has
one row per run and score, with its features, its mode and its floor in columns of their own. Scores are written first:
a run that is in the table always has its scores.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from neurosql import files, intake
from neurosql.bench.declare import NAME, Job
from neurosql.errors import InputError
from neurosql.metrics.column import Column

DONE, FAILED = "done", "failed"
IDENTITY = ("data", "images", "pixels", "backbone", "latent_dim", "batch", "arm", "preset", "seed", "config")
OUTCOME = ("status", "reason")
RESOURCES = (
    *("epochs", "steps", "seconds", "epoch seconds", "scoring seconds", "peak megabytes"),
    *("parameters trained", "parameters sampling"),
)
MACHINE = ("version", "python", "torch", "cpu", "threads")
MEASURED = ("seconds", "epoch seconds", "scoring seconds", "peak megabytes")
"""Columns that differ when a run is repeated."""
VERDICT = "memorisation"
FIELDS = (*IDENTITY, *OUTCOME, *RESOURCES, *MACHINE, VERDICT)
SCORES = "scores"
"""The folder of the scores beside the tables of runs, and the field of a row that holds them by column."""
SCORE_FIELDS = ("config", "seed", "score", "features", "mode", "value", "floor")
WORDS = ("data", "backbone", "arm", "preset", "config", *OUTCOME, "version", "python", "torch", "cpu", VERDICT)
"""Columns that are never numbers, though a hash may look like one."""

NAMES = ("data", "backbone", "config")
"""Columns whose values become parts of the names of files."""
COUNTS = ("images", "pixels", "latent_dim", "batch")
MAX_BYTES = 2**26
"""Most bytes of a table."""
MAX_RUNS = 20_000
"""Most runs of a table."""
MAX_SEEDS = 1000
"""Most seeds of an experiment."""
LARGEST = 1e30
"""The largest score, and the most of any resource."""
MAX_WORDS = 1000
"""Most characters of a contender's name, and of anything else that is no number."""

Row = dict[str, Any]
Key = tuple[str, int]


class Found(NamedTuple):
    """A score in a table."""

    value: float
    floor: float | None = None


def identity(job: Job) -> Row:
    """The columns of a row that describe its job."""
    values = {name: getattr(job, name) for name in IDENTITY}
    return {name: "" if value is None else value for name, value in values.items()}


def key_of(row: Row) -> Key:
    """What identifies the run of a row: its config and its seed."""
    return row["config"], int(row["seed"])


def value_of(row: Row, column: Column) -> Any:
    """The value of a run in a column, a resource or a score; None if it has none."""
    if column.measured:
        return row.get(column.score)
    found = row.get(SCORES, {}).get(column)
    return None if found is None else found.value


def floor_of(row: Row, column: Column) -> float | None:
    """The floor of a run's score, or None."""
    found = row.get(SCORES, {}).get(column)
    return None if found is None else found.floor


def scores_path(path: Path) -> Path:
    """The path of the scores of a table of runs."""
    return path.parent / SCORES / path.name


def is_table(path: Path) -> bool:
    """Whether a file begins like a table of runs; what is no file, or a link to somewhere else, does not."""
    head = ",".join(IDENTITY).encode()
    try:
        with intake.regular(intake.inside(path.parent, path)) as file:
            return file.read(len(head)) == head
    except (OSError, InputError):
        return False


def read(path: Path) -> dict[Key, Row]:
    """The runs of a table with their scores, by config and seed; empty if there is no file.

    Tables may come from strangers: a name that could lead out of their folder is refused, like any other odd value.
    """
    if not path.exists():
        return {}
    lines = read_lines(path)
    unknown = sorted({name for line in lines[:1] for name in line if name not in FIELDS})
    if lines and unknown:
        raise InputError(
            f"{path} is not a table of results of this version: it has a column {unknown[0][:40]!r}. If an earlier "
            f"version wrote it, run `neurosql bench migrate {path.parent}`"
        )
    try:
        rows = {key_of(row): row for row in map(checked, map(parsed, lines))}
        for line in read_lines(scores_path(path)) if scores_path(path).exists() else ():
            key = line["config"], int(line["seed"])
            if key in rows:
                column = Column(line["score"], line["features"], line["mode"])
                rows[key][SCORES][column] = Found(
                    _score(line["value"]), _score(line["floor"]) if line["floor"] else None
                )
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a table of results: {error}") from None
    if len(rows) > MAX_RUNS:
        raise InputError(f"{path} has {len(rows):,} runs: more than {MAX_RUNS:,} are refused")
    return rows


def read_lines(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file as text, by heading."""
    folder = path.parent.parent if path.parent.name == SCORES else path.parent
    content = intake.read(intake.inside(folder, path), MAX_BYTES)
    try:
        table = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""), restval="", restkey="")
        return [dict(line) for line in table]
    except (ValueError, csv.Error) as error:
        raise InputError(f"{path} is not a table of results: {error}") from None


def parsed(line: dict[str, str]) -> Row:
    """A line of a table of runs, with its numbers as numbers; scores are added later."""
    return {name: _value(name, text) for name, text in line.items()} | {SCORES: {}}


def checked(row: Row) -> Row:
    """The row of a run; a ValueError if one of its values can't be what it should be."""
    for name in NAMES:
        if row[name] != "" and not NAME.fullmatch(str(row[name])):
            raise ValueError(f"{name} {str(row[name])[:40]!r} is no name")
    for name in COUNTS:
        if row.get(name, "") != "" and not (isinstance(row[name], int) and 0 <= row[name] < 2**31):
            raise ValueError(f"{name} {str(row[name])[:40]!r} is no number of things")
    for name in (*RESOURCES, "threads"):
        if not isinstance(row.get(name) or 0, (int, float)) or not 0 <= (row.get(name) or 0) <= LARGEST:
            raise ValueError(f"{name} {str(row[name])[:40]!r} is no number")
    if not isinstance(row["seed"], int) or not 0 <= row["seed"] < MAX_SEEDS:
        raise ValueError(f"seed {str(row['seed'])[:40]!r} is not one of 0 to {MAX_SEEDS - 1}")
    if row["status"] not in (DONE, FAILED):
        raise ValueError(f"status {str(row['status'])[:40]!r} is neither {DONE} nor {FAILED}")
    for name in WORDS:
        if len(str(row.get(name, ""))) > MAX_WORDS or not str(row.get(name, "")).replace("\n", "").isprintable():
            raise ValueError(f"{name} is too long, or holds characters that can't be printed")
    return row


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace the two files of a table, each as a whole, scores first.

    Runs keep the given order, and the scores of a run are in alphabetical order, so that one more run adds lines and
    changes none.
    """
    rows = list(rows)
    scores = [
        dict(zip(SCORE_FIELDS, (*key_of(row), column.score, column.features, column.mode, *found)))
        for row in rows
        for column, found in sorted(row.get(SCORES, {}).items(), key=lambda entry: _place(entry[0]))
    ]
    if scores or scores_path(path).is_file():
        write_lines(scores_path(path), SCORE_FIELDS, scores)
    write_lines(path, FIELDS, [{name: row.get(name) for name in FIELDS} for row in rows])


def write_lines(path: Path, heads: Iterable[str], lines: Iterable[Row]) -> None:
    """Replace a CSV file as a whole; floats keep every digit."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(heads), restval="", lineterminator="\n")
    table.writeheader()
    table.writerows({name: _text(value) for name, value in line.items()} for line in lines)
    folder = path.parent.parent if path.parent.name == SCORES else path.parent
    files.replace(intake.inside(folder, path), text.getvalue().encode())


def record(row: Row) -> dict[str, Any]:
    """A row as plain values, for JSON."""
    scores = [[column.score, column.features, column.mode, *found] for column, found in row.get(SCORES, {}).items()]
    return row | {SCORES: scores}


def from_record(record: dict[str, Any]) -> Row:
    """The row from its `record`."""
    scores = {Column(*map(str, words[:3])): Found(*words[3:]) for words in record[SCORES]}
    return checked(record | {SCORES: scores})


def _score(text: str) -> float:
    value = float(text)
    if math.isfinite(value) and abs(value) > LARGEST:
        raise ValueError(f"score {text[:40]!r} is too large")
    return value


def _place(column: Column) -> tuple[str, str, str]:
    return column.score, column.features, column.mode


def merge(tables: Iterable[dict[Key, Row]]) -> dict[Key, Row]:
    """All rows of several tables. If a run has two rows, a finished one wins, else the first."""
    merged: dict[Key, Row] = {}
    for table in tables:
        for key, row in table.items():
            if key not in merged or (merged[key]["status"] != DONE and row["status"] == DONE):
                merged[key] = row
    return merged


def _text(value: Any) -> Any:
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _value(name: str, text: str | None) -> Any:
    """A cell as a number if it is one."""
    for kind in (int, float) if name not in WORDS else ():
        try:
            return kind(text or "")
        except ValueError:
            continue
    return text or ""
