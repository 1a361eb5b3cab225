"""What each command prints; `app` does the work. It is separate from `cli` because it imports torch."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import torch

import neurosql
from neurosql import app, engine
from neurosql import run as runs
from neurosql.app import Terminal
from neurosql.app.training import Trained
from neurosql.checkpoint import SCORES, USED, RunFolder
from neurosql.data import fetch
from neurosql.evaluate import Options
from neurosql.metrics import weights
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.score import Score, table
from neurosql.report import page
from neurosql.settings import DataSettings, Sampling, Settings
from neurosql.training import Stopped

TERMINAL = Terminal()


def train(source: str, settings: Settings, out: str | None, how: DataSettings) -> None:
    """Train a model and say what was written."""
    try:
        _say(app.train(source, settings, out, how, TERMINAL))
    except Stopped as stop:
        raise KeyboardInterrupt(_stopped(stop)) from None


def resume(path: str, source: str | None) -> None:
    """Continue a run, or say that it is finished."""
    try:
        done = app.resume(path, source, TERMINAL)
    except Stopped as stop:
        raise KeyboardInterrupt(_stopped(stop)) from None
    if done.written:
        _say(done)
        return
    print(f"finished   {path} is complete: nothing was changed")
    print(f"next       neurosql sample {path} -n 64, or neurosql evaluate {path}")


def reproduce(path: str, out: str | None, source: str | None) -> bool:
    """Train a run again, print what differs, and return whether that is what the documentation promises."""
    try:
        done = app.reproduce(path, out, source, TERMINAL)
    except Stopped:
        raise KeyboardInterrupt("stopped; nothing can be compared") from None
    for part in done.parts:
        print(f"{part.name:<10} {part.words}")
    for reason in done.reasons:
        print(f"{'note' if done.equal else 'because':<10} {reason}")
    if done.path is not None:
        print(f"wrote {done.path}")
    if done.equal:
        print("result     reproduced, bit for bit")
    elif done.as_promised:
        print(f"result     not the same bits, as expected here; the last loss differs by {100 * done.loss:.2g} %")
    else:
        expected = "other circumstances don't explain that much" if done.reasons else "nothing here explains it"
        print(f"result     NOT reproduced: the last loss differs by {100 * done.loss:.2g} %, and {expected}")
    return done.as_promised


def _say(done: Trained) -> None:
    path = done.folder.path
    for score in done.scores:
        print(f"{score.name}  {score.value:.4f} ({score.mode}, n = {score.n})")
    print(f"wrote {path}: {', '.join(done.written)}")
    print(f"look at    {path / page.NAME}")
    print(f"next       neurosql sample {path} -n 64, or neurosql evaluate {path}")


def _stopped(stop: Stopped) -> str:
    return f"stopped; the run is saved. Continue with: neurosql resume {stop.path}"


def sample(
    path: str, n: int, label: str | None, seed: int, how: Sampling, out: str | None, overwrite: bool = False
) -> None:
    """Draw samples and say where they are."""
    done = app.sample(path, n, label, seed, how, out, overwrite)
    by_class = f", one folder per class: {', '.join(done.folders)}" if done.folders else ""
    print(f"wrote {n} samples to {done.path}{by_class}")
    if done.others:
        print(f"note       {done.path} also holds {done.others:,} files that were there before")


def codes(path: str, out: str | None) -> None:
    """Write the codes of the training images and say where they are."""
    done = app.codes(path, out)
    for note in done.notes:
        print(f"note       {note}")
    print(f"wrote codes of {len(done.columns['codes'])} training samples to {done.path}")


def encode(
    path: str, source: str, limit: int | None, skip_bad: bool, part: str, out: str | None, convert: bool = False
) -> None:
    """Encode images and say where their codes are."""
    found = app.encode(path, source, limit, skip_bad, part, out, TERMINAL, convert)
    for note in found.notes:
        print(f"note       {note}")
    if found.known is not None:
        count = f"{found.known.sum()} of {len(found.codes)}"
        print(f"known      {count} samples were trained on: their codes were looked up")
    print(f"mean loss  {found.losses.mean():.4f} over {len(found.losses)} samples")
    print(f"wrote codes of {len(found.codes)} samples to {found.path}")


def evaluate(path: str, against: str | None, options: Options) -> None:
    """Score a run and print its scores."""
    done = app.evaluate(path, against, options, TERMINAL)
    print(table(done.found.scores))
    if done.found.memorisation is not None:
        print(done.found.memorisation.sentence())
        print(f"wrote {', '.join(done.pictures)} to {path}")
    for sentence in done.found.left_out:
        print(f"left out: {sentence}")
    print(f"wrote {', '.join(map(str, done.written))}")


def report(path: str) -> None:
    """Write a page and say which files it has."""
    for file in app.report(path):
        print(f"wrote {file}")


def fetch_weights(name: str, file: str | None) -> None:
    """Get published weights and say where they are."""
    print(f"wrote {weights.fetch(name, file, say=print)}")


def list_weights() -> None:
    """List the weights, and where they are."""
    for name in weights.KNOWN:
        path = weights.path_of(name)
        print(f"{name:<11} {path if path.is_file() else f'missing, get it with: neurosql weights fetch {name}'}")


def info(path: str | None) -> None:
    """Describe a run, or this installation."""
    if path is None:
        print(f"neurosql   {neurosql.__version__}")
        print(f"python     {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}")
        print(f"devices    cpu ({torch.get_num_threads()} threads)" + (", cuda" if torch.cuda.is_available() else ""))
        for part, how in engine.describe().items():
            print(f"{part:<10} {how}")
        return
    folder = RunFolder.existing(path)
    config = folder.config()
    settings, origin = runs.settings_of(config), runs.origin_of(config)
    records = folder.history()
    print(f"run        {path} (neurosql {config['version']}, {config['created']})")
    print(f"data       {origin.description}, from {origin.source}")
    print(f"method     {settings.method}{', class-conditional' if settings.generator.conditional else ''}")
    for name, network in config["networks"].items():
        kind = f"{network['name']}, latent dimension {network['latent_dim']}, " if "name" in network else ""
        print(f"{name:<10} {kind}{network['parameters']:,} parameters")
    if folder.has(USED):
        used = folder.read_json(USED)
        print(
            f"used       {used['steps']:,} steps, {used['images']:,} images, {used['seconds']:.0f} s, "
            f"{used['peak_memory'] / 2**30:.2f} GiB"
        )
    finished = runs.is_finished(folder)
    print(f"state      {'finished' if finished else 'stopped'} after {len(records)} epochs")
    if records:
        last = records[-1]
        figures = {k: v for k, v in last.items() if isinstance(v, float) and k != "learning_rate"}
        print("last epoch " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    if folder.has(SCORES):
        print(table(as_judged_today(Score.from_record(record)) for record in folder.read_json(SCORES).values()))
    print(f"next       {f'neurosql sample {path} -n 64' if finished else f'neurosql resume {path}'}")


def data_check(source: str, how: DataSettings, seed: int, sheet: str | None) -> None:
    """Describe data, with all that is odd about them, and say how to train on them."""
    found = app.check_data(source, how, seed, sheet)
    print(found.report)
    for number, finding in enumerate(found.findings, 1):
        print(f"finding {number:<2} {finding}")
    if not found.findings:
        print("findings   none")
    if found.sheet is not None:
        print(f"wrote {found.sheet}")
    print(f"next       {found.command or 'nothing can be trained on yet: settle the findings, then check again'}")


def data_fetch(name: str, out: str | None) -> None:
    """Download a public data set and say how to train on it."""
    folder = fetch.fetch(name, Path(out) if out else Path("data"), say=print)
    print(f"next       neurosql train {folder}")
