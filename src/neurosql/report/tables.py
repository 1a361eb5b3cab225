"""The table of an experiment as HTML, LaTeX and CSV: the same lines and figures in each."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from typing import Any

from neurosql.bench.compare import Estimate, Group, Table, direction, ratio_of
from neurosql.metrics.score import parts_of
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
LATEX_ARROW = {1: r"$\uparrow$", -1: r"$\downarrow$", 0: ""}


def figure(value: float) -> str:
    """A number to three or four digits."""
    if not math.isfinite(value):
        return ""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 0.1 or size == 0:
        return f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 10 else f"{value:.3f}"
    return f"{value:.3f}" if size >= 0.01 else f"{value:.4f}" if size >= 0.001 else f"{value:.1e}"


FLOORS = {
    "real against real": "the same score with training images in the place of samples",
    "real training images": "the same classifier after training images in the place of samples",
    "chance": "what labels at random give",
    "reference": "the same score with training images in the place of samples, or chance for those of codes",
}


def floor_name(columns: Iterable[str]) -> str:
    """What the floors of these columns are, all together: one of `FLOORS`."""
    kinds = {_kind_of_floor(column) for column in columns}
    return kinds.pop() if len(kinds) == 1 else "reference"


def floors_of(table: Table) -> str | None:
    """What the floors of a table are, if it has any."""
    columns = {column for _, column in table.floors}
    return floor_name(columns) if columns else None


def _kind_of_floor(column: str) -> str:
    name, _, mode = parts_of(column)
    if name.startswith("downstream"):
        return "real training images"
    return "chance" if mode == "codes" else "real against real"


def half_width(estimate: Estimate) -> str:
    """± half of the interval; nothing where there is none, or nothing varies."""
    return f"± {figure((estimate.high - estimate.low) / 2)}" if estimate.high > estimate.low else ""


def heading(column: str) -> tuple[str, str]:
    """A column's name with its direction, and in small print its features and mode, or what it is divided by."""
    name, small = _words(column)
    return f"{name} {ARROW[direction(column)]}".strip(), small


def _words(column: str) -> tuple[str, str]:
    base, reference = ratio_of(column)
    name, features, mode = parts_of(base)
    over = "" if reference is None else f"over {reference}'s"
    return name, ", ".join(part for part in (features, mode, over) if part)


def layout(table: Table) -> list[tuple[str, bool]]:
    """What stands beside what: our columns, and (True) the paper's scores, each after our first one of that score."""
    printed = dict.fromkeys(score for _, _, score in table.printed)
    found: list[tuple[str, bool]] = []
    for column in table.columns:
        found.append((column, False))
        score = parts_of(column)[0]
        if score in printed and (score, True) not in found:
            found.append((score, True))
    return found + [(score, True) for score in printed if (score, True) not in found]


def to_html(table: Table) -> str:
    """A line for each contender, floors under each group, and the paper's figures beside ours."""
    places = layout(table)
    heads = [*factor_heads(table), Cell("method", left=True, stays=True)]
    for name, paper in places:
        heads.append(Cell(name, below=IN_THE_PAPER) if paper else _head(name))
    heads += [Cell("copies", left=True)] if table.verdicts else []
    lines: list[list[Cell]] = []
    kinds: list[str] = []
    for number, (group, arm) in enumerate(table.lines):
        row = [*factors_of(table, group), Cell(arm, left=True, stays=True)]
        for name, paper in places:
            row.append(_printed(table, group, arm, name) if paper else _shown(table, group, arm, name))
        row += [Cell(table.verdicts.get((group, arm), ""), left=True)] if table.verdicts else []
        lines.append(row)
        kinds.append("first" if number and table.lines[number - 1][0] != group else "")
        last = number + 1 == len(table.lines) or table.lines[number + 1][0] != group
        floors = _floors(table, group)
        if last and floors:
            row = [*factors_of(table, group), Cell(floor_name(floors), left=True, stays=True)]
            for name, paper in places:
                row.append(Cell("") if paper or name not in floors else Cell(figure(floors[name]), floors[name]))
            lines.append(row + [Cell("")] * (len(heads) - len(row)))
            kinds.append("floor")
    return document.table(heads, lines, kinds)


def factor_heads(table: Table) -> list[Cell]:
    """Headings of what tells groups apart: the only data set of a page is named at its top, not in every line."""
    return [Cell(NAMES[table.factors[i]], left=table.factors[i] == "data") for i in _telling(table)]


def factors_of(table: Table, group: Group) -> list[Cell]:
    """What a group has under `factor_heads`."""
    values = [group[i] for i in _telling(table)]
    return [Cell(*_factor(value), left=isinstance(value, str) and value != "") for value in values]


