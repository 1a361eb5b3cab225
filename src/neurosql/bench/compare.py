"""From rows to a table that says no more than the runs show: means over seeds, intervals, and tested differences."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from neurosql.bench.declare import Experiment
from neurosql.bench.rows import DONE, Row, floor_of, value_of
from neurosql.metrics.column import Column
from neurosql.metrics.column import find as find_column
from neurosql.metrics.statistics import mean_interval

SIGNIFICANT = 0.05
Group = tuple[Any, ...]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Difference:
    """A paired comparison of two contenders in one group, on the seeds that both have."""

    group: Group
    column: Column
    first: str
    second: str
    mean: float
    """First minus second."""
    p: float
    adjusted: float
    """p after Holm's correction over all comparisons of the table."""

    @property
    def winner(self) -> str | None:
        """The better contender, if the difference holds up; else None."""
        sign = self.column.record.sign
        if sign == 0 or self.mean == 0 or not self.adjusted < SIGNIFICANT:
            return None
        return self.first if sign * self.mean > 0 else self.second

    @property
    def loser(self) -> str | None:
        """The worse contender, if the difference holds up; else None."""
        return None if self.winner is None else self.second if self.winner == self.first else self.first


@dataclass
class Table:
    """An experiment's results: one line per group and contender."""

    experiment: Experiment
    factors: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: list[tuple[Group, str]] = field(default_factory=list)
    cells: dict[tuple[Group, str, Column], Estimate] = field(default_factory=dict)
    """By group, contender and column."""
    bold: set[tuple[Group, str, Column]] = field(default_factory=set)
    floors: dict[tuple[Group, Column], float] = field(default_factory=dict)
    """By group and column."""
    printed: dict[tuple[Group, str, str], float] = field(default_factory=dict)
    """The paper's figures, by group, contender and name of the score: of samples unless noted, the paper says."""
    differences: list[Difference] = field(default_factory=list)
    seeds: int = 0
    verdicts: dict[tuple[Group, str], str] = field(default_factory=dict)
    """Memorisation: the worst verdict of all seeds."""

    def column(self, key: str) -> Column:
        """The column of the experiment with this key."""
        return find_column(self.experiment.columns, key)

    @property
    def groups(self) -> list[Group]:
        """Groups, in the order of the lines."""
        return list(dict.fromkeys(group for group, _ in self.lines))

    @property
    def arms(self) -> list[str]:
        """Contenders, in the order of the lines."""
        return list(dict.fromkeys(arm for _, arm in self.lines))

    def wins(self) -> dict[str, tuple[int, int, int]]:
        """Numbers of comparisons that each contender won, lost and was part of."""
        found: dict[str, list[int]] = {arm: [0, 0, 0] for arm in self.arms}
        for difference in self.differences:
            for arm in (difference.first, difference.second):
                found[arm][2] += 1
                if difference.winner is not None:
                    found[arm][0 if difference.winner == arm else 1] += 1
        return {arm: (won, lost, all_) for arm, (won, lost, all_) in found.items()}


def build(experiment: Experiment, rows: Iterable[Row], averaged: bool = False) -> Table:
    """The table of an experiment; with `averaged`, that of averages over latent dimensions."""
    rows = [row for row in rows if row["status"] == DONE]
    ratios = _ratios(rows, experiment)

    def here(row: Row, column: Column) -> float | None:
        return ratios.get((id(row), column)) if column.over else _number(value_of(row, column))

    factors = tuple(name for name in experiment.rows if not (averaged and name == "latent_dim"))
    if "latent_dim" not in factors:
        rows = _comparable(rows, factors)
    columns = tuple(c for c in experiment.columns if any(here(row, c) is not None for row in rows))
    table = Table(experiment, factors, columns, seeds=len({row["seed"] for row in rows}))
    printed = {arm.name: arm.printed for grid in experiment.grids for arm in grid.arms if arm.printed}
    values: dict[tuple[Group, str, Column], dict[int, list[float]]] = {}
    floors: dict[tuple[Group, Column], list[float]] = {}
    backbones: dict[Group, set[str]] = {}
    for row in rows:
        group, arm = tuple(row[name] for name in factors), str(row["arm"])
        if (group, arm) not in table.lines:
            table.lines.append((group, arm))
        backbones.setdefault(group, set()).add(row["backbone"])
        for column in columns:
            value, floor = here(row, column), _number(floor_of(row, column))
            if value is not None:
                values.setdefault((group, arm, column), {}).setdefault(int(row["seed"]), []).append(value)
            if floor is not None:
                floors.setdefault((group, column), []).append(floor)
        if row.get("memorisation"):
            known = table.verdicts.get((group, arm), "")
            table.verdicts[group, arm] = max(known, str(row["memorisation"]), key=severity)
    by_seed = {key: {seed: float(np.mean(some)) for seed, some in found.items()} for key, found in values.items()}
    table.cells = {key: estimate(list(found.values())) for key, found in by_seed.items()}
    table.floors = {key: float(np.mean(some)) for key, some in floors.items()}
    order = {group: number for number, group in enumerate(table.groups)}
    table.lines.sort(key=lambda line: order[line[0]])
    _compare(table, by_seed)
    for group, arm in table.lines:
        named = dict(zip(factors, group))
        for score, value in _printed(experiment, named, backbones[group], printed.get(arm)).items():
            table.printed[group, arm, score] = value
    return table


