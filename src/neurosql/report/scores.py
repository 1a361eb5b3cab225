"""The scores of a run as HTML, CSV and LaTeX: the same figures in each, mode by mode."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from html import escape

from neurosql.metrics.records import MODES
from neurosql.metrics.score import Score, number
from neurosql.report import document
from neurosql.report.document import Cell
from neurosql.report.tables import LATEX_ARROW, latex_text

ARROWS = {"lower": "↓", "higher": "↑", "none": ""}
SIGNS = {"lower": -1, "higher": 1, "none": 0}
FIELDS = ("score", "features", "mode", "value", "low", "high", "spread", "floor", "n", "n_real", "seed", "note")


def by_mode(scores: Iterable[Score]) -> list[Score]:
    """The scores in the order of their modes."""
    scores = list(scores)
    return [score for mode in MODES for score in scores if score.mode == mode]


def between(score: Score) -> str:
    """The interval in words, or the spread over extractors."""
    if score.spread is not None:
        return f"sd {number(score.spread)} over nets"
    return "" if score.interval is None else " to ".join(map(number, score.interval))


def to_html(scores: Iterable[Score]) -> str:
    """All scores in one table, each with its mode, interval and floor."""
    heads = [Cell("score", left=True), Cell("features", left=True), Cell("mode", left=True)]
    heads += [Cell(name) for name in ("value", "95 % interval", "floor", "n")] + [Cell("", left=True)]
    rows: list[list[Cell]] = []
    kinds: list[str] = []
    for score in by_mode(scores):
        row = [Cell(f"{score.name} {ARROWS[score.direction]}".strip(), left=True)]
        row += [Cell(score.features or "", left=True), Cell(score.mode, left=True)]
        row += [Cell(number(score.value), score.value), Cell(between(score)), Cell(number(score.floor), score.floor)]
        row += [Cell(str(score.n)), Cell(score.note, left=True, wraps=True)]
        kinds.append("first" if not rows or rows[-1][2].text != score.mode else "")
        rows.append(row)
    seen = {row[2].text for row in rows}
    modes = "".join(f"<p><b>{escape(mode)}</b>: {escape(text)}.</p>" for mode, text in MODES.items() if mode in seen)
    note = "<p>The floor is the same score of real images against real images: what a perfect model would get.</p>"
    return document.table(heads, rows, kinds) + document.fold("what the modes mean", modes + note)


def to_csv(scores: Iterable[Score]) -> str:
    """One row per score, with every digit."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(FIELDS)
    for score in by_mode(scores):
        low, high = score.interval or ("", "")
        row = (score.name, score.features, score.mode, score.value, low, high, score.spread, score.floor)
        out.writerow(["" if v is None else v for v in (*row, score.n, score.n_real, score.seed, score.note)])
    return text.getvalue()


def to_latex(scores: Iterable[Score], title: str) -> str:
    """A booktabs table with a heading for each mode."""
    lines = [r"\begin{table}", r"\centering\small", rf"\caption{{{latex_text(title)}}}"]
    lines += [r"\begin{tabular}{llrrrr}", r"\toprule"]
    lines += [r"score & features & value & 95 \% interval & floor & n \\"]
    mode = ""
    for score in by_mode(scores):
        if score.mode != mode:
            mode = score.mode
            lines += [r"\midrule", rf"\multicolumn{{6}}{{l}}{{\textit{{{mode}}}: {latex_text(MODES[mode])}}} \\"]
        name = f"{latex_text(score.name)} {LATEX_ARROW[SIGNS[score.direction]]}".strip()
        cells = [name, score.features or "", number(score.value), between(score), number(score.floor), str(score.n)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])
