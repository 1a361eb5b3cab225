"""The plots of a bench: scores against the latent dimension, time and memory against the number of images."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from neurosql.bench.compare import Estimate, Table
from neurosql.metrics.column import Column
from neurosql.report import tables
from neurosql.report.canvas import Figure, colormaps, ticker, verbatim
from neurosql.report.sheet import INK

ACROSS, PANELS = 3, 6
MARKS = "osD^"
LEGEND: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": 8}


@dataclass
class Panel:
    """One score against the latent dimension."""

    column: Column
    dims: list[int]
    arms: dict[str, dict[int, Estimate]]
    flat: dict[str, Estimate]  # of contenders without a latent dimension
    floor: float | None


def caption(table: Table) -> str:
    """What the plot of a table shows."""
    if "lines" in table.experiment.figures:
        return "mean seconds per epoch and peak memory against the number of images, and their ratios"
    floors = tables.floors_of(table)
    seeds = "means over seeds with their 95 % intervals" if table.seeds > 1 else "one seed"
    return f"{seeds}{f'; dotted: {floors}' if floors else ''}"


def draw(table: Table) -> bytes | None:
    """Scores against what varies: the latent dimension, or the number of images."""
    if "lines" in table.experiment.figures:
        return _lines(table)
    found = panels(table)
    return _dims(found, table.arms) if found else None


def panels(table: Table) -> list[Panel]:
    """The first scores of a table, if its groups differ in nothing but the latent dimension; else nothing."""
    if "latent_dim" not in table.factors:
        return []
    place = table.factors.index("latent_dim")
    if len({group[:place] + group[place + 1 :] for group in table.groups}) != 1:
        return []
    dims = sorted(group[place] for group in table.groups if group[place] != "")
    found = []
    for column in [column for column in table.columns if not column.record.chosen][:PANELS]:
        arms: dict[str, dict[int, Estimate]] = {}
        flat = {}
        for group, arm in table.lines:
            cell = table.cells.get((group, arm, column))
            if cell is not None and group[place] == "":
                flat[arm] = cell
            elif cell is not None:
                arms.setdefault(arm, {})[group[place]] = cell
        floors = [value for (_, name), value in table.floors.items() if name == column]
        found.append(Panel(column, dims, arms, flat, sum(floors) / len(floors) if floors else None))
    return found


def _dims(found: list[Panel], arms: list[str]) -> bytes:
    """One panel per score; contenders without a latent dimension are at the right, with a dashed line."""
    lines = -(-len(found) // ACROSS)
    figure = Figure(figsize=(11, 3.2 * lines + 0.5), layout="constrained")
    all_axes = figure.subplots(lines, ACROSS, squeeze=False).ravel()
    drawn: dict[str, Any] = {}
    for axes, panel in zip(all_axes, found):
        ticks = [*map(str, panel.dims), *(["any"] if panel.flat else [])]
        for number, arm in enumerate(arms):
            # There are ten colours; the next ten contenders have another mark.
            color, mark = colormaps["tab10"](number % 10), MARKS[number // 10 % len(MARKS)]
            aside = min(0.05, 0.6 / len(arms)) * (number - (len(arms) - 1) / 2)
            cells = {panel.dims.index(d): cell for d, cell in panel.arms.get(arm, {}).items()}
            if arm in panel.flat:
                cells = {len(panel.dims): panel.flat[arm]}
                axes.axhline(panel.flat[arm].mean, color=color, lw=0.8, ls="--", alpha=0.6)
            if cells:
                x, y = [i + aside for i in cells], [cell.mean for cell in cells.values()]
                err = [0.0 if cell.n < 2 else (cell.high - cell.low) / 2 for cell in cells.values()]
                drawn[arm] = axes.errorbar(x, y, err, color=color, lw=1.2, capsize=2, marker=mark, ms=4)
        if panel.floor is not None:
            axes.axhline(panel.floor, color="#999999", lw=1, ls=":")
        name, mode = tables.heading(panel.column)
        axes.set_title(verbatim(f"{name}{f' ({mode})' if mode else ''}"), fontsize=9, color=INK)
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlim(-0.5, len(ticks) - 0.5)
        axes.set_xlabel("latent dimension", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in all_axes[len(found) :]:
        axes.set_visible(False)
    named = {verbatim(arm): drawn[arm] for arm in arms if arm in drawn}
    figure.legend(named.values(), named.keys(), ncols=6, **LEGEND)
    return _png(figure)


def _lines(table: Table) -> bytes:
    """Time and memory against N, and their ratios: one panel per batch size."""
    images, batch = (table.factors.index(name) for name in ("images", "batch"))
    sizes = sorted({group[images] for group in table.groups})
    batches = sorted({group[batch] for group in table.groups})
    figure = Figure(figsize=(3 * len(batches) + 0.5, 2.6 * len(table.columns) + 0.6), layout="constrained")
    panels = figure.subplots(len(table.columns), len(batches), squeeze=False, sharex=True, sharey="row")
    for line, column in zip(panels, table.columns):
        for axes, size in zip(line, batches):
            for number, arm in enumerate(table.arms):
                cells = {
                    g[images]: table.cells.get((g, a, column)) for g, a in table.lines if a == arm and g[batch] == size
                }
                points = sorted((n, cell.mean) for n, cell in cells.items() if cell is not None)
                if points:
                    axes.plot(*zip(*points), marker="o", ms=3, color=colormaps["tab10"](number), label=verbatim(arm))
            axes.set_xscale("log")
            axes.set_xticks(sizes, [_short(n) for n in sizes])
            axes.xaxis.set_minor_locator(ticker.NullLocator())
            axes.tick_params(which="both", labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
            if not column.over:
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
                axes.yaxis.set_minor_locator(ticker.NullLocator())
        if column.over:
            line[0].set_ylim(bottom=0)
        line[0].set_ylabel(" ".join(tables.heading(column)).replace(" ↓", ""), fontsize=8)
    for top, bottom, size in zip(panels[0], panels[-1], batches):
        top.set_title(f"m = {size}", fontsize=9, color=INK)
        bottom.set_xlabel("N", fontsize=8)
    figure.legend(*panels[0][0].get_legend_handles_labels(), ncols=4, **LEGEND)
    return _png(figure)


def _short(n: int) -> str:
    """A number of images that fits under an axis."""
    return f"{n // 1000}k" if n % 1000 == 0 else str(n)


def _png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, dpi=110)
    return content.getvalue()
