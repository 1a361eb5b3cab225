"""What a run will need in memory, estimated before it starts: data, networks, assignment, evaluation."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from neurosql import engine, memory
from neurosql.encode import IN_PARTS
from neurosql.generators.base import Generator
from neurosql.methods.base import PROBED, Method
from neurosql.pixels import Pixels
from neurosql.settings import QuantileSettings, Settings, TrainingSettings
from neurosql.settings.methods import IMLESettings

FLOAT = 4
KEPT = 3.5
"""Bytes that a step holds per byte of the networks' outputs: outputs, their gradients, temporaries."""
PER_PAIR = 100
"""Bytes per pair of a graph of candidates: its costs, its indices and the copies that are sorted."""
MOST_IN_BLOCKS = 80
"""Pairs per image that the sweeps of block refinement propose in all: each sweep finds fewer that are not known."""
PER_IMAGE = 200
"""Bytes that are kept of each image besides its code: its place in orders and permutations, its duals, its digest."""
SAVED = 8
"""Copies of the weights while a checkpoint is written: weights and two moments, in tensors, in bytes and in a file."""
HELD = 3
"""Outputs of the largest layer that are held at once while samples are made."""
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
    if isinstance(method.x, Pixels):
        return _streamed(method, settings, heldout)
    data = FLOAT * pixels * ((n if copied else 0) + min(heldout, training.validate_on))
    # What has codes is compared with its reconstructions at the end.
    own = settings.own
    fresh = own.fresh_batch if isinstance(own, QuantileSettings) and own.fresh else 0
    later = [_step(method, training, fresh), _compared(n, pixels) if method.has_codes else 0]
    if isinstance(own, IMLESettings):
        # Codes, drawn in float64, and for each the nearest image.
        later.append(own.pool * max(sizes, default=0) * (12 * settings.generator.dim + 12))
    if isinstance(own, QuantileSettings):
        if own.algorithm == "full" and own.every:
            dense, sparse = _dense(own, sizes), _sparse(own, sizes)
            later.append(_compared(n, pixels) + dense + sparse + _temporaries(own, dense + sparse))
        later.append(_compared(n, pixels) + _temporaries(own, FLOAT * n * min(heldout, training.validate_on)))
    return data + _networks(method, training, heldout > 0) + max(later)


def _streamed(method: Method, settings: Settings, heldout: int) -> int:
    """The same for images that stay where they are: what is kept of each, and of as many as are looked at together."""
    training, each = settings.training, PER_IMAGE + 4 * FLOAT * settings.generator.dim
    pixels = math.prod(method.x.shape[1:])
    compared = FLOAT * IN_PARTS * (2 * pixels + min(heldout, training.validate_on)) if heldout else 0
    return each * len(method.x) + _networks(method, training, heldout > 0) + max(_step(method, training, 0), compared)


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


def _step(method: Method, training: TrainingSettings, fresh: int) -> int:
    """What one step holds: the outputs of all layers for one batch and the fresh samples."""
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
    return int(KEPT * each * (min(training.batch_size, len(method.x)) + fresh))


def most_parameters() -> int:
    """Parameters of the largest networks that can be trained in the memory that there is."""
    return memory.available() // (FLOAT * (4 + SAVED))


def decoding(generator: Generator, at_once: int) -> int:
    """Bytes that a generator holds while it makes that many samples: the largest output of a layer, a few times.

    It is run without memory: the settings of a stranger's run may make any image of few weights.
    """
    outline = copy.deepcopy(generator).to("meta").eval()
    largest = math.prod(generator.shape)

    def count(module: torch.nn.Module, given: object, output: object) -> None:
        nonlocal largest
        largest = max(largest, output.numel() if isinstance(output, Tensor) else 0)

    for module in outline.modules():
        module.register_forward_hook(count)
    label = None if generator.classes is None else torch.zeros(1, dtype=torch.int64, device="meta")
    # A backbone of another package may hold tensors of its own, which have memory: its largest layer is not known then.
    with torch.no_grad(), suppress(RuntimeError):
        outline(torch.zeros(1, generator.latent_dim, device="meta"), label)
    return int(HELD * FLOAT * largest * at_once)


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
    """The graph of the largest set that is assigned along few pairs, and its pairs per image."""
    pairs = {"dense": 0, "candidates": 4 * own.candidates, "blocks": MOST_IN_BLOCKS}
    return PER_PAIR * max((size * min(pairs[own.strategy_for(size)], 4 * size) for size in sizes), default=0)
