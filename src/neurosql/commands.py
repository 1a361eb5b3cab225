"""What each command prints; `app` does the work. It is separate from `cli` because it imports torch."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import numpy as np
import torch

import neurosql
from neurosql import app, data, engine
from neurosql import run as runs
from neurosql.app import Terminal
from neurosql.app.training import Trained, stem_of
from neurosql.checkpoint import SCORES, USED, RunFolder
from neurosql.data import check, fetch
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


def _say(done: Trained) -> None:
    path = done.folder.path
    for score in done.scores:
        print(f"{score.name}  {score.value:.4f} ({score.mode}, n = {score.n})")
    print(f"wrote {path}: {', '.join(done.written)}")
    print(f"look at    {path / page.NAME}")
    print(f"next       neurosql sample {path} -n 64, or neurosql evaluate {path}")


def _stopped(stop: Stopped) -> str:
    return f"stopped; the run is saved. Continue with: neurosql resume {stop.path}"


def sample(path: str, n: int, label: str | None, seed: int, how: Sampling, out: str | None) -> None:
    """Draw samples and say where they are."""
    print(f"wrote {n} samples to {app.sample(path, n, label, seed, how, out)}")


def encode(path: str, source: str, limit: int | None, skip_bad: bool, part: str, out: str | None) -> None:
    """Encode images and say where their codes are."""
    found = app.encode(path, source, limit, skip_bad, part, out, TERMINAL)
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
    """Describe data and draw a contact sheet."""
    images = data.load(source, seed=seed, settings=dataclasses.replace(how, skip_bad=True))
    print(check.report(images))
    target = Path(sheet) if sheet else Path(f"{stem_of(source)}-check.png")
    target.parent.mkdir(parents=True, exist_ok=True)
    if check.contact_sheet(images, target):
        print(f"wrote {target}")


def data_fetch(name: str, out: str | None) -> None:
    """Download a public data set and say how to train on it."""
    folder = fetch.fetch(name, Path(out) if out else Path("data"), say=print)
    print(f"next       neurosql train {folder}")
