"""What each command prints; `app` does the work. It is separate from `cli` because it imports torch."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import neurosql
from neurosql import app, engine, ranks
from neurosql.app import Terminal, exporting
from neurosql.app.observer import tell
from neurosql.app.training import Trained
from neurosql.data import fetch
from neurosql.evaluate import Options
from neurosql.metrics import membership, weights
from neurosql.metrics.score import table
from neurosql.report import page
from neurosql.settings import DataSettings, Sampling, Settings
from neurosql.training import Stopped

TERMINAL = Terminal()


def train(source: str, settings: Settings, out: str | None, how: DataSettings, threads: int | None) -> None:
    """Train a model and say what was written; under torchrun, as one of several ranks."""
    with _as_rank() as first:
        if first:
            _say(app.train(source, settings, out, how, TERMINAL, threads))
        else:
            app.help_to_train(source, settings, out, how)


@contextmanager
def _as_rank() -> Iterator[bool]:
    """Within the context, be one of the ranks that torchrun has started, if it has; whether this is the first."""
    group = ranks.SINGLE
    try:
        with ranks.joined() as group:
            yield group.first
    except ranks.Spare:
        # There are more ranks than images in a step, as rank 0 says.
        return
    except Stopped as stop:
        raise KeyboardInterrupt(_stopped(stop) if group.first else f"rank {group.rank} stopped") from None


def resume(path: str, source: str | None) -> None:
    """Continue a run, or say that it is finished."""
    with _as_rank() as first:
        if not first:
            app.help_to_resume(path, source)
            return
        done = app.resume(path, source, TERMINAL)
        if done.written:
            _say(done)
            return
        tell(f"finished   {path} is complete: nothing was changed")
        print(f"next       neurosql sample {path} -n 64, or neurosql evaluate {path}")


def tune(
    source: str, settings: Settings, words: Sequence[str], out: str | None, how: DataSettings, **search: Any
) -> None:
    """Search for settings and say which were best."""
    try:
        done = app.tune(source, settings, words, out, how, observer=TERMINAL, **search)
    except (Stopped, KeyboardInterrupt):
        raise KeyboardInterrupt("stopped; run the same command again to continue") from None
    states = [trial.state for trial in done.trials]
    tell(f"trials     {', '.join(f'{states.count(state)} {state}' for state in dict.fromkeys(states))}")
    told = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in done.best.settings.items())
    tell(f"best       {search['metric']} {done.best.value:.6g} with {told}")
    tell(f"wrote      {', '.join(map(str, done.written))}")
    print(f"next       {done.command}")


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
        tell(f"{score.name}  {score.value:.4f} ({score.mode}, n = {score.n})")
    tell(f"wrote      {path}: {', '.join(done.written)}")
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
    if how.sampler is None and (told := exporting.note(path)):
        tell(f"note       {told}")
    tell(f"wrote      {n} samples to {done.path}{by_class}")
    if done.others:
        tell(f"note       {done.path} also holds {done.others:,} files that were there before")


def codes(path: str, out: str | None) -> None:
    """Write the codes of the training images and say where they are."""
    done = app.codes(path, out)
    for note in done.notes:
        tell(f"note       {note}")
    tell(f"wrote      codes of {len(done.columns['codes'])} training samples to {done.path}")


def encode(
    path: str, source: str, limit: int | None, skip_bad: bool, part: str, out: str | None, convert: bool = False
) -> None:
    """Encode images and say where their codes are."""
    found = app.encode(path, source, limit, skip_bad, part, out, TERMINAL, convert)
    for note in found.notes:
        tell(f"note       {note}")
    if found.known is not None:
        count = f"{found.known.sum()} of {len(found.codes)}"
        tell(f"known      {count} samples were trained on: their codes were looked up")
    tell(f"mean loss  {found.losses.mean():.4f} over {len(found.losses)} samples")
    tell(f"wrote      codes of {len(found.codes)} samples to {found.path}")


def evaluate(path: str, against: str | None, options: Options) -> None:
    """Score a run and print its scores."""
    done = app.evaluate(path, against, options, TERMINAL)
    print(table(done.found.scores))
    if done.found.memorisation is not None:
        tell(done.found.memorisation.sentence())
        tell(f"what follows: {done.found.memorisation.follows}")
        tell(f"wrote      {', '.join(done.pictures)} to {path}")
    if told := membership.in_words(done.found.scores):
        tell(f"membership: {told}")
    for sentence in done.found.left_out:
        tell(f"left out: {sentence}")
    tell(f"wrote      {', '.join(map(str, done.written))}")


def export(path: str, out: str) -> None:
    """Write a run for others, and say what it lacks and what it still gives away."""
    done = app.for_sharing(path, out)
    tell("left out:")
    for phrase in done.left_out:
        tell(f"  {phrase}")
    tell("the model still gives away:")
    for sentence in done.gives_away:
        tell(f"  {sentence}")
    if told := exporting.note(out):
        tell(f"note       {told}")
    tell(f"wrote      {done.path}: {', '.join(done.written)}")
    tell(f"read       {done.path / exporting.NAME} before you share it")


def export_onnx(path: str, out: str | None) -> None:
    """Write the generator of a run as an ONNX file, and say how to use it."""
    done = app.to_onnx(path, out)
    for phrase in done.inputs:
        tell(f"input      {phrase}")
    tell(f"output     {done.output}")
    if done.note:
        tell(f"note       {done.note}")
    tell(f"wrote      {done.path}, {done.size / 1e6:.2f} MB")


def export_html(path: str, out: str | None, with_images: bool, source: str | None) -> None:
    """Write a run as one page, and say what whoever gets it can see."""
    done = app.to_html(path, out, with_images=with_images, source=source)
    private = "no training samples are in the page; the model still gives away:"
    tell("whoever gets the page can see:" if done.shows else private)
    for phrase in done.holds:
        tell(f"  {phrase}")
    for note in done.notes:
        tell(f"note       {note}")
    tell(f"wrote      {done.path}, {done.size / 1e6:.2f} MB")


def report(path: str) -> None:
    """Write a page and say which files it has."""
    for file in app.report(path):
        tell(f"wrote      {file}")


def fetch_weights(name: str, file: str | None) -> None:
    """Get published weights and say where they are."""
    tell(f"wrote      {weights.fetch(name, file, say=print)}")


def list_weights() -> None:
    """List the weights, and where they are."""
    for name in weights.KNOWN:
        path = weights.path_of(name)
        print(f"{name:<11} {path if path.is_file() else f'missing, get it with: neurosql weights fetch {name}'}")


def installation() -> None:
    """Describe this installation."""
    print(f"neurosql   {neurosql.__version__}")
    print(f"python     {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}")
    print(f"devices    cpu ({torch.get_num_threads()} threads)" + (", cuda" if torch.cuda.is_available() else ""))
    for part, how in engine.describe().items():
        print(f"{part:<10} {how}")


def data_check(source: str, how: DataSettings, seed: int, sheet: str | None) -> None:
    """Describe data, with all that is odd about them, and say how to train on them."""
    found = app.check_data(source, how, seed, sheet)
    tell(found.report)
    for number, finding in enumerate(found.findings, 1):
        tell(f"finding {number:<2} {finding}")
    if not found.findings:
        print("findings   none")
    if found.sheet is not None:
        tell(f"wrote      {found.sheet}")
    if found.hint:
        tell(f"note       {found.hint}")
    print(f"next       {found.command or 'nothing can be trained on yet: settle the findings, then check again'}")


def data_fetch(name: str, out: str | None) -> None:
    """Download a public data set and say how to train on it."""
    folder = fetch.fetch(name, Path(out) if out else Path("data"), say=print)
    print(f"next       neurosql train {folder}")
