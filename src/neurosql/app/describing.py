"""A run in a few lines: what it was trained on, how far it is, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neurosql import run as runs
from neurosql.checkpoint import CONFIG, SCORES, USED, RunFolder
from neurosql.errors import InputError
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.score import Score, table
from neurosql.visible import in_one_line


def describe(path: str | Path) -> list[str]:
    """The lines of `neurosql info`; names from the run's files are made visible, the last but one may be a table."""
    folder = RunFolder.existing(path)
    config = folder.config()
    records, state, holder = folder.history(), runs.state_of(folder), folder.holder()
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
        lines.append(table(as_judged_today(Score.from_record(record)) for record in scores.values()))
    next_step = f"neurosql sample {path} -n 64" if state == runs.FINISHED else f"neurosql resume {path}"
    return [*lines, in_one_line(f"next       {next_step}")]


def _model(config: dict[str, Any]) -> Iterator[str]:
    settings, origin = runs.settings_of(config), runs.origin_of(config)
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
    used = runs.used_by(folder)
    yield (
        f"used       {used.steps:,} steps, {used.images:,} images, {used.seconds:.0f} s, "
        f"{used.peak_memory / 2**30:.2f} GiB"
    )
