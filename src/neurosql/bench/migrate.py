"""Convert results of earlier versions to the format and the names of this one.

Two things may be out of date. Scores may be columns of the table of runs, one per `name features mode` and one per
`floor: name features mode`. The config of a run, a hash of all its settings, may be from before settings were renamed.
A run is recognised by its identity: everything that tells the runs of a table apart, except that hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from neurosql.bench import rows
from neurosql.bench.declare import Experiment
from neurosql.bench.experiments import EXPERIMENTS, find
from neurosql.bench.jobs import JOBS
from neurosql.errors import InputError
from neurosql.metrics.column import Column
from neurosql.metrics.records import SCORES, record_of

FLOOR = "floor: "


@dataclass
class Moved:
    """What was done to one table."""

    name: str
    runs: int = 0
    scores: int = 0
    """Scores that were moved out of the table of runs."""
    rekeyed: dict[rows.Key, rows.Key] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    """Runs that are not in the declaration; they stay as they are."""

    def sentence(self) -> str:
        """What was done, in words."""
        done = (
            [f"{self.scores} scores of {self.runs} runs moved to {rows.SCORES}/{self.name}.csv"] if self.scores else []
        )
        done += [f"{len(self.rekeyed)} of {self.runs} runs re-keyed"] if self.rekeyed else []
        return f"{self.name}.csv: {'; '.join(done) or 'nothing to do'}"


def migrate(folder: Path, budget: str, experiments: Iterable[Experiment] | None = None) -> list[Moved]:
    """Bring every table of a folder up to date; nothing is written if one of them is not understood.

    `experiments` are the ones that the tables belong to; by default all registered ones.
    """
    chosen = map(find, EXPERIMENTS) if experiments is None else experiments
    declared = {experiment.name: experiment for experiment in chosen}
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}")
    tables = [path for path in sorted(folder.glob("*.csv")) if rows.is_table(path)]
    if not tables:
        raise InputError(f"no results in {folder}")
    unknown = [path.name for path in tables if path.stem not in declared]
    if unknown:
        raise InputError(f"no experiment belongs to {', '.join(unknown)}: nothing was changed")
    known = columns_by_key()
    found = {path: _converted(path, known) for path in tables}
    moved = []
    for path, (table, count) in found.items():
        done = Moved(path.stem, len(table), count)
        table = _rekeyed(table, declared[path.stem], budget, done)
        if done.scores or done.rekeyed:
            rows.write(path, table)
        moved.append(done)
    _rename_jobs(folder / JOBS, moved)
    return moved


def columns_by_key() -> dict[str, Column]:
    """Every column that a score can have, by key."""
    records = [record_of(name) for name in SCORES]
    columns = [Column(r.name, f, m) for r in records for f in r.features or ("",) for m in r.modes or ("",)]
    return {column.key: column for column in columns}


def _converted(path: Path, known: Mapping[str, Column]) -> tuple[list[rows.Row], int]:
    """The runs of a table with their scores, and how many of these were columns of it."""
    lines = rows.read_lines(path)
    heads = [name for name in (lines[0] if lines else ()) if name not in rows.FIELDS]
    if not heads:
        return list(rows.read(path).values()), 0
    strange = [name for name in heads if name.removeprefix(FLOOR) not in known]
    if strange:
        raise InputError(f"{path} has a column {strange[0][:40]!r}, which is no score: nothing was changed")
    values = [name for name in heads if not name.startswith(FLOOR)]
    runs, count = [], 0
    try:
        for line in lines:
            row = rows.checked(rows.parsed({name: text for name, text in line.items() if name in rows.FIELDS}))
            for name in values:
                if line[name]:
                    floor = line.get(FLOOR + name, "")
                    row[rows.SCORES][known[name]] = rows.Found(float(line[name]), float(floor) if floor else None)
                    count += 1
            runs.append(row)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is not a table of results: {error}") from None
    return runs, count


def _rekeyed(table: list[rows.Row], experiment: Experiment, budget: str, done: Moved) -> list[rows.Row]:
    """The runs with the config that the declaration gives them. Runs that have such a config already keep it."""
    seeds = 1 + max((int(row["seed"]) for row in table), default=0)
    declared = {_identity(rows.identity(job)): job.key for job in experiment.jobs(budget, seeds)}
    taken = {rows.key_of(row) for row in table} & set(declared.values())
    found = []
    for row in table:
        old, current = rows.key_of(row), declared.get(_identity(row))
        if old in taken:
            found.append(row)
        elif current is None or current in taken:
            why = "is not declared" if current is None else "is in the table already"
            words = " ".join(f"{name}={row[name]}" for name in rows.IDENTITY if row[name] != "")
            done.unmatched.append(f"{words} {why}")
            found.append(row)
        else:
            taken.add(current)
            done.rekeyed[old] = current
            found.append(row | {"config": current[0]})
    return found


def _identity(row: rows.Row) -> tuple[str, ...]:
    """What a run is in its table. Presets have got other names: the contender's name says as much."""
    return tuple(str(row[name]) for name in rows.IDENTITY if name not in ("config", "preset"))


def _rename_jobs(jobs: Path, moved: list[Moved]) -> None:
    """Rename the folders of re-keyed runs, if they still exist and all tables agree on the name."""
    wanted: dict[rows.Key, set[rows.Key]] = {}
    for done in moved:
        for old, current in done.rekeyed.items():
            wanted.setdefault(old, set()).add(current)
    for old, all_current in wanted.items():
        source, *targets = (jobs / f"{config}-{seed}" for config, seed in (old, *all_current))
        if len(targets) == 1 and source.is_dir() and not targets[0].exists():
            source.rename(targets[0])
