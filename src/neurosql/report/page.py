"""The page of a run: one HTML file that needs nothing else to open."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from neurosql.metrics.score import MODES, Score, number
from neurosql.report import document, pictures
from neurosql.report.document import Cell
from neurosql.run import Run

NAME = "report.html"
WIDE = {"curves.png"}
ARROWS = {"lower": "↓", "higher": "↑", "none": ""}


def write(run: Run, folder: Path, scores: dict[str, Any]) -> Path:
    """`report.html` in a run's folder, with the pictures there; `scores` are those of `scores.json`."""
    path = folder / NAME
    found = [Score.from_record(record) for record in scores.values()]
    figures = "".join(
        document.figure(folder / name, caption, name in WIDE)
        for name, caption in pictures.captions(run).items()
        if (folder / name).is_file()
    )
    settings = json.dumps(run.config()["settings"], indent=2)
    body = document.definitions(_facts(run, found))
    if len(found) > 1:
        body += f"<h2>Scores</h2>{_scores(found)}"
    body += f'<h2>Pictures</h2><div class="pictures">{figures}</div>'
    body += f"<h2>How to use it</h2><pre>{escape(_commands(folder))}</pre>"
    body += f"<h2>Settings</h2>{document.fold('all settings of this run', f'<pre>{escape(settings)}</pre>')}"
    path.write_text(document.page(folder.resolve().name, _lead(run), body), encoding="utf-8")
    return path


def _facts(run: Run, scores: list[Score]) -> dict[str, str]:
    last = run.history[-1] if run.history else {}
    seconds = sum(sum(record["seconds"].values()) for record in run.history)
    heldout = next((r["heldout_loss"] for r in reversed(run.history) if "heldout_loss" in r), None)
    facts = {
        "data": run.data["description"],
        "trained on": f"{run.data['trained']} samples, {run.data['heldout']} held out",
        "method": f"{run.settings.method}, {run.method.title}",
        **run.method.facts(),
        "epochs": f"{len(run.history)}, {seconds:.0f} s of training",
        "training loss": number(last.get("loss")),
        "held-out loss": number(heldout),
        "codes' variance / lattice's": number(last.get("drift")),
    }
    if len(scores) == 1:
        facts |= {f"{s.name} ({s.mode}, n = {s.n})": number(s.value) for s in scores}
    copies = next((s for s in scores if (s.name, s.mode) == ("suspiciously close", "sampled")), None)
    if copies is not None:
        share = f"{100 * copies.value:.1f} % of {copies.n} samples are suspiciously near to a training image"
        facts["memorisation"] = f"{copies.note}: {share}, where about 1 % are by chance"
    return facts


def _scores(scores: list[Score]) -> str:
    """All scores in one table, each with its mode, interval and floor."""
    heads = [Cell("score", left=True), Cell("features", left=True), Cell("mode", left=True)]
    heads += [Cell(name) for name in ("value", "95 % interval", "floor", "n")] + [Cell("", left=True)]
    rows: list[list[Cell]] = []
    kinds: list[str] = []
    for mode in MODES:
        for score in (s for s in scores if s.mode == mode):
            between = "" if score.interval is None else " to ".join(map(number, score.interval))
            between = between if score.spread is None else f"sd {number(score.spread)} over nets"
            row = [Cell(f"{score.name} {ARROWS[score.direction]}".strip(), left=True)]
            row += [Cell(score.features or "", left=True), Cell(score.mode, left=True)]
            row += [Cell(number(score.value), score.value), Cell(between), Cell(number(score.floor), score.floor)]
            row += [Cell(str(score.n)), Cell(score.note, left=True, wraps=True)]
            kinds.append("first" if not rows or rows[-1][2].text != mode else "")
            rows.append(row)
    seen = {score.mode for score in scores}
    modes = "".join(f"<p><b>{escape(mode)}</b>: {escape(text)}.</p>" for mode, text in MODES.items() if mode in seen)
    note = "<p>The floor is the same score of real images against real images: what a perfect model would get.</p>"
    return document.table(heads, rows, kinds) + document.fold("what the modes mean", modes + note)


def _commands(folder: Path) -> str:
    name = folder.as_posix()
    return f"neurosql sample {name} -n 64\nneurosql evaluate {name}\nneurosql report {name}"


def _lead(run: Run) -> str:
    if run.settings.method == "neurosql":
        return f"One generator; its codes are a permutation of {run.data['trained']} quantiles of the prior."
    return f"Trained by {run.method.title}, to be compared with quantile assignment on the same generator and budget."
