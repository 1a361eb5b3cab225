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


def printed_scores(table: Table) -> list[str]:
    """Scores that the paper has figures for, in the order of the columns."""
    found = dict.fromkeys(score for _, _, score in table.printed)
    order = [score for column in table.columns for score in found if parts_of(column)[0] == score]
    return list(dict.fromkeys([*order, *found]))


def to_html(table: Table) -> str:
    """A line for each contender, floors under each group, and the paper's figures at the end."""
    printed = printed_scores(table)
    heads = [*factor_heads(table), Cell("method", left=True)]
    heads += [Cell(name, below=mode) for name, mode in map(heading, table.columns)]
    heads += [Cell(score, below="in the paper") for score in printed]
    heads += [Cell("copies", left=True)] if table.verdicts else []
    lines: list[list[Cell]] = []
    kinds: list[str] = []
    for number, (group, arm) in enumerate(table.lines):
        row = [*factors_of(table, group), Cell(arm, left=True)]
        for column in table.columns:
            cell = table.cells.get((group, arm, column))
            row.append(Cell("") if cell is None else _shown(cell, (group, arm, column) in table.bold))
        row += [_printed(table, group, arm, score) for score in printed]
        row += [Cell(table.verdicts.get((group, arm), ""), left=True)] if table.verdicts else []
        lines.append(row)
        kinds.append("first" if number and table.lines[number - 1][0] != group else "")
        last = number + 1 == len(table.lines) or table.lines[number + 1][0] != group
        if last and any((group, column) in table.floors for column in table.columns):
            row = factors_of(table, group)
            floors = [table.floors.get((group, column)) for column in table.columns]
            row += [Cell(floor_name(c for c, value in zip(table.columns, floors) if value is not None), left=True)]
            row += [Cell("") if value is None else Cell(figure(value), value) for value in floors]
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


def _shown(cell: Estimate, bold: bool) -> Cell:
    return Cell(figure(cell.mean), cell.mean, half_width(cell), bold)


def _printed(table: Table, group: Group, arm: str, score: str) -> Cell:
    value = table.printed.get((group, arm, score))
    return Cell("") if value is None else Cell(figure(value), value)


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
    printed = printed_scores(table)
    spec = "l" * (len(table.factors) + 1) + "r" * (len(table.columns) + len(printed))
    heads = [NAMES[name] for name in table.factors] + ["method"]
    for column in table.columns:
        name, small = _words(column)
        below = rf"\\{{\scriptsize {_escaped(small)}}}" if small else ""
        heads.append(rf"\shortstack{{{_escaped(name)} {LATEX_ARROW[direction(column)]}{below}}}")
    heads += [rf"\shortstack{{{_escaped(score)}\\{{\scriptsize in the paper}}}}" for score in printed]
    lines = [r"\begin{table}", r"\centering\small", rf"\caption{{{_escaped(caption(table))}}}"]
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    before: Group | None = None
    for group, arm in table.lines:
        if before is not None and group != before:
            lines.append(r"\addlinespace")
        cells = [_escaped(_factor(value)[0]) if group != before else "" for value in group] + [_escaped(arm)]
        for column in table.columns:
            cells.append(_latex(table.cells.get((group, arm, column)), (group, arm, column) in table.bold))
        for score in printed:
            cells.append(figure(table.printed.get((group, arm, score), math.nan)))
        lines.append(" & ".join(cells) + r" \\")
        before = group
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def to_markdown(table: Table) -> str:
    """The table for readers of the repository, floors included."""
    printed = printed_scores(table)
    names = [" ".join(f"{name} ({small})" if small else name for name, small in [heading(c)]) for c in table.columns]
    heads = [NAMES[name] for name in table.factors] + [
        "method",
        *names,
        *(f"{score}, in the paper" for score in printed),
    ]
    texts = len(table.factors) + 1
    lines = [caption(table), "", _line(heads), _line(["---"] * texts + ["---:"] * (len(heads) - texts))]
    for number, (group, arm) in enumerate(table.lines):
        shown = [_factor(value)[0] for value in group]
        cells = [marked(table.cells.get((group, arm, c)), (group, arm, c) in table.bold) for c in table.columns]
        cells += [figure(table.printed.get((group, arm, score), math.nan)) for score in printed]
        lines.append(_line([*shown, arm, *cells]))
        last = number + 1 == len(table.lines) or table.lines[number + 1][0] != group
        floors = [table.floors.get((group, column)) for column in table.columns]
        if last and any(value is not None for value in floors):
            cells = ["" if value is None else figure(value) for value in floors]
            name = floor_name(c for c, value in zip(table.columns, floors) if value is not None)
            lines.append(_line([*shown, f"*{name}*", *cells, *[""] * len(printed)]))
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


def _escaped(text: str) -> str:
    return text.replace("%", r"\%").replace("±", r"$\pm$").replace("&", r"\&").replace("_", r"\_")