def _telling(table: Table) -> list[int]:
    several = [len({group[i] for group in table.groups}) > 1 for i in range(len(table.factors))]
    return [i for i, name in enumerate(table.factors) if several[i] or name != "data"]


def _factor(value: Any) -> tuple[str, float | None]:
    return (f"{value:,}", float(value)) if isinstance(value, int) else ("any" if value == "" else str(value), None)


def _head(column: str) -> Cell:
    name, small = heading(column)
    return Cell(name, below=small)


def _floors(table: Table, group: Group) -> dict[str, float]:
    """The floors of a group, by column."""
    return {column: table.floors[group, column] for column in table.columns if (group, column) in table.floors}


def _shown(table: Table, group: Group, arm: str, column: str) -> Cell:
    cell = table.cells.get((group, arm, column))
    bold = (group, arm, column) in table.bold
    return Cell("") if cell is None else Cell(figure(cell.mean), cell.mean, half_width(cell), bold)


def _printed(table: Table, group: Group, arm: str, score: str) -> Cell:
    value = table.printed.get((group, arm, score))
    return Cell("") if value is None else Cell(figure(value), value)


def _figure_of_paper(table: Table, where: tuple[Group, str, str]) -> str:
    return figure(table.printed.get(where, math.nan))


def to_csv(table: Table) -> str:
    """Mean, interval and number of seeds of each cell, the floor and the paper's figure: a row a cell."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    figures = ("mean", "low", "high", "seeds", "holds_up", "floor", "paper")
    out.writerow([*table.factors, "method", "score", "features", "mode", *figures])
    for group, arm in table.lines:
        for column in table.columns:
            cell = table.cells.get((group, arm, column))
            if cell is None:
                continue
            name, features, mode = parts_of(column)
            interval = ["" if math.isnan(v) else v for v in (cell.low, cell.high)]
            holds = int((group, arm, column) in table.bold)
            floor = table.floors.get((group, column), "")
            paper = table.printed.get((group, arm, name), "")
            out.writerow([*group, arm, name, features, mode, cell.mean, *interval, cell.n, holds, floor, paper])
    return text.getvalue()


def to_latex(table: Table) -> str:
    """A booktabs table; a caption says what is bold."""
    places = layout(table)
    spec = "l" * (len(table.factors) + 1) + "r" * len(places)
    heads = [NAMES[name] for name in table.factors] + ["method"]
    for column, paper in places:
        name, small = (column, IN_THE_PAPER) if paper else _words(column)
        arrow = "" if paper else f" {LATEX_ARROW[direction(column)]}"
        below = rf"\\{{\scriptsize {latex_text(small)}}}" if small else ""
        heads.append(rf"\shortstack{{{latex_text(name)}{arrow}{below}}}")
    lines = [r"\begin{table}", r"\centering\small", rf"\caption{{{latex_text(caption(table))}}}"]
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    before: Group | None = None
    for group, arm in table.lines:
        if before is not None and group != before:
            lines.append(r"\addlinespace")
        cells = [latex_text(_factor(value)[0]) if group != before else "" for value in group] + [latex_text(arm)]
        for column, paper in places:
            where = (group, arm, column)
            cells.append(
                _figure_of_paper(table, where) if paper else _latex(table.cells.get(where), where in table.bold)
            )
        lines.append(" & ".join(cells) + r" \\")
        before = group
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def to_markdown(table: Table) -> str:
    """The table for readers of the repository, floors included."""
    places = layout(table)
    heads = [NAMES[name] for name in table.factors] + ["method"]
    for column, paper in places:
        name, small = (column, IN_THE_PAPER) if paper else heading(column)
        heads.append(f"{name} ({small})" if small else name)
    texts = len(table.factors) + 1
    lines = [caption(table), "", _line(heads), _line(["---"] * texts + ["---:"] * (len(heads) - texts))]
    for number, (group, arm) in enumerate(table.lines):
        shown = [_factor(value)[0] for value in group]
        cells = []
        for column, paper in places:
            where = (group, arm, column)
            cells.append(
                _figure_of_paper(table, where) if paper else marked(table.cells.get(where), where in table.bold)
            )
        lines.append(_line([*shown, arm, *cells]))
        last = number + 1 == len(table.lines) or table.lines[number + 1][0] != group
        floors = _floors(table, group)
        if last and floors:
            cells = ["" if paper or name not in floors else figure(floors[name]) for name, paper in places]
            lines.append(_line([*shown, f"*{floor_name(floors)}*", *cells]))
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def marked(cell: Estimate | None, bold: bool) -> str:
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


def latex_text(text: str) -> str:
    """Words as LaTeX reads them."""
    return text.replace("%", r"\%").replace("±", r"$\pm$").replace("&", r"\&").replace("_", r"\_")
