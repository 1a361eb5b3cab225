"""From a run folder back to its model.

The folder may come from a stranger: what does not belong together is refused in one sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurosql import methods, networks, prior, ranks
from neurosql.checkpoint import CHECKPOINT, CODES, MODEL, SPLIT, USED, RunFolder
from neurosql.data import ImageSet
from neurosql.data.columns import Columns
from neurosql.errors import InputError
from neurosql.fitted import RANGES, STATISTICS, STEP, Run
from neurosql.methods.base import Task
from neurosql.origin import Origin
from neurosql.recorded import damage_of, origin_of, settings_of
from neurosql.settings import Sampling, former
from neurosql.settings.checks import check_types
from neurosql.settings.sections import AUTO
from neurosql.trained_on import TrainedOn
from neurosql.training import Trainer, Used


def open_run(path: str | Path, device: str = "cpu", law: prior.Prior | None = None) -> Run:
    """The model of a run folder, ready to sample, encode and decode; `law` is its prior, if it was given in Python.

    `device` is a torch device, or auto: the first of cuda, mps and cpu that this machine has.
    """
    folder = RunFolder.existing(path)
    config = folder.config()
    settings = settings_of(config)
    weights, known = folder.read_tensors(MODEL)
    codes, plain = folder.read_tensors(CODES)
    if known.get(STEP) != plain.get(STEP):
        raise InputError(f"{path} was interrupted while its model was saved: continue it with `neurosql resume {path}`")
    with damage_of(path):
        data = origin_of(config)
        mean, std = (weights.pop(name).numpy() if name in weights else None for name in STATISTICS)
        classes = len(data.classes) if settings.generator.conditional else None
        with networks.at_most(sum(map(Tensor.numel, weights.values()))):
            method = methods.make(Task(settings, data.shape, classes, law, trained=True))
        for name, network in method.networks.items():
            own = {k.removeprefix(f"{name}."): v for k, v in weights.items() if k.startswith(f"{name}.")}
            network.load_state_dict(own)
            network.eval()
        method.to(device_of(device)).restore(codes)
        like = ImageSet(
            np.empty((0, *data.shape), np.float32),
            classes=data.classes,
            layout=data.layout,
            mean=mean,
            std=std,
            source=data.source,
            columns=_columns(weights, data),
        )
        labels = codes["labels"].numpy() if "labels" in codes else None
        used = used_by(folder) if folder.has(USED) else None
        split = folder.read_object(SPLIT) or None
        usual = Sampling(**former.sampling(config["settings"]))
        kept = TrainedOn.restored(codes, plain)
        index = codes["index"].numpy()
        names = None if kept is None else kept.names
        history = folder.history()
        run = Run(settings, data, method, like, index, labels, history, used, split, usual, [], names, kept)
        run.check()
        return run


def open_checkpoint(path: str | Path) -> Run:
    """The model of a run that is still being trained, as its last checkpoint has it: to look at, on the CPU.

    Its codes are those of the training images, but nothing else is known of these. An InputError if there is no
    checkpoint yet, or if the method has no codes before it has finished.
    """
    folder = RunFolder.existing(path)
    config = folder.config()
    settings = settings_of(config)
    data = origin_of(config)
    if not data.modality.bounded:
        raise InputError(f"{path} is still being trained: its samples can be looked at when it has finished")
    tensors, _ = folder.read_tensors(CHECKPOINT)
    with damage_of(path):
        classes = len(data.classes) if settings.generator.conditional else None
        with networks.at_most(sum(map(Tensor.numel, tensors.values()))):
            method = methods.make(Task(settings, data.shape, classes, None, trained=True))
        own = _of("method.own", tensors)
        if not method.has_codes or "codes" not in own:
            raise InputError(f"{path} is still being trained: {settings.method} has codes when it has finished")
        for name, network in method.networks.items():
            # Samples come from the average of the weights, if there is one.
            network.load_state_dict(_of(f"average.{name}", tensors) or _of(f"method.{name}", tensors))
            network.eval()
        if classes and "lattice_labels" in own:
            own["class_counts"] = torch.bincount(own["lattice_labels"], minlength=classes)
        method.restore(own)
        like = ImageSet(np.empty((0, *data.shape), np.float32), classes=data.classes, layout=data.layout)
        run = Run(settings, data, method, like, np.arange(data.trained), None, folder.history())
        run.check()
        return run


def _of(group: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a group, by the rest of their names."""
    return {name.removeprefix(f"{group}."): t for name, t in tensors.items() if name.startswith(f"{group}.")}


def used_by(folder: RunFolder) -> Used:
    """What the training of a run used."""
    with damage_of(folder.path / USED):
        used = Used(**folder.read_object(USED))
        check_types(used)
        return used


def _columns(weights: dict[str, Tensor], data: Origin) -> Columns | None:
    """What is known about the columns of a table; early runs do not know it."""
    if not weights.keys() >= set(RANGES):
        return None
    low, high, whole = (weights[name].numpy() for name in RANGES)
    return Columns(low, high, whole, data.columns, data.column_types)


def check_progress(tensors: dict[str, Tensor], plain: dict[str, Any], n: int) -> None:
    """Refuse a checkpoint that says what no training of n samples says."""
    for name in ("epoch", "closing_epochs", "step", "batch", "images", "best_epoch"):
        if not isinstance(plain[name], int) or not 0 <= plain[name] < 2**53:
            raise InputError(f"{name} must be a whole number, got {plain[name]!r}")
    losses, best = plain["losses"], plain["best_loss"]
    figures = [*losses.values(), plain["seconds"], *([] if best is None else [best])]
    if not all(isinstance(figure, (int, float)) for figure in figures) or not plain["seconds"] >= 0:
        raise InputError("losses and seconds must be numbers")
    if plain["phase"] not in ("main", "closing"):
        raise InputError(f"phase must be main or closing, got {plain['phase']!r}")
    order = tensors["order"]
    whole = torch.equal(order.sort().values, torch.arange(n)) if order.dtype == torch.int64 else False
    if not whole and (len(order) or plain["batch"]):
        raise InputError(f"the order of the samples must hold each of {n} once")


def check_moments(trainer: Trainer) -> None:
    """Refuse moments of an optimiser that do not belong to its parameters: torch itself finds out too late."""
    for optimizer in trainer.optimizers.values():
        for parameter, moments in optimizer.state.items():
            for name, value in moments.items():
                if value.shape not in (torch.Size([]), parameter.shape) or (name == "step") != (value.ndim == 0):
                    raise InputError(f"{name} has shape {tuple(value.shape)}")


def device_of(name: str) -> torch.device:
    """The torch device of that name; auto is the best that there is. Each rank of a machine has a GPU of its own."""
    if name == AUTO:
        # Ranks can't talk to each other from an mps device.
        mps = torch.backends.mps.is_available() and not ranks.here().several
        name = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    if name == "cuda" and ranks.here().several:
        name = f"cuda:{ranks.local_rank()}"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} can't be used: {str(error).splitlines()[0]}") from None
    if device.type == "meta":
        raise InputError("device 'meta' can't be used: its tensors have no numbers")
    return device
