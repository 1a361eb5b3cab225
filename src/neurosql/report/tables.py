"""The table of an experiment as HTML, LaTeX and CSV: the same lines and figures in each."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from typing import Any

from neurosql.bench.compare import Estimate, Group, Table
from neurosql.metrics.column import Column
from neurosql.metrics.records import FLOORS
from neurosql.report import document
from neurosql.report.document import Cell

NAMES = {
    "data": "data",
    "latent_dim": "d",
    "images": "N",
    "batch": "m",
    "pixels": "pixels",
    "backbone": "backbone",
}
ARROW = {1: "↑", -1: "↓", 0: ""}
IN_THE_PAPER = "in the paper"
# Two random real digits have an SSIM of about 0.1: what the paper prints can only be that of reconstructions.
PAIRED_IN_THE_PAPER = "in the paper: paired, by its size"
PAIRED = {"ssim": "paired-train"}
"""Scores whose figures in the paper belong beside ours of another mode than the first."""
SEVERAL = "reference"
"""The common name of floors with different meanings."""
LATEX_ARROW = {1: r"$\uparrow$", -1: r"$\downarrow$", 0: ""}

ACROSS = 8
"""Most columns of figures that fit a page of 1,100 pixels."""


def figure(value: float) -> str:
    """A number as text, with three or four digits."""
    if not math.isfinite(value):
        return ""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 0.1 or size == 0:
        return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 10 else f"{value:.3f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.4f}" if size >= 0.001 else f"{value:.1e}"


def floor_name(columns: Iterable[Column]) -> str:
    """The common name of the floors of these columns."""
    kinds = {column.record.floor for column in columns}
    return kinds.pop() if len(kinds) == 1 else SEVERAL


def floors_of(table: Table) -> str | None:
    """The common name of a table's floors, or None if it has none."""
    columns = {column for _, column in table.floors}
    return floor_name(columns) if columns else None


def floors_in_words(table: Table) -> str:
    """What the floors of a table mean; if that differs, score by score."""
    columns = [column for column in table.columns if any(column == other for _, other in table.floors)]
    kinds = dict.fromkeys(column.record.floor for column in columns)
    if len(kinds) == 1:
        return "".join(FLOORS.get(kind, kind) for kind in kinds)
    named = {kind: dict.fromkeys(c.score for c in columns if c.record.floor == kind) for kind in kinds}
    return "; ".join(f"for {', '.join(names)}: {FLOORS.get(kind, kind)}" for kind, names in named.items())


def half_width(estimate: Estimate) -> str:
    """± half the interval; empty if there is none, or if nothing varies."""
    return f"± {figure((estimate.high - estimate.low) / 2)}" if estimate.high > estimate.low else ""


def heading(column: Column) -> tuple[str, str]:
    """A column's name with its direction, and in small print its features and mode, or what it is divided by."""
    return f"{column.score} {ARROW[column.record.sign]}".strip(), small_print(column)


def small_print(column: Column) -> str:
    """Features and mode of a column, and what it is divided by."""
    over = f"over {column.over}'s" if column.over else ""
    return ", ".join(part for part in (column.features, column.mode, over) if part)


def layout(table: Table) -> list[Column | str]:
    """The order of columns: ours, and the paper's scores by name, each after our column of the same score and mode."""
    printed = dict.fromkeys(score for _, _, score in table.printed)
    found: list[Column | str] = list(table.columns)
    for score in printed:
        same = [column for column in table.columns if column.score == score and not column.over]
        after = next((column for column in same if column.mode == PAIRED.get(score)), same[0] if same else None)
        found.insert(len(found) if after is None else found.index(after) + 1, score)
    return found


def in_the_paper(score: str) -> str:
    """What stands under the name of a score of the paper's."""
    return PAIRED_IN_THE_PAPER if score in PAIRED else IN_THE_PAPER


def to_html(table: Table) -> str:
    """HTML tables that fit a page: one line per contender, floors under each group, the paper's figures beside ours."""
    some = in_parts(layout(table))
    return "".join(_part(table, places, last=places is some[-1]) for places in some)


