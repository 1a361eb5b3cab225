"""What a run will need in memory, estimated before it starts: data, networks, assignment, evaluation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from neurosql import engine, memory
from neurosql.methods.base import PROBED, Method
from neurosql.settings import QuantileSettings, Settings, TrainingSettings

FLOAT = 4
KEPT = 3.5
"""Bytes that a step holds per byte of the networks' outputs: outputs, their gradients, temporaries."""
PER_PAIR = 100
"""Bytes per pair of a graph of candidates: its costs, its indices and the copies that are sorted."""
SAVED = 8
"""Copies of the weights while a checkpoint is written: weights and two moments, in tensors, in bytes and in a file."""
SHARE = 0.8
"""Share of what is free that a cost matrix may take before candidates are used in its place."""


def fitting(settings: Settings, sizes: Sequence[int], pixels: int) -> tuple[Settings, list[str]]:
    """The settings with candidates in place of a cost matrix that does not fit, and a note if that was changed.

    `sizes` are the numbers of images that are assigned together: of all images, or of each class.
    """
    own = settings.own
    if not isinstance(own, QuantileSettings) or own.strategy != "auto" or own.assignment != "exact":
        return settings, []
    needed = _dense(own, sizes) + _compared(sum(sizes), pixels)
    free = memory.available()
    if own.algorithm != "full" or not own.every or needed <= SHARE * free:
        return settings, []
    if not any(own.strategy_for(size) == "dense" for size in sizes):
        return settings, []
    note = (
        f"the cost matrix would take about {memory.figure(needed)} of memory, and {memory.figure(free)} are free: "
        "strategy candidates is used"
    )
    return dataclasses.replace(settings, own=dataclasses.replace(own, strategy="candidates")), [note]


def training(method: Method, settings: Settings, sizes: Sequence[int], heldout: int, copied: bool) -> int:
    """Bytes that training will take besides what the process holds now.

    `copied` is whether the training images are copied once more, as they are if some images are held out.
    """
    n, pixels = len(method.x), math.prod(method.x.shape[1:])
    training = settings.training
    data = FLOAT * pixels * ((n if copied else 0) + min(heldout, training.validate_on))
    # What has codes is compared with its reconstructions at the end.
    later = [_step(method, training), _compared(n, pixels) if method.has_codes else 0]
    own = settings.own
    if isinstance(own, QuantileSettings):
        if own.algorithm == "full" and own.every:
            dense, sparse = _dense(own, sizes), _sparse(own, sizes)
            later.append(_compared(n, pixels) + dense + sparse + _temporaries(own, dense + sparse))
        later.append(_compared(n, pixels) + _temporaries(own, FLOAT * n * min(heldout, training.validate_on)))
    return data + _networks(method, training, heldout > 0) + max(later)


def check(size: int) -> None:
    """Refuse a run that would take more memory than there is."""
    memory.require(
        size,
        "training",
        "use fewer or smaller images, a smaller batch_size or width, or strategy candidates if it is dense; "
        f"{memory.VARIABLE} sets the limit",
    )


def _networks(method: Method, training: TrainingSettings, validated: bool) -> int:
    """Gradients, moments, the state before a step, averages, the best model, and what a checkpoint copies."""
    weights = FLOAT * sum(p.numel() for network in method.networks.values() for p in network.parameters())
    copies = 4 + SAVED + bool(training.ema) + (validated and training.patience > 0)
    return weights * copies


def _step(method: Method, training: TrainingSettings) -> int:
    """What one step holds: the outputs of all layers for one batch."""
    total = 0

    def count(module: torch.nn.Module, given: object, output: object) -> None:
        nonlocal total
        total += output.numel() if isinstance(output, Tensor) else 0

    leaves = [m for network in method.networks.values() for m in network.modules() if not list(m.children())]
    hooks = [module.register_forward_hook(count) for module in leaves]
    try:
        method.probe()
    finally:
        for hook in hooks:
            hook.remove()
    each = FLOAT * total / min(PROBED, max(1, len(method.x)))
    return int(KEPT * each * min(training.batch_size, len(method.x)))


def _compared(n: int, pixels: int) -> int:
    """Images that are compared with as many generated ones: both, and a copy of the generated ones in parts."""
    return 3 * FLOAT * n * pixels


def _temporaries(own: QuantileSettings, result: int) -> int:
    """What costs of `result` bytes take while they are computed: a few times as much, but for the limit in `memory`."""
    return min(4 * result, 3 * own.memory * 2**19)


def _dense(own: QuantileSettings, sizes: Sequence[int]) -> int:
    """The cost matrices of all blocks that are compared pair by pair; scipy copies each in float64."""
    dense = [size for size in sizes if own.strategy_for(size) == "dense"]
    extra = 0 if engine.native() is not None else 2 * FLOAT * max(dense, default=0) ** 2
    return FLOAT * sum(size**2 for size in dense) + extra


def _sparse(own: QuantileSettings, sizes: Sequence[int]) -> int:
    """The graph of the largest block that is assigned along candidates: two searches, from both sides."""
    largest = max((size for size in sizes if own.strategy_for(size) == "candidates"), default=0)
    return PER_PAIR * 4 * own.candidates * largest
