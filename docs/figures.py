"""Fill in the figures that the pages quote: run `python docs/figures.py` after `neurosql report results/laptop`.

A figure is between two comments. The first says where in results/laptop/ it comes from:

    <!-- pivot mnist | KEY -->                   one score: a row per method, a column per latent dimension or data set
    <!-- lines downstream | 8 | KEY | KEY -->    one latent dimension or data set: a row per method, a column per score
    <!-- at-best best | KEY | KEY -->            a row per method, in the dimension where its first score is best
    <!-- against mnist | NeuroSQL | KEY -->      one score: every other method minus this one, with p values
    <!-- value mnist | 8 | NeuroSQL | KEY -->    a mean, in a sentence
    <!-- more mnist | 8 | VAE | GAN | KEY -->    the first method minus the second, with p values, in a sentence
    <!-- paired NAME | 12 | A | 8 | B | KEY -->  A at d = 12 minus B at d = 8, seed by seed, with its 95 % interval
    <!-- below NAME | ARM | OTHER | KEY -->      in how many groups the mean of ARM is below that of OTHER
    <!-- held mnist -->                          how many of the table's comparisons hold up after correction
    <!-- held mnist | NeuroSQL -->               how many of a method's comparisons it won and lost after correction
    <!-- seeds mnist -->                         how many seeds the table has
    <!-- file planted -->                        all of results/planted.md, which a benchmark wrote
    <!-- end -->

`NAME average` is the table of averages over latent dimensions. `NAME FACTOR=VALUE` is the part of a table that has this
value of the factor. The tests fail if a page differs from the tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from neurosql.bench import compare, rows
from neurosql.bench.compare import Difference, Group, Table
from neurosql.bench.experiments import find
from neurosql.metrics.column import Column
from neurosql.metrics.statistics import mean_interval
from neurosql.report import tables

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "laptop"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
AVERAGE = " average"
NO_DIM = ""


@cache
def table(name: str) -> Table:
    """The table of an experiment, its average over latent dimensions, or the part of it with one value of a factor."""
    first = name.removesuffix(AVERAGE).split()[0]
    return compare.build(find(first), runs(name), averaged=name.endswith(AVERAGE))


def runs(name: str) -> list[rows.Row]:
    """The runs of an experiment, or of the part of it with one value of a factor."""
    first, *parts = name.removesuffix(AVERAGE).split()
    found = list(rows.read(RESULTS / f"{first}.csv").values())
    for factor, wanted in (part.split("=") for part in parts):
        found = [row for row in found if str(row[factor]) == wanted]
    return found


def pivot(name: str, key: str) -> str:
    """One row per method, one column per group, and real against real in the last row."""
    made = table(name)
    column = made.column(key)
    groups = [group for group in made.groups if any((group, arm, column) in made.cells for arm in made.arms)]
    lines = []
    for arm in made.arms:
        cells = [tables.marked(made.cells.get((g, arm, column)), (g, arm, column) in made.bold) for g in groups]
        if any(cells):
            lines.append([arm, *cells])
    floors = [made.floors.get((group, column)) for group in groups]
    if any(floor is not None for floor in floors):
        lines.append(
            [f"*{tables.floor_name([column])}*", *("" if floor is None else tables.figure(floor) for floor in floors)]
        )
    return _drawn(["method", *(_label(made, group) for group in groups)], lines)


def lines(name: str, place: str, *keys: str) -> str:
    """One row per method and one column per score, for one group and for the methods without a latent dimension."""
    made = table(name)
    columns = [made.column(key) for key in keys]
    first = _group(made, place)
    groups = [first, *(group for group in made.groups if NO_DIM in group and group != first)]
    shown = [(group, arm) for group, arm in made.lines if group in groups]
    cells = [[tables.marked(made.cells.get((g, a, c)), (g, a, c) in made.bold) for c in columns] for g, a in shown]
    found = [[arm, *some] for (_, arm), some in zip(shown, cells)]
    floors = [made.floors.get((groups[0], column)) for column in columns]
    if any(floor is not None for floor in floors):
        name = tables.floor_name(c for c, floor in zip(columns, floors) if floor is not None)
        found.append([f"*{name}*", *("" if floor is None else tables.figure(floor) for floor in floors)])
    return _drawn(["method", *map(_named, columns)], found)


def at_best(name: str, *keys: str) -> str:
    """One row per method, the best first, in the group where the mean of its first score is best."""
    made = table(name)
    columns = [made.column(key) for key in keys]
    sign = columns[0].record.sign
    lines: list[tuple[float, list[str]]] = []
    for arm in made.arms:
        groups = [group for group in made.groups if (group, arm, columns[0]) in made.cells]
        if groups:
            best = max(groups, key=lambda group: sign * made.cells[group, arm, columns[0]].mean)
            cells = (made.cells.get((best, arm, column)) for column in columns)
            shown = [arm, str(best[_varying(made)]), *(tables.marked(cell, False) for cell in cells)]
            lines.append((sign * made.cells[best, arm, columns[0]].mean, shown))
    found = [line for _, line in sorted(lines, key=lambda of: -of[0])]
    floors = (
        [made.floors[group, column] for group in made.groups if (group, column) in made.floors] for column in columns
    )
    found.append(
        [f"*{tables.floor_name(columns)}*", "", *(tables.figure(min(some)) if some else "" for some in floors)]
    )
    return _drawn(["method", "d", *map(_named, columns)], found)


def paired(name: str, place: str, arm: str, other_place: str, other: str, key: str) -> str:
    """One method in one group minus another in another group, on the seeds that both have, with its interval."""
    made = table(name)
    column, factor = made.column(key), made.factors[_varying(made)]

    def values(where: str, of: str) -> dict[int, float]:
        mine = [
            row for row in runs(name) if str(row[factor]) == where and row["arm"] == of and row["status"] == rows.DONE
        ]
        return {int(row["seed"]): float(rows.value_of(row, column)) for row in mine}

    first, second = values(place, arm), values(other_place, other)
    differences = np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])
    mean, (low, high) = float(differences.mean()), mean_interval(differences)
    return f"{_signed(mean)} (95 % interval {_signed(low)} to {_signed(high)}, {len(differences)} seeds)"


def against(name: str, arm: str, key: str) -> str:
    """Each other method minus `arm`, with p values, plain and corrected."""
    made = table(name)
    column = made.column(key)
    found: dict[str, dict[Group, str]] = {}
    for d in made.differences:
        if d.column == column and arm in (d.first, d.second):
            found.setdefault(d.second if d.first == arm else d.first, {})[d.group] = _more(d, arm)
    groups = [group for group in made.groups if any(group in of for of in found.values())]
    body = [[other, *(of.get(group, "") for group in groups)] for other, of in found.items()]
    return _drawn([f"{_named(column)}, difference to {arm}", *(_label(made, group) for group in groups)], body)


def more(name: str, place: str, arm: str, other: str, key: str) -> str:
    """`arm` minus `other` in one group, with p values, plain and corrected."""
    made = table(name)
    group = _group(made, place)
    pair, column = {arm, other}, made.column(key)
    (found,) = (d for d in made.differences if (d.group, d.column) == (group, column) and {d.first, d.second} == pair)
    return _more(found, other)


def _more(d: Difference, arm: str) -> str:
    """The other method of a pair minus `arm`, in bold if the difference holds up."""
    by = -d.mean if d.first == arm else d.mean
    text = _signed(by)
    return f"{text if d.winner is None else f'**{text}**'} (p {_p(d.p)}, {_p(d.adjusted)})"


def _signed(number: float) -> str:
    return f"{'+' if number > 0 else '-' if number < 0 else ''}{tables.figure(abs(number))}"


def value(name: str, place: str, arm: str, key: str) -> str:
    """A mean over seeds; for the arm `floor`, the score of real against real."""
    made = table(name)
    group, column = _group(made, place), made.column(key)
    return tables.figure(made.floors[group, column] if arm == "floor" else made.cells[group, arm, column].mean)


def below(name: str, arm: str, other: str, key: str) -> str:
    """In how many of the groups that have both methods the mean of `arm` is below that of `other`."""
    made = table(name)
    column = made.column(key)
    pairs = [(made.cells.get((group, arm, column)), made.cells.get((group, other, column))) for group in made.groups]
    less = [first.mean < second.mean for first, second in pairs if first is not None and second is not None]
    return f"{sum(less)} of {len(less)}"


def held(name: str, arm: str | None = None) -> str:
    """How many comparisons in a table hold up; with `arm`, how many of its comparisons it won and lost."""
    made = table(name)
    if arm is None:
        return f"{sum(d.winner is not None for d in made.differences)} of {len(made.differences)}"
    won, lost, every = made.wins()[arm]
    return f"{won} won and {lost} lost of {every}"


def seeds(name: str) -> str:
    """The number of seeds in a table."""
    return str(table(name).seeds)


def file(name: str) -> str:
    """A Markdown file of results, as it is."""
    return f"\n\n{(RESULTS.parent / f'{name}.md').read_text('utf-8').strip()}\n\n"


def _group(made: Table, place: str) -> Group:
    """The group whose last varying factor has the value `place`."""
    found = [group for group in made.groups if str(group[_varying(made)]) == place]
    if len(found) != 1:
        raise KeyError(f"{made.experiment.name} has {len(found)} groups {place!r}")
    return found[0]


def _varying(made: Table) -> int:
    """The position of the last factor that has several values, or of the last factor if none has."""
    several = [i for i, values in enumerate(zip(*made.groups)) if len(set(values)) > 1]
    return (several or [len(made.factors) - 1])[-1]


def _label(made: Table, group: Group) -> str:
    factor, here = made.factors[_varying(made)], group[_varying(made)]
    if factor == "latent_dim":
        return "without d" if here == NO_DIM else f"d = {here}"
    return f"{tables.NAMES[factor]} = {here:,}" if isinstance(here, int) else str(here)


def _named(column: Column) -> str:
    name, small = tables.heading(column)
    return f"{name} ({small})" if small else name


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _drawn(heads: list[str], body: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(["", *(f"| {' | '.join(line)} |" for line in (heads, rule, *body)), ""])


KINDS: dict[str, Callable[..., str]] = {
    "pivot": pivot,
    "lines": lines,
    "at-best": at_best,
    "against": against,
    "more": more,
    "paired": paired,
    "value": value,
    "below": below,
    "held": held,
    "seeds": seeds,
    "file": file,
}
QUOTED = re.compile(rf"<!-- ({'|'.join(KINDS)}) ([^>]+?) -->.*?<!-- end -->", re.DOTALL)


def filled(text: str) -> str:
    """A page with its figures taken from the tables."""

    def quote(match: re.Match[str]) -> str:
        kind, words = match.groups()
        return f"<!-- {kind} {words} -->{KINDS[kind](*(part.strip() for part in words.split('|')))}<!-- end -->"

    return QUOTED.sub(quote, text)


def main() -> int:
    """Fill in every page and print the names of those that changed."""
    for page in PAGES:
        text = page.read_text("utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, "utf-8")
            print(f"filled     {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