def in_parts(places: list[Column | str]) -> list[list[Column | str]]:
    """The columns in parts of at most `ACROSS`: reconstructions are not out of sight to the right of samples.

    Scores of samples and all others stay apart, and the paper's figure beside the score that it belongs to.
    """
    scores: list[list[Column | str]] = []
    for place in places:
        if isinstance(place, str) and scores:
            scores[-1].append(place)
        else:
            scores.append([place])
    if len(places) <= ACROSS:
        return [places]
    parts: list[list[Column | str]] = []
    of_samples = False
    for score in scores:
        own = not isinstance(score[0], str) and score[0].mode == "sampled"
        if not parts or own != of_samples or len(parts[-1]) + len(score) > ACROSS:
            parts.append([])
        parts[-1] += score
        of_samples = own
    return parts


def _part(table: Table, places: list[Column | str], last: bool) -> str:
    """One of the tables; the last one also has the verdicts on copies."""
    heads = [*factor_heads(table), Cell("method", left=True, stays=True)]
    for place in places:
        heads.append(Cell(place, below=in_the_paper(place)) if isinstance(place, str) else _head(place))
    heads += [Cell("copies", left=True)] if table.verdicts and last else []
    lines: list[list[Cell]] = []
    kinds: list[str] = []
    for number, (group, arm) in enumerate(table.lines):
        row = [*factors_of(table, group), Cell(arm, left=True, stays=True)]
        for place in places:
            if isinstance(place, str):
                row.append(_printed(table, group, arm, place))
            else:
                row.append(_shown(table, group, arm, place))
        row += [Cell(table.verdicts.get((group, arm), ""), left=True)] if table.verdicts and last else []
        lines.append(row)
        kinds.append("first" if number and table.lines[number - 1][0] != group else "")
        ends = number + 1 == len(table.lines) or table.lines[number + 1][0] != group
        floors = _floors(table, group)
        if ends and floors:
            row = [*factors_of(table, group), Cell(floor_name(floors), left=True, stays=True)]
            for place in places:
                floor = None if isinstance(place, str) else floors.get(place)
                row.append(Cell("") if floor is None else Cell(figure(floor), floor))
            lines.append(row + [Cell("")] * (len(heads) - len(row)))
            kinds.append("floor")
    return document.table(heads, lines, kinds)


def factor_heads(table: Table) -> list[Cell]:
    """Headings of the factors that tell groups apart; a page with one data set does not repeat it in every line."""
    return [Cell(NAMES[table.factors[i]], left=table.factors[i] == "data") for i in _telling(table)]


def factors_of(table: Table, group: Group) -> list[Cell]:
    """The cells of a group under `factor_heads`."""
    values = [group[i] for i in _telling(table)]
    return [Cell(*_factor(value), left=isinstance(value, str) and value != "") for value in values]


def _telling(table: Table) -> list[int]:
    several = [len({group[i] for group in table.groups}) > 1 for i in range(len(table.factors))]
    return [i for i, name in enumerate(table.factors) if several[i] or name != "data"]


def _factor(value: Any) -> tuple[str, float | None]:
    return (f"{value:,}", float(value)) if isinstance(value, int) else ("any" if value == "" else str(value), None)


def _head(column: Column) -> Cell:
    name, small = heading(column)
    return Cell(name, below=small)


def _floors(table: Table, group: Group) -> dict[Column, float]:
    """The floors of a group, by column."""
    return {column: table.floors[group, column] for column in table.columns if (group, column) in table.floors}


def _shown(table: Table, group: Group, arm: str, column: Column) -> Cell:
    cell = table.cells.get((group, arm, column))
    bold = (group, arm, column) in table.bold
    return Cell("") if cell is None else Cell(figure(cell.mean), cell.mean, half_width(cell), bold)


def _printed(table: Table, group: Group, arm: str, score: str) -> Cell:
    value = table.printed.get((group, arm, score))
    return Cell("") if value is None else Cell(figure(value), value)


