"""A run in a few lines: what it was trained on, how far it is, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neurosql import recorded
from neurosql.checkpoint import CONFIG, SCORES, USED, RunFolder
from neurosql.errors import InputError
from neurosql.metrics.records import CLOSE
from neurosql.metrics.score import Score, table
from neurosql.visible import in_one_line


def describe(path: str | Path) -> list[str]:
    """The lines of `neurosql info`; names from the run's files are made visible, the last but one may be a table."""
    folder = RunFolder.existing(path)
    config = folder.config()
    records, state, holder = folder.history(), recorded.state_of(folder), folder.holder()
    lines = [f"run        {path} (neurosql {config.get('version')}, {config.get('created')})", *_model(config)]
    lines += _used(folder)
    lines.append(f"state      {state if holder is None else 'in use'} after {len(records)} epochs")
    if holder is not None:
        lines.append(f"in use by  {holder}")
    if records:
        figures = {k: v for k, v in records[-1].items() if isinstance(v, float) and k != "learning_rate"}
        lines.append("last epoch " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    lines = [in_one_line(line) for line in lines]
    if scores := folder.read_object(SCORES):
        lines.append(table(map(_judged, scores.values())))
    next_step = f"neurosql sample {path} -n 64" if state == recorded.FINISHED else f"neurosql resume {path}"
    return [*lines, in_one_line(f"next       {next_step}")]


def _model(config: dict[str, Any]) -> Iterator[str]:
    settings, origin = recorded.settings_of(config), recorded.origin_of(config)
    yield f"data       {origin.description}, from {origin.source}"
    yield f"method     {settings.method}{', class-conditional' if settings.generator.conditional else ''}"
    found = config.get("networks", {})
    networks = found.items() if isinstance(found, dict) else ()
    for name, network in networks:
        if not isinstance(network, dict) or not isinstance(network.get("parameters"), int):
            raise InputError(f"{CONFIG} does not say how large its networks are")
        kind = f"{network['name']}, latent dimension {network.get('latent_dim')}, " if "name" in network else ""
        yield f"{name:<10} {kind}{network['parameters']:,} parameters"


def _used(folder: RunFolder) -> Iterator[str]:
    if not folder.has(USED):
        return
    found = folder.read_object(USED)
    named = {name: found.get(name) for name in ("steps", "images", "seconds", "peak_memory")}
    numbers = [value for value in named.values() if isinstance(value, (int, float))]
    if len(numbers) < len(named):
        raise InputError(f"{folder.path / USED} does not say what the training used")
    steps, images, seconds, memory = numbers
    yield f"used       {steps:,} steps, {images:,} images, {seconds:.0f} s, {memory / 2**30:.2f} GiB"


def _judged(record: dict[str, Any]) -> Score:
    """A score; that of copies, if an evaluation has found one, with the verdict that its figures stand for."""
    score = Score.from_record(record)
    if score.name != CLOSE.name:
        return score
    # Only here is torch imported: most runs can be described without it.
    from neurosql.metrics.copies import as_judged_today

    return as_judged_today(score)
