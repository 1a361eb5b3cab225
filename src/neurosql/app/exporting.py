"""A run for others: a folder that samples and encodes like the run, without what is about single training images.

What may stay is listed, and everything else is left out, so that what a later version adds to a run is left out too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurosql import files, methods
from neurosql import run as runs
from neurosql.app import card
from neurosql.checkpoint import CODES, MODEL, SCORES, RunFolder
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.methods.base import Method, Task
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.score import Score
from neurosql.report import page, pictures
from neurosql.settings.samplers import APART

NAME = "MODEL-CARD.md"
SHARED = "shared"
"""The entry of `config.json` that says how an exported run differs from its original."""
OF_THE_DATA = ("kind", "shape", "layout", "trained", "heldout", "test", "columns", "column_types")
OF_READING = ("image_size", "channels")
WORDS = ("channels", "decoder", "crop", "resize", "audio")
"""Entries on how files were prepared that may be words; all others may be numbers only, never names."""
SOURCE = "data that were not shared"


@dataclass(frozen=True)
class Exported:
    """A folder to share."""

    path: Path
    left_out: list[str]
    """What of the run is not in it: one phrase each."""
    gives_away: list[str]
    """What can still be learned from it about the training images: one sentence each."""
    written: list[str]
    """Names of its files."""


def for_sharing(path: str | Path, out: str | Path) -> Exported:
    """Write a run to a new folder, without codes, names, paths, labels, splits and pictures of training images."""
    folder = RunFolder.existing(path)
    if not runs.is_finished(folder):
        raise InputError(f"{path} is not finished: continue it with `neurosql resume {path}`, then export it")
    run = runs.open_run(path)
    if run.shared:
        raise InputError(f"{path} was exported for sharing already: copy the folder")
    config = folder.config()
    records = folder.read_json(SCORES) if folder.has(SCORES) else {}
    target = RunFolder.create(out)
    target.write_config(_config(config, run))
    target.write_tensors(MODEL, _weights(run, folder.read_tensors(MODEL)[0]))
    target.write_tensors(CODES, _without_rows(run.method, folder.read_tensors(CODES)[0]))
    for figures in run.history:
        # How long each part took says what machine it was; nothing but numbers stays.
        target.append_history({name: v for name, v in figures.items() if isinstance(v, int | float)} | {"seconds": {}})
    target.write_json(SCORES, records)
    opened = runs.open_run(target.path)
    scores = [as_judged_today(Score.from_record(record)) for record in records.values()]
    left_out, gives_away = card.left_out(run), card.gives_away(run, scores)
    files.replace(target.path / NAME, card.written(opened, left_out, gives_away, note(target.path)).encode())
    pictures.draw_samples(opened, target.path)
    page.write(opened, target.path, records)
    return Exported(target.path, left_out, gives_away, sorted(file.name for file in target.path.iterdir()))


def note(path: str | Path) -> str | None:
    """How an exported run samples by default, if its original did otherwise; None for all other runs."""
    changed = RunFolder.existing(path).config().get(SHARED)
    if not isinstance(changed, dict) or not changed.get("was_apart"):
        return None
    return (
        f"the original left out draws that are near copies of training images (the sampler {APART.name}): that needs "
        "their codes, which were not shared, so samples are drawn from the prior"
    )


def _config(config: dict[str, Any], run: Run) -> dict[str, Any]:
    """`config.json` with what others need to know about the model, its settings and the layout of its data."""
    settings: dict[str, dict[str, Any]] = {name: dict(section) for name, section in config["settings"].items()}
    settings["training"]["device"] = "cpu"
    was_apart = settings["own"].get("apart", 1) != 1
    if was_apart:
        settings["own"]["apart"] = 1.0
    data, classes = config["data"], config["data"]["classes"]
    known = {name: data[name] for name in OF_THE_DATA if name in data}
    described = str(data["description"])
    if not run.method.classes:
        described, classes = described.removesuffix(f", {len(classes)} classes"), []
    reading, done = data.get("settings", {}), data.get("preparation", {})
    kept = {name: value for name, value in reading.items() if name in OF_READING or _is_number(value)}
    # Which samples were drawn, and how they were divided, is left to whoever reads data of their own.
    usual = ("limit", "skip_bad", "split", "test_share", "group", "cache")
    known |= {
        "settings": {name: v for name, v in kept.items() if name not in usual and (_is_number(v) or name in WORDS)},
        "preparation": {name: v for name, v in done.items() if _is_number(v) or name in WORDS},
    }
    absent = {"source": SOURCE, "path": SOURCE, "fingerprint": "", "description": described, "classes": classes}
    return {
        **{name: config[name] for name in ("method", "version", "versions", "networks")},
        "created": datetime.now(UTC).date().isoformat(),
        "settings": settings,
        "data": known | absent,
        SHARED: {"was_apart": was_apart},
    }


def _is_number(value: Any) -> bool:
    """Whether a value of JSON is a number, nothing, or a list of numbers."""
    if isinstance(value, list | tuple):
        return all(isinstance(part, int | float) for part in value)
    return value is None or isinstance(value, int | float)


def _weights(run: Run, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights; a network that neither sampling nor encoding needs gets those that it had before training.

    Such a network is the discriminator of a GAN, which has learned to recognise the training images.
    """
    if run.has_codes:
        return weights
    fresh = methods.make(Task(run.settings, run.data.shape, run.method.classes))
    for name, network in fresh.networks.items():
        if name not in run.method.sampling:
            weights |= {f"{name}.{key}": value for key, value in network.state_dict().items()}
    return weights


def _without_rows(method: Method, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a fitted model needs besides the weights; what has a row per training image has no rows."""
    needed = {name: tensors[name] for name in (*method.kept(), "index") if name in tensors}
    return {
        name: tensor if not tensor.ndim or name.startswith(method.together) else torch.empty_like(tensor[:0])
        for name, tensor in needed.items()
    }
