"""The page of a run: one HTML file that needs nothing else to open."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from neurosql import files
from neurosql.checkpoint import RunFolder
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.memorisation import in_words
from neurosql.metrics.score import Score, number
from neurosql.report import again, document, pictures
from neurosql.report import scores as tables
from neurosql.run import Run

NAME, CSV, LATEX = "report.html", "scores.csv", "scores.tex"
WIDE = {"curves.png"}


def write(run: Run, folder: Path, scores: dict[str, Any]) -> list[Path]:
    """Write `report.html` to a run's folder, with its pictures; several scores are also written as CSV and LaTeX.

    `scores` are those of `scores.json`.
    """
    written = [folder / NAME]
    found = [as_judged_today(Score.from_record(record)) for record in scores.values()]
    figures = "".join(
        document.figure(folder / name, caption, name in WIDE)
        for name, caption in pictures.captions(run).items()
        if (folder / name).is_file()
    )
    settings = json.dumps(run.config()["settings"], indent=2)
    body = document.definitions(_facts(run, found))
    if len(found) > 1:
        body += f"<h2>Scores</h2>{tables.to_html(found)}"
        title = f"{run.settings.method} on {run.data.description}"
        for name, content in ((CSV, tables.to_csv(found)), (LATEX, tables.to_latex(found, title))):
            files.replace(folder / name, content.encode())
            written.append(folder / name)
    body += f'<h2>Pictures</h2><div class="pictures">{figures}</div>'
    body += f"<h2>Use this run</h2><pre>{escape(_commands(folder))}</pre>"
    body += f"<h2>Settings</h2>{document.fold('all settings of this run', f'<pre>{escape(settings)}</pre>')}"
    body += f"<h2>Reproduce</h2>{_again(run, folder)}"
    files.replace(folder / NAME, document.page(folder.resolve().name, _lead(run), body).encode())
    return written


def _facts(run: Run, scores: list[Score]) -> dict[str, str]:
    last = run.history[-1] if run.history else {}
    seconds = sum(sum(record["seconds"].values()) for record in run.history)
    heldout = next((r["heldout_loss"] for r in reversed(run.history) if "heldout_loss" in r), None)
    facts = {
        "data": run.data.description,
        "trained on": f"{run.data.trained} samples, {run.data.heldout} held out",
        "method": f"{run.settings.method}, {run.method.title}",
        **run.method.facts(),
        "epochs": f"{len(run.history)}, {seconds:.0f} s of training",
        "training loss": number(last.get("loss")),
        "held-out loss": number(heldout),
        "variance of codes / of lattice": number(last.get("drift")),
    }
    if len(scores) == 1:
        facts |= {f"{s.name} ({s.mode}, n = {s.n})": number(s.value) for s in scores}
    copies = next((s for s in scores if (s.name, s.mode) == ("suspiciously close", "sampled")), None)
    if copies is not None:
        judged, _, reason = copies.note.partition(": ")
        assert copies.interval is not None
        facts["memorisation"] = f"{judged}. {in_words(copies.value, copies.interval, copies.n, reason)}"
    return facts


def _again(run: Run, folder: Path) -> str:
    config = RunFolder.existing(folder).config()
    made = ", ".join(f"{name} {version}" for name, version in config["versions"].items())
    words = (
        f"Made with neurosql {config['version']}, {made}, {config['threads']} thread(s). With the same versions and "
    )
    words += "threads, on the same kind of processor, the command gives the same model, bit for bit."
    return f"<pre>{escape(again.how(run, folder))}</pre><p>{escape(words)}</p>"


def _commands(folder: Path) -> str:
    name = folder.as_posix()
    return f"neurosql sample {name} -n 64\nneurosql evaluate {name}\nneurosql report {name}"


def _lead(run: Run) -> str:
    if run.settings.method == "neurosql":
        own = run.settings.quantile
        if own.law == "learnt":
            return "One generator, whose codes lie near the quantiles of a mixture that was learnt with them."
        if own.components != 1:
            return f"One generator, whose codes are a permutation of {run.data.trained} quantiles of a mixture."
        return f"One generator, whose codes are a permutation of {run.data.trained} quantiles of the prior."
    return f"Trained by {run.method.title}, for comparison with quantile assignment: same generator, same budget."
