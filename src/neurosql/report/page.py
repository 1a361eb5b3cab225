"""The page of a run: one HTML file that needs nothing else to open, for people who were not there.

Samples and the answers to a stranger's questions come first, then the map with the training images on it, then the
scores, then what to do with the run. Everything else is folded.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from neurosql import files
from neurosql.checkpoint import LARGE, RunFolder
from neurosql.fitted import Run
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.score import Score, number
from neurosql.report import again, answers, document, pictures
from neurosql.report import scores as tables

NAME, CSV, LATEX = "report.html", "scores.csv", "scores.tex"
MAPS = ("images.png", "map.png")
COPIES = ("closest.png", "memorisation.png")
MORE = ("reconstructions.png", "latent.png", "curves.png")
WIDE = ("curves.png",)
SOME_CLASSES = 12


def write(run: Run, folder: Path, scores: dict[str, Any]) -> list[Path]:
    """Write `report.html` to a run's folder, with its pictures; several scores are also written as CSV and LaTeX.

    `scores` are those of `scores.json`.
    """
    written = [folder / NAME]
    found = [as_judged_today(Score.from_record(record)) for record in scores.values()]
    if len(found) > 1:
        title = f"{run.settings.method} on {run.data.description}"
        for name, content in ((CSV, tables.to_csv(found)), (LATEX, tables.to_latex(found, title))):
            files.replace(folder / name, content.encode())
            written.append(folder / name)
    body = _first(run, folder, found) + _map(run, folder) + _scores(found) + _use(run, folder) + _details(run, folder)
    files.replace(folder / NAME, document.page(folder.resolve().name, _lead(run), body).encode())
    return written


def _first(run: Run, folder: Path, scores: Sequence[Score]) -> str:
    """The samples beside the answers."""
    words = ""
    for answer in answers.answers(run, scores, folder):
        command = f" <code>{escape(answer.command)}</code>" if answer.command else ""
        words += f"<h2>{escape(answer.question)}</h2>"
        told = f"<b>{escape(answer.short)}</b> {escape(answer.rest)}".replace(" %", "&nbsp;%")
        words += f"<p>{told}{command}</p>"
    return f'<div class="opening">{_figures(run, folder, ["samples.png"])}<div>{words}</div></div>'


def _map(run: Run, folder: Path) -> str:
    figures = _figures(run, folder, MAPS)
    return f'<h2>The map</h2><div class="pictures">{figures}</div>' if figures else ""


def _scores(found: Sequence[Score]) -> str:
    if len(found) < 2:
        return ""
    how = "Each dot is a score, on a line from the worst to the best; the thick part of the line is its 95 % interval. "
    how += "The upright mark is what to compare it with."
    return f"<h2>Scores</h2><p>{how}</p>{tables.to_html(found, answers.main_features(found))}"


def _use(run: Run, folder: Path) -> str:
    """What can be done with the run, as commands."""
    name = "FOLDER" if run.shared else shlex.quote(folder.as_posix())
    lines = {f"neurosql sample {name} -n 64": "draw 64 new samples"}
    words = ""
    if run.method.classes:
        classes = [run.like.classes[i] for i in pictures.shown_classes(run)]
        lines[f"neurosql sample {name} --label {shlex.quote(classes[0])}"] = "draw samples of one class"
        some = ", ".join(classes[:SOME_CLASSES]) + (", ..." if run.method.classes > SOME_CLASSES else "")
        words = f"<p>Its classes are {escape(some)}.</p>"
    if run.has_codes:
        lines[f"neurosql encode {name} DATA"] = "find the places of other images on the map"
    if not run.shared:
        lines[f"neurosql evaluate {name}"] = "measure the scores"
    width = max(map(len, lines)) if max(map(len, lines)) < 60 else 0
    text = "\n".join(f"{command.ljust(width)}  # {what}" for command, what in lines.items())
    return f"<h2>Use this run</h2><pre>{escape(text)}</pre>{words}"


def _details(run: Run, folder: Path) -> str:
    """Everything else, folded."""
    settings = json.dumps(run.config()["settings"], indent=2)
    parts = {
        "How copies were looked for": _pictures(run, folder, COPIES),
        "More pictures: reconstructions, codes, the course of training": _pictures(run, folder, MORE),
        "Facts about the model and its training": document.definitions(facts(run)),
        "All settings": f"<pre>{escape(settings)}</pre>",
        "How to train the same model again": "" if run.shared else _again(run, folder),
    }
    return "<h2>Details</h2>" + "".join(document.fold(name, content) for name, content in parts.items() if content)


def _pictures(run: Run, folder: Path, names: Iterable[str]) -> str:
    figures = _figures(run, folder, names)
    return f'<div class="pictures">{figures}</div>' if figures else ""


def _figures(run: Run, folder: Path, names: Iterable[str]) -> str:
    """The pictures of these names that are in the folder, with their captions."""
    captions = pictures.captions(run)
    here = RunFolder(folder)
    there = [name for name in names if name in captions and here.has(name)]
    return "".join(document.figure(here.read(name, LARGE), captions[name], name in WIDE) for name in there)


def facts(run: Run) -> dict[str, str]:
    """Facts about the model and its training, by name; empty where nothing is known."""
    last = run.history[-1] if run.history else {}
    seconds = sum(sum(record["seconds"].values()) for record in run.history)
    took = "" if run.shared else f", {seconds:.0f} s of training"
    heldout = next((r["heldout_loss"] for r in reversed(run.history) if "heldout_loss" in r), None)
    return {
        "data": run.data.description,
        "trained on": f"{run.data.trained} samples, {run.data.heldout} held out",
        "method": f"{run.settings.method}, {run.method.title}",
        **run.method.facts(),
        "epochs": f"{len(run.history)}{took}",
        "training loss": number(last.get("loss")),
        "held-out loss": number(heldout),
        "variance of codes / of lattice": number(last.get("drift")),
    }


def _again(run: Run, folder: Path) -> str:
    config = RunFolder.existing(folder).config()
    versions = config.get("versions")
    made = ", ".join(f"{name} {version}" for name, version in versions.items()) if isinstance(versions, dict) else ""
    own, threads = config.get("version"), config.get("threads")
    words = f"Made with neurosql {own}, {made}, {threads} thread(s). With the same versions and "
    words += "threads, on the same kind of processor, the command gives the same model, bit for bit."
    return f"<pre>{escape(again.how(run, folder))}</pre><p>{escape(words)}</p>"


def _lead(run: Run) -> str:
    how = "" if run.settings.method == "neurosql" else f" Its method is {run.method.title}."
    return f"What a generative model has learned from {run.data.trained:,} {run.data.modality.plural}.{how}"