def to_csv(table: Table) -> str:
    """Mean, interval and number of seeds of each cell, the floor and the paper's figure: one row per cell."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    figures = ("mean", "low", "high", "seeds", "holds_up", "floor", "paper")
    out.writerow([*table.factors, "method", "score", "features", "mode", *figures])
    for group, arm in table.lines:
        for column in table.columns:
            cell = table.cells.get((group, arm, column))
            if cell is None:
                continue
            interval = ["" if math.isnan(v) else v for v in (cell.low, cell.high)]
            holds = int((group, arm, column) in table.bold)
            floor = table.floors.get((group, column), "")
            paper = "" if column.over else table.printed.get((group, arm, column.score), "")
            where = [*group, arm, column.name, column.features, column.mode]
            out.writerow([*where, cell.mean, *interval, cell.n, holds, floor, paper])
    return text.getvalue()


def to_latex(table: Table) -> str:
    """A booktabs table; a caption says what is bold."""
    places = layout(table)
    spec = "l" * (len(table.factors) + 1) + "r" * len(places)
    heads = [NAMES[name] for name in table.factors] + ["method"]
    for place in places:
        if isinstance(place, str):
            name, arrow, small = place, "", in_the_paper(place)
        else:
            name, arrow, small = place.score, f" {LATEX_ARROW[place.record.sign]}", small_print(place)
        below = rf"\\{{\scriptsize {latex_text(small)}}}" if small else ""
        heads.append(rf"\shortstack{{{latex_text(name)}{arrow}{below}}}")
    lines = [r"\begin{table}", r"\centering\small", rf"\caption{{{latex_text(caption(table))}}}"]
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    before: Group | None = None
    for group, arm in table.lines:
        if before is not None and group != before:
            lines.append(r"\addlinespace")
        cells = [latex_text(_factor(value)[0]) if group != before else "" for value in group] + [latex_text(arm)]
        cells += [_placed(table, group, arm, place, _latex) for place in places]
        lines.append(" & ".join(cells) + r" \\")
        before = group
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def to_markdown(table: Table) -> str:
    """The table as Markdown, floors included."""
    places = layout(table)
    heads = [NAMES[name] for name in table.factors] + ["method"]
    for place in places:
        name, small = (place, in_the_paper(place)) if isinstance(place, str) else heading(place)
        heads.append(f"{name} ({small})" if small else name)
    texts = len(table.factors) + 1
    lines = [caption(table), "", _line(heads), _line(["---"] * texts + ["---:"] * (len(heads) - texts))]
    for number, (group, arm) in enumerate(table.lines):
        shown = [_factor(value)[0] for value in group]
        cells = [_placed(table, group, arm, place, marked) for place in places]
        lines.append(_line([*shown, arm, *cells]))
        last = number + 1 == len(table.lines) or table.lines[number + 1][0] != group
        floors = _floors(table, group)
        if last and floors:
            cells = [figure(floors[p]) if isinstance(p, Column) and p in floors else "" for p in places]
            lines.append(_line([*shown, f"*{floor_name(floors)}*", *cells]))
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _placed(
    table: Table, group: Group, arm: str, place: Column | str, shown: Callable[[Estimate | None, bool], str]
) -> str:
    """One of our cells as `shown` writes it, or a figure from the paper."""
    if isinstance(place, str):
        return figure(table.printed.get((group, arm, place), math.nan))
    return shown(table.cells.get((group, arm, place)), (group, arm, place) in table.bold)


def marked(cell: Estimate | None, bold: bool) -> str:
    """A cell in Markdown."""
    if cell is None:
        return ""
    text = figure(cell.mean)
    return f"{f'**{text}**' if bold else text} {half_width(cell)}".strip()


def caption(table: Table) -> str:
    """What the figures are, in words."""
    if table.seeds < 2:
        return f"{table.experiment.title}. One seed."
    return (
        f"{table.experiment.title}. Mean over {table.seeds} seeds, ± half of the 95 % interval. Bold: better than "
        "every other contender of the group in paired t tests on the same seeds, Holm's correction over the table, 5 %."
    )


def _latex(cell: Estimate | None, bold: bool) -> str:
    if cell is None:
        return ""
    text = figure(cell.mean)
    text = rf"\textbf{{{text}}}" if bold else text
    half = half_width(cell).removeprefix("± ")
    return rf"{text} {{\scriptsize $\pm$ {half}}}" if half else text


LATEX = {letter: f"\\{letter}" for letter in "%&_#${}"} | {
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "±": r"$\pm$", "\n": " "},
}


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return "".join(LATEX.get(letter, letter) for letter in text)