def _ratios(rows: list[Row], experiment: Experiment) -> dict[tuple[int, Column], float]:
    """The values of the columns that are ratios, by row.

    For a contender without a latent dimension, the divisor is the other contender at its first latent dimension.
    """
    found: dict[tuple[int, Column], float] = {}
    for column in experiment.columns:
        if not column.over:
            continue
        known: dict[Group, float] = {}
        for row in rows:
            value = _number(value_of(row, column.undivided))
            if row["arm"] == column.over and value:
                where = tuple(row[factor] for factor in experiment.rows)
                without = tuple("" if factor == "latent_dim" else row[factor] for factor in experiment.rows)
                known[(*where, row["seed"])] = value
                known.setdefault((*without, row["seed"]), value)
        for row in rows:
            value = _number(value_of(row, column.undivided))
            of = known.get((*(row[factor] for factor in experiment.rows), row["seed"]))
            if value is not None and of is not None:
                found[id(row), column] = value / of
    return found


def _comparable(rows: list[Row], factors: tuple[str, ...]) -> list[Row]:
    """The rows without contenders that ran in only some latent dimensions: their averages can't be compared."""
    dims: dict[Group, set[Any]] = {}
    own: dict[tuple[Group, str], set[Any]] = {}
    for row in rows:
        group = tuple(row[name] for name in factors)
        dims.setdefault(group, set()).add(row["latent_dim"])
        own.setdefault((group, row["arm"]), set()).add(row["latent_dim"])
    whole = {key for key, found in own.items() if found == {""} or found == dims[key[0]] - {""}}
    return [row for row in rows if (tuple(row[name] for name in factors), row["arm"]) in whole]


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and t interval; one value has no interval."""
    low, high = mean_interval(np.array(values, float)) if len(values) > 1 else (math.nan, math.nan)
    return Estimate(float(np.mean(values)), low, high, len(values))


def paired_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p of the paired t test; 1 if there is nothing to test."""
    difference = np.array(first, float) - np.array(second, float)
    if len(difference) < 2 or not difference.any():
        return 1.0
    spread = difference.std(ddof=1)
    if spread <= 1e-12 * abs(difference.mean()):
        return 0.0
    t = difference.mean() / (spread / math.sqrt(len(difference)))
    return float(2 * stats.t.sf(abs(t), len(difference) - 1))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values."""
    order = np.argsort(p, kind="stable")
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = largest
    return adjusted


def _compare(table: Table, by_seed: dict[tuple[Group, str, Column], dict[int, float]]) -> None:
    """Test each pair of contenders of a group, and mark cells that are better than all others there."""
    found: list[tuple[Group, Column, str, str, float, float]] = []
    for column in table.columns:
        if column.record.sign == 0 or column.over:
            continue
        for group, arms in contenders(table).items():
            for (at, first), (to, second) in combinations(arms, 2):
                # Contenders without a latent dimension meet those of every dimension, but each other only once.
                if group not in (at, to):
                    continue
                a, b = by_seed.get((at, first, column)), by_seed.get((to, second, column))
                seeds = sorted(set(a) & set(b)) if a and b else []
                if a and b and len(seeds) > 1:
                    x, y = [a[s] for s in seeds], [b[s] for s in seeds]
                    found.append((group, column, first, second, float(np.mean(x) - np.mean(y)), paired_p(x, y)))
    adjusted = holm([entry[-1] for entry in found])
    table.differences = [Difference(*entry, q) for entry, q in zip(found, adjusted)]
    won = {(d.group, d.column, d.winner, d.loser) for d in table.differences if d.winner is not None}
    for column in table.columns:
        for group, arms in contenders(table).items():
            for at, arm in arms:
                others = [other for _, other in arms if other != arm]
                if at == group and others and all((group, column, arm, other) in won for other in others):
                    table.bold.add((group, arm, column))


def contenders(table: Table) -> dict[Group, list[tuple[Group, str]]]:
    """Who is compared with whom: the lines of each group, and those on the same data without a latent dimension."""
    groups: dict[Group, list[tuple[Group, str]]] = {}
    for group, arm in table.lines:
        groups.setdefault(group, []).append((group, arm))
    if "latent_dim" not in table.factors:
        return groups
    place = table.factors.index("latent_dim")
    without = [line for line in table.lines if line[0][place] == ""]
    for group, lines in groups.items():
        rest = [line for line in without if _without(line[0], place) == _without(group, place)]
        lines += [line for line in rest if line not in lines]
    return groups


def _without(group: Group, place: int) -> Group:
    return group[:place] + group[place + 1 :]


@cache
def printed_figures() -> dict[tuple[str, str, str, str], dict[str, float]]:
    """The paper's figures: by data, backbone, latent dimension and method, then by score."""
    found: dict[tuple[str, str, str, str], dict[str, float]] = {}
    with files("neurosql.bench").joinpath("printed.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["data"], row["backbone"], row["latent_dim"], row["method"])
            found.setdefault(key, {})[row["score"]] = float(row["value"])
    return found


def _printed(
    experiment: Experiment, named: dict[str, Any], backbones: set[str], method: str | None
) -> dict[str, float]:
    """The paper's figures for a line."""
    if method is None:
        return {}
    data, dim = str(named.get("data", "mnist")), str(named.get("latent_dim", ""))
    backbone = experiment.printed_under or (next(iter(backbones)) if len(backbones) == 1 else "")
    figures = printed_figures()
    found = figures.get((data, backbone, dim, method), {})
    if experiment.downstream:
        found = figures.get((data, backbone, "", method), {})
    shown = {column.score for column in experiment.columns if not column.over}
    return {score: value for score, value in found.items() if score in shown}


def severity(verdict: str) -> int:
    """The rank of a verdict on memorisation, from the mildest up."""
    return ("", "no sign", "some", "clear").index(verdict) if verdict in ("", "no sign", "some", "clear") else 3


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
