"""The page of a bench: summary first, then tables, plots, sample sheets, and how to reproduce it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from neurosql import files, intake
from neurosql.bench import compare, rows
from neurosql.bench.compare import Table
from neurosql.bench.declare import Experiment, Job
from neurosql.bench.experiments import EXPERIMENTS, find
from neurosql.bench.jobs import JOBS, PICTURES
from neurosql.errors import InputError
from neurosql.report import conclusion, document, plots, sheets, tables
from neurosql.report.document import Cell

INDEX = "index.html"
TABLES = "tables"
OF_THE_PAPER = (
    "The paper's proxy-FID uses the features of another random network: compare the order of methods, not the figures. "
    "The paper says that its figures are of samples unless noted; an SSIM far above that of two real images can only "
    "be one of reconstructions."
)


def write(experiment: Experiment, path: Path, jobs: Path | None = None) -> list[Path]:
    """Write the page of a table of results, NAME.html beside NAME.csv, and its tables, in three formats, in tables/.

    Sheets are drawn from what the runs left in the folder `jobs`, by default jobs/ beside the table.
    """
    found = rows.read(path)
    if not found:
        raise InputError(f"{path} has no results")
    results = list(found.values())
    made = {"": compare.build(experiment, results)}
    if experiment.averaged:
        made["-average"] = compare.build(experiment, results, averaged=True)
    written = []
    for suffix, table in made.items():
        made_of = {"tex": tables.to_latex, "csv": tables.to_csv, "md": tables.to_markdown}
        for ending, content in ((ending, write_as(table)) for ending, write_as in made_of.items()):
            target = path.parent / TABLES / f"{path.stem}{suffix}.{ending}"
            files.replace(intake.inside(path.parent, target), content.encode())
            written.append(target)
    plot = plots.draw(made[""])
    if plot is not None:
        written.append(path.parent / PICTURES / f"{path.stem}.png")
        files.replace(intake.inside(path.parent, written[-1]), plot)
    done = [row for row in results if row["status"] == rows.DONE]
    drawn: dict[str, list[sheets.Sheet]] = {}
    for kind, title, draw in (
        ("samples", "Samples", sheets.samples),
        ("planes", "Latent planes", sheets.planes),
    ):
        if kind in experiment.figures:
            drawn[title] = draw(experiment, done, path, jobs or path.parent / JOBS)
    files_of_sheets = [path.parent / PICTURES / sheet.name for some in drawn.values() for sheet in some]
    written += [file for file in files_of_sheets if file.is_file()]
    page = path.with_suffix(".html")
    files.replace(page, _page(experiment, results, made, plot, drawn, path).encode())
    return [page, *written]


def write_all(folder: Path, experiments: Iterable[Experiment] | None = None) -> list[Path]:
    """Write the page of every table in a folder, and an index; by default for all registered experiments."""
    chosen = map(find, EXPERIMENTS) if experiments is None else experiments
    found = [(experiment, path) for experiment in chosen if (path := folder / f"{experiment.name}.csv").is_file()]
    if not found:
        raise InputError(f"{folder} is neither a run nor a folder of results")
    written = [page for experiment, path in found for page in write(experiment, path)]
    heads = [Cell("experiment", left=True), Cell("question", left=True), Cell("runs"), Cell("failed")]
    lines = []
    for experiment, path in found:
        results = rows.read(path).values()
        failed = sum(row["status"] != rows.DONE for row in results)
        lines.append((experiment, len(results), failed))
    items = "".join(
        f'<tr><td class="text prose"><a href="{escape(e.name)}.html">{escape(e.title)}</a></td>'
        f'<td class="text prose">{escape(e.question)}</td><td>{count}</td><td>{failed or ""}</td></tr>'
        for e, count, failed in lines
    )
    head = "".join(cell.html("th") for cell in heads)
    body = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{items}</tbody></table></div>'
    files.replace(folder / INDEX, document.page("Results", "Every experiment that was run.", body).encode())
    return [folder / INDEX, *written]


def _page(
    experiment: Experiment,
    results: list[rows.Row],
    made: dict[str, Table],
    plot: bytes | None,
    sheets_by_title: dict[str, list[sheets.Sheet]],
    path: Path,
) -> str:
    table = made[""]
    done = [row for row in results if row["status"] == rows.DONE]
    body = f"<h2>Table</h2><p>{escape(tables.caption(table))}</p>{tables.to_html(table)}"
    if experiment.scored:
        floors = tables.floors_of(table)
        meant = f"; <em>{floors}</em> is {tables.floors_in_words(table)}" if floors else ""
        body += f"<p>Every column has one mode{meant}. {OF_THE_PAPER if table.printed else ''}</p>"
    else:
        body += "<p>The runs were made one at a time, with nothing else running. Epoch times exclude validation; "
        body += "memory is the peak of the whole process.</p>"
    if "-average" in made:
        body += f"<h2>Averages over latent dimensions</h2>{tables.to_html(made['-average'])}"
    drawn = shown = ""
    if plot is not None:
        figure = document.figure(plot, plots.caption(table), wide=True)
        drawn = f'<h2>Plots</h2><div class="pictures">{figure}</div>'
    for title, some in sheets_by_title.items():
        if some:
            figures = "".join(document.figure(sheet.png, sheet.caption, wide=True) for sheet in some)
            shown += f'<h2>{title}</h2><div class="pictures">{figures}</div>'
    # The result comes first: the plot against the number of images, or the samples of a contact sheet.
    body = drawn + body if "lines" in experiment.figures else body + drawn
    body = shown + body if "contact" in experiment.figures else body + shown
    body = f"<h2>Summary</h2>{_summary(table, results)}{body}"
    if experiment.scored and conclusion.is_noise(done):
        body = f'<p class="warning">{escape(conclusion.NOISE)}</p>{body}'
    elif experiment.scored:
        words = "".join(f"<li>{escape(sentence)}</li>" for sentence in conclusion.sentences(table))
        body = f"<h2>In words</h2><ul>{words}</ul>{body}" if words else body
    body += f"<h2>Significant differences</h2>{_differences(table)}"
    failed = [row for row in results if row["status"] != rows.DONE]
    if failed:
        items = "".join(f"<li>{escape(_who(row))}: {escape(str(row['reason']))}</li>" for row in failed)
        body += f"<h2>Runs that failed</h2><ul>{items}</ul>"
    body += f"<h2>Reproduce</h2>{_again(experiment, done, path)}"
    return document.page(experiment.title, experiment.question, body, broad=True)


def _summary(table: Table, results: list[rows.Row]) -> str:
    done = sum(row["status"] == rows.DONE for row in results)
    facts = {
        "runs": f"{done} done" + (f", {len(results) - done} failed" if done < len(results) else ""),
        "seeds": str(table.seeds),
        "data": "; ".join(_sizes(results)),
        "memorisation": _verdicts(table),
    }
    heads = [Cell("method", left=True), Cell("better"), Cell("worse"), Cell("undecided"), Cell("comparisons")]
    lines = [
        [Cell(arm, left=True), *(Cell(str(v)) for v in (won, lost, every - won - lost, every))]
        for arm, (won, lost, every) in table.wins().items()
    ]
    if not table.differences:
        return document.definitions(facts) + "<p>One seed is not enough to compare contenders: run more seeds.</p>"
    words = "<p>Each comparison is between two contenders, on one score, in the same group and on the same seeds. "
    words += "A contender is better if a paired t test gives p below 5 %, after Holm's correction over the table.</p>"
    return document.definitions(facts) + words + document.table(heads, lines)


def _sizes(results: list[rows.Row]) -> list[str]:
    """Each data set with its numbers of images."""
    found: dict[str, dict[int, str]] = {}
    for row in results:
        images = row["images"]
        found.setdefault(row["data"], {})[images] = f"{images:,}" if isinstance(images, int) else "unknown"
    return [f"{name} ({', '.join(sizes.values())} images)" for name, sizes in found.items()]


def _verdicts(table: Table) -> str:
    """The worst verdict of each contender, in words."""
    worst: dict[str, str] = {}
    for (_, arm), verdict in table.verdicts.items():
        worst[arm] = max(worst.get(arm, ""), verdict, key=compare.severity)
    order = sorted(set(worst.values()), key=compare.severity, reverse=True)
    return "; ".join(f"{verdict}: {', '.join(arm for arm in worst if worst[arm] == verdict)}" for verdict in order)


def _differences(table: Table) -> str:
    held = [d for d in table.differences if d.winner is not None]
    if not held:
        return f"<p>None of {len(table.differences)} comparisons.</p>"
    heads = tables.factor_heads(table)
    heads += [Cell("score", left=True), Cell("mode", left=True), Cell("better", left=True), Cell("than", left=True)]
    heads += [Cell("by"), Cell("p"), Cell("p, corrected")]
    lines = []
    for d in held:
        name, mode = tables.heading(d.column)
        row = tables.factors_of(table, d.group)
        row += [
            Cell(name, left=True),
            Cell(mode, left=True),
            Cell(str(d.winner), left=True),
            Cell(str(d.loser), left=True),
        ]
        row += [
            Cell(tables.figure(abs(d.mean)), abs(d.mean)),
            Cell(f"{d.p:.1e}", d.p),
            Cell(f"{d.adjusted:.1e}", d.adjusted),
        ]
        lines.append(row)
    return document.fold(f"{len(held)} of {len(table.differences)} comparisons", document.table(heads, lines))


def _who(row: rows.Row) -> str:
    dim = "" if row["latent_dim"] == "" else f", d = {row['latent_dim']}"
    return f"{row['data']}, {row['arm']}{dim}"


def _again(experiment: Experiment, done: list[rows.Row], path: Path) -> str:
    budget, seeds = path.resolve().parent.name, len({row["seed"] for row in done})
    command = (
        f"neurosql bench run {experiment.name} --budget {budget} --seeds {seeds}\nneurosql report {path.as_posix()}"
    )
    made = dict.fromkeys(
        f"neurosql {r['version']}, Python {r['python']}, torch {r['torch']}, {r['threads']} thread(s), {r['cpu']}"
        for r in done
    )
    found = {}
    known: dict[str, Job] = {}
    for name in ("smoke", "laptop", "paper"):
        known |= {job.config: job for job in experiment.jobs(name, 1)}
    for row in done:
        if row["config"] in known:
            found[_who(row)] = known[row["config"]].settings.flat()
    settings = escape(json.dumps(_common(found), indent=1))
    return f"<pre>{escape(command)}</pre><p>{'<br>'.join(map(escape, made))}</p>" + document.fold(
        "all settings", f"<pre>{settings}</pre>"
    )


def _common(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Settings that all runs share, listed once, and the other settings of each run."""
    shared = {
        name: value
        for name, value in next(iter(found.values()), {}).items()
        if all(name in other and other[name] == value for other in found.values())
    }
    own = {who: {k: v for k, v in settings.items() if k not in shared} for who, settings in found.items()}
    return {"all": shared, **own}
