"""The scores of a run as HTML, CSV and LaTeX: the same figures in each, mode by mode."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from html import escape

from neurosql.metrics.records import ALL_FEATURES, MODES
from neurosql.metrics.scale import Scale, scale_of
from neurosql.metrics.score import Score, beside, number, references
from neurosql.report import document
from neurosql.report.document import Cell
from neurosql.report.tables import LATEX_ARROW, figure, latex_text

ARROWS = {"lower": "↓", "higher": "↑", "none": ""}
SIGNS = {"lower": -1, "higher": 1, "none": 0}
FIELDS = (
    *("score", "features", "mode", "value", "low", "high", "spread", "reference", "reference is"),
    *("n", "n_real", "seed", "note"),
)
HEADINGS = {
    "sampled": "New samples, compared with real ones that were not trained on",
    "paired-train": "Training samples, compared with what the model makes of their codes",
    "paired-heldout": "Samples that were not trained on, compared with what the model makes of them",
    "train-heldout": "Training samples, compared with samples that were not trained on",
    "codes": "The places of the training samples on the map",
}
SEEN_BY = {
    "random net": "a network with random weights",
    "pixels": "pixels",
    "classifier": "a small classifier of the labels",
    "vgg": "VGG, a network trained on photographs",
    "inception": "Inception-v3, the network of FID",
}
# A scale: its length and height, and how far its ends are from those of the drawing.
LENGTH, HEIGHT, MARGIN = 200, 20, 8


def by_mode(scores: Iterable[Score]) -> list[Score]:
    """The scores in the order of their modes."""
    scores = list(scores)
    return [score for mode in MODES for score in scores if score.mode == mode]


def between(score: Score) -> str:
    """The interval in words, or the spread over extractors."""
    if score.spread is not None:
        return f"sd {number(score.spread)} over nets"
    return "" if score.interval is None else " to ".join(map(number, score.interval))


def to_html(scores: Iterable[Score], features: str = "") -> str:
    """All scores on their scales, mode by mode; those by other features than these, and all details, are folded."""
    scores = by_mode(scores)
    other = [s for s in scores if features and s.features in ALL_FEATURES and s.features != features]
    shown = [s for s in scores if s not in other]
    parts = [_group(HEADINGS[mode], some) for mode in MODES if (some := [s for s in shown if s.mode == mode])]
    if other:
        groups: dict[str, list[Score]] = {}
        for score in other:
            groups.setdefault(score.features or "", []).append(score)
        more = "".join(_group(f"As seen by {SEEN_BY.get(name, name)}", some) for name, some in groups.items())
        seen = f"The distances and neighbours above are those that {SEEN_BY.get(features, features)} sees."
        parts.append(document.fold("The same scores, as seen by others", f"<p>{escape(seen)}</p>{more}"))
    parts.append(document.fold("All figures, with intervals and notes", details(scores)))
    return "".join(parts)


def _group(heading: str, scores: Sequence[Score]) -> str:
    """Some scores under one heading: each with its scale, its value and what to compare it with."""
    lines = []
    # Scores with a worst and a best come first: they need no experience with other models.
    for score in sorted(scores, key=lambda score: score.known is None or score.known.scale is None):
        words = "" if score.known is None else score.known.in_words(score.mode)
        name = f"{escape(score.name)}<small>{escape(words)}</small>"
        scale = scale_of(score)
        drawn = "" if scale is None else svg(scale, f"{score.name} {number(score.value)}")
        told = "" if score.reference is None else f"<small>{escape(score.reference.label)}</small>"
        other = "" if score.floor is None else figure(score.floor)
        figures = f'<td class="value">{figure(score.value)}</td><td class="beside">{other}{told}</td>'
        lines.append(f'<tr><th scope="row">{name}</th><td class="line">{drawn}</td>{figures}</tr>')
    heads = "".join(f"<th>{text}</th>" for text in ("", "<span>worst</span><span>best</span>", "score", "compare with"))
    table = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<h3>{escape(heading)}</h3><table class="scores">{table}</table>'


def svg(scale: Scale, words: str) -> str:
    """A score as a dot on a line from worst to best, with its interval, and a mark for what to compare it with."""
    middle = HEIGHT / 2

    def x(share: float) -> str:
        return f"{MARGIN + share * (LENGTH - 2 * MARGIN):.1f}"

    title = f"{words}, from {scale.worst} (worst) to {scale.best} (best)"
    parts = [f'<line class="track" x1="{x(0)}" x2="{x(1)}" y1="{middle}" y2="{middle}"/>']
    if scale.between is not None:
        low, high = map(x, scale.between)
        parts.append(f'<line class="interval" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>')
    if scale.reference is not None:
        at = x(scale.reference)
        parts.append(f'<line class="mark" x1="{at}" x2="{at}" y1="2" y2="{HEIGHT - 2}"/>')
    kind = "good" if scale.at > 2 / 3 else "fair" if scale.at > 1 / 3 else "poor"
    parts.append(f'<circle class="{kind}" cx="{x(scale.at)}" cy="{middle}" r="5.5"/>')
    inside = f"<title>{escape(title)}</title>{''.join(parts)}"
    return f'<svg viewBox="0 0 {LENGTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{inside}</svg>'


def details(scores: Sequence[Score]) -> str:
    """All scores in one sortable table, each with its mode, its interval and its note."""
    heads = [Cell("score", left=True), Cell("features", left=True), Cell("mode", left=True)]
    heads += [Cell(name) for name in ("value", "95 % interval", "compare with", "n")] + [Cell("", left=True)]
    rows: list[list[Cell]] = []
    kinds: list[str] = []
    for score in scores:
        row = [Cell(f"{score.name} {ARROWS[score.direction]}".strip(), left=True)]
        row += [Cell(score.features or "", left=True), Cell(score.mode, left=True)]
        row += [Cell(number(score.value), score.value), Cell(between(score)), Cell(beside(score), score.floor)]
        row += [Cell(str(score.n)), Cell(score.note, left=True, wraps=True)]
        kinds.append("first" if not rows or rows[-1][2].text != score.mode else "")
        rows.append(row)
    seen = {row[2].text for row in rows}
    words = {mode: text for mode, text in MODES.items() if mode in seen}
    words |= {reference.label: reference.meaning for reference in references(scores)}
    meant = "".join(f"<p><b>{escape(name)}</b>: {escape(text)}.</p>" for name, text in words.items())
    return document.table(heads, rows, kinds) + meant


def to_csv(scores: Iterable[Score]) -> str:
    """One row per score, with every digit."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(FIELDS)
    for score in by_mode(scores):
        low, high = score.interval or ("", "")
        row = (score.name, score.features, score.mode, score.value, low, high, score.spread, score.floor)
        told = score.reference.label if score.reference else ""
        out.writerow(["" if v is None else v for v in (*row, told, score.n, score.n_real, score.seed, score.note)])
    return text.getvalue()


def to_latex(scores: Iterable[Score], title: str) -> str:
    """A booktabs table with a heading for each mode."""
    scores = by_mode(scores)
    lines = [r"\begin{table}", r"\centering\small", rf"\caption{{{latex_text(title)}}}"]
    lines += [r"\begin{tabular}{llrrrr}", r"\toprule"]
    lines += [r"score & features & value & 95 \% interval & compare with & n \\"]
    mode = ""
    for score in scores:
        if score.mode != mode:
            mode = score.mode
            lines += [r"\midrule", rf"\multicolumn{{6}}{{l}}{{\textit{{{mode}}}: {latex_text(MODES[mode])}}} \\"]
        name = f"{latex_text(score.name)} {LATEX_ARROW[SIGNS[score.direction]]}".strip()
        cells = [
            name,
            score.features or "",
            number(score.value),
            between(score),
            latex_text(beside(score)),
            str(score.n),
        ]
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    meant = "; ".join(f"{reference.label}, {reference.meaning}" for reference in references(scores))
    lines += [rf"\par {latex_text(meant)}."] if meant else []
    return "\n".join([*lines, r"\end{table}", ""])
