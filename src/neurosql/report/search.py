"""The page of a search for settings: its history, what mattered, every trial, and the command that trains the best."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from neurosql import files
from neurosql.report import document
from neurosql.report.canvas import Figure, verbatim
from neurosql.report.document import Cell
from neurosql.report.sheet import INK

PAGE = "search.html"
GOOD, STOPPED = "#2f6f9f", "#bbbbbb"


@dataclass(frozen=True)
class Line:
    """One trial, as the page shows it."""

    number: int
    state: str
    value: float | None
    epochs: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Search:
    """What the page shows of a search."""

    method: str
    metric: str
    """What is judged, in words."""
    higher: bool
    """Whether more is better."""
    trials: Sequence[Line]
    best: int
    """The number of the best trial."""
    command: str
    importance: Mapping[str, float]


def write(found: Search, folder: Path) -> Path:
    """Write `search.html` to the folder of a search."""
    best = next(trial for trial in found.trials if trial.number == found.best)
    states = [trial.state for trial in found.trials]
    lead = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    figures = document.figure(_history(found), f"{found.metric}, trial by trial; the line is the best so far")
    if found.importance:
        caption = "how much of the differences between trials each setting explains (fANOVA)"
        figures += document.figure(_importance(found.importance), caption)
    told = {_flag(name): _text(value) for name, value in best.settings.items()}
    body = f"<h2>The best settings</h2>{document.definitions({found.metric: _text(best.value), **told})}"
    body += f"<p>Train with them:</p><pre>{escape(found.command)}</pre>"
    body += f'<h2>The search</h2><div class="pictures">{figures}</div>'
    body += f"<h2>Every trial</h2>{_table(found)}"
    content = document.page(f"Search for settings of {found.method}", f"Trials: {lead}.", body)
    files.replace(folder / PAGE, content.encode())
    return folder / PAGE


def _table(found: Search) -> str:
    names = list(dict.fromkeys(name for trial in found.trials for name in trial.settings))
    heads = [Cell("trial"), Cell("state", left=True), Cell(found.metric), Cell("epochs"), *map(Cell, map(_flag, names))]
    rows = [
        [
            Cell(str(trial.number)),
            Cell(trial.state, left=True),
            Cell(_text(trial.value), trial.value, bold=trial.number == found.best),
            Cell(str(trial.epochs)),
            *(Cell(_text(trial.settings.get(name))) for name in names),
        ]
        for trial in found.trials
    ]
    return document.table(heads, rows)


def _history(found: Search) -> bytes:
    """The metric of each trial, those that were stopped as ticks below, and the best so far."""
    done = [(trial.number, trial.value) for trial in found.trials if trial.value is not None]
    stopped = [trial.number for trial in found.trials if trial.value is None]
    better = max if found.higher else min
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    best = [better(value for _, value in done[: place + 1]) for place in range(len(done))]
    numbers = [number for number, _ in done]
    axes.step(numbers, best, where="post", color=GOOD, lw=1.2)
    axes.scatter(numbers, [value for _, value in done], color=GOOD, s=14, label="finished")
    if stopped:
        across = axes.get_xaxis_transform()
        axes.scatter(stopped, [0.02] * len(stopped), color=STOPPED, marker="|", transform=across, label="not finished")
        axes.legend(frameon=False, fontsize=8)
    _label(axes, "trial", found.metric)
    return _png(figure)


def _importance(shares: Mapping[str, float]) -> bytes:
    figure = Figure(figsize=(5.6, 0.9 + 0.35 * len(shares)), layout="constrained")
    axes = figure.subplots()
    names = list(shares)[::-1]
    axes.barh([verbatim(_flag(name)) for name in names], [shares[name] for name in names], color=GOOD)
    _label(axes, "share of the differences", "")
    return _png(figure)


def _label(axes: Any, across: str, up: str) -> None:
    axes.set_xlabel(across, fontsize=8, color=INK)
    axes.set_ylabel(verbatim(up), fontsize=8, color=INK)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, dpi=110)
    return content.getvalue()


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
