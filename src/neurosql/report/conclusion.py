"""What a table of results says, in words: who is ahead by each score, by how much, and how far that can be trusted."""

from __future__ import annotations

from neurosql.bench.compare import Group, Table
from neurosql.bench.rows import Row
from neurosql.metrics.column import Column
from neurosql.report import tables

SCORES = 3
"""Scores that the words are about: the first ones of the table."""
FEWEST = 3
"""Fewest epochs that figures can be taken seriously with."""
NOISE = (
    "These runs were made with the smallest budget, to show that everything works. They say nothing about the methods: "
    "every figure on this page is noise."
)
ONE_SEED = "There is one seed, so nothing is known of chance: run more before you believe an order."


def is_noise(results: list[Row]) -> bool:
    """Whether the runs were so short that their scores mean nothing."""
    epochs = [int(row["epochs"]) for row in results if str(row.get("epochs", "")).isdigit()]
    return bool(epochs) and max(epochs) < FEWEST


def sentences(table: Table) -> list[str]:
    """The conclusion, one sentence per score, and one on certainty."""
    columns = [column for column in table.columns if column.record.sign and not column.over][:SCORES]
    sets = _sets(table)
    said = [words for column in columns for some in sets if (words := _of(table, column, some))]
    if not said:
        return []
    if not table.differences:
        return [*said, ONE_SEED]
    held = sum(difference.winner is not None for difference in table.differences)
    certain = f"{held} of {len(table.differences)} comparisons in the table hold up after correction for their number"
    return [*said, f"{certain}; the others may be chance."]


def _sets(table: Table) -> list[list[Group]]:
    """The groups of each data set: scores on one say nothing about scores on another."""
    if "data" not in table.factors:
        return [table.groups]
    place = table.factors.index("data")
    names = dict.fromkeys(group[place] for group in table.groups)
    return [[group for group in table.groups if group[place] == name] for name in names]


def _of(table: Table, column: Column, groups: list[Group]) -> str:
    """Who is best by a score, each contender in the group that suits it, and who comes next; empty for one alone."""
    sign = column.record.sign
    best: dict[str, tuple[float, Group]] = {}
    for (group, arm, other), cell in table.cells.items():
        if other == column and group in groups and (arm not in best or sign * cell.mean > sign * best[arm][0]):
            best[arm] = cell.mean, group
    order = sorted(best, key=lambda arm: -sign * best[arm][0])
    if len(order) < 2:
        return ""
    first, second = (f"{arm}{_where(table, best[arm][1])}, {tables.figure(best[arm][0])}" for arm in order[:2])
    small = tables.small_print(column)
    better = "lower" if sign < 0 else "higher"
    return f"By {column.score}{f' ({small})' if small else ''}, {better} is better: {first}; then {second}."


def _where(table: Table, group: Group) -> str:
    """The group in words, if there are several."""
    parts = [
        f"{tables.NAMES[factor]} = {value}" if isinstance(value, int) else str(value)
        for i, (factor, value) in enumerate(zip(table.factors, group))
        if value != "" and len({other[i] for other in table.groups}) > 1
    ]
    return f" ({', '.join(parts)})" if parts else ""
