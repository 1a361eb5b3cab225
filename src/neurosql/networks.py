"""How every network is made: initial weights from a seed, and the width that gives a certain parameter count.

Initial weights are a function of the settings and the seed alone; torch's global random state is neither read nor
changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from neurosql.errors import InputError

Network = TypeVar("Network", bound=nn.Module)
Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
LAYERS = (*(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
LEAST_BOUND = 2**24
"""Parameters of a network that is never too large."""
SLACK, EACH_TENSOR = 16, 2**14
"""How far above the bound the outline of a network may be, while a width is searched for, and what a tensor counts."""

_most: ContextVar[int | None] = ContextVar("most", default=None)


def count(network: nn.Module) -> int:
    """Number of parameters."""
    return sum(math.prod(parameter.shape) for parameter in network.parameters())


def seed_of(seed: int, name: str) -> int:
    """The seed of the network of that name: no network shares its draws with another."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0])


def outline(build: Callable[[], Network]) -> Network:
    """The network that `build` returns, without memory for its weights.

    On the meta device, torch's own initialisers run without drawing from the global random state.
    """
    with torch.device("meta"), _counted():
        return build()


@contextmanager
def at_most(parameters: int) -> Iterator[None]:
    """Within the context, a network that is larger than that is refused before there is memory for it.

    The settings of somebody else's run say how large its networks are, and its files how large they can be.
    """
    token = _most.set(max(parameters, LEAST_BOUND))
    try:
        yield
    finally:
        _most.reset(token)


def _too_large() -> InputError:
    return InputError("its settings ask for networks that are larger than the weights in its files: they were altered")


@contextmanager
def _counted() -> Iterator[None]:
    """Within the context, count the parameters that modules get, and end before there are far too many."""
    most = _most.get()
    if most is None:
        yield
        return
    found = 0

    def count_in(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal found
        found += EACH_TENSOR + (0 if parameter is None else math.prod(parameter.shape))
        if found > SLACK * most:
            raise _too_large()

    hook = register_module_parameter_registration_hook(count_in)
    try:
        yield
    finally:
        hook.remove()


def made(build: Callable[[], Network], fill: Callable[[Network, torch.Generator], None], seed: int) -> Network:
    """The network that `build` returns, on the CPU, filled by `fill` with draws from the seed."""
    network = outline(build)
    if (most := _most.get()) is not None and count(network) > most:
        raise _too_large()
    network.to_empty(device="cpu")
    with torch.no_grad():
        fill(network, torch.Generator().manual_seed(seed))
    return network


def fill_layer(layer: Layer, random: torch.Generator, gain: float = 2.0) -> None:
    """Weights N(0, gain / fan_in) and zero bias; a gain of 2 keeps the variance through a ReLU."""
    nn.init.normal_(layer.weight, std=math.sqrt(gain / _fan_in(layer)), generator=random)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def fill(network: nn.Module, random: torch.Generator, gain: float = 2.0) -> None:
    """Fill in place, module by module: layers by `fill_layer`, norms with the identity, all else with N(0, 1).

    That way, embeddings and learnable constants are as large as a code.
    """
    for path, module in network.named_modules():
        if isinstance(module, LAYERS):
            fill_layer(module, random, gain)
        elif isinstance(module, (*BATCH_NORMS, nn.LayerNorm, nn.GroupNorm)):
            if module.weight is not None:
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            if isinstance(module, BATCH_NORMS):
                module.reset_running_stats()
        else:
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter, generator=random)
            for name, _ in module.named_buffers(recurse=False):
                raise RuntimeError(f"buffer {path}.{name} has no rule for its initial value")


def _fan_in(layer: Layer) -> float:
    """How many inputs reach one output: a transposed convolution's kernel is shared by stride^axes outputs."""
    if isinstance(layer, nn.Linear):
        return layer.in_features
    fan = layer.in_channels * math.prod(layer.kernel_size)
    return fan / math.prod(layer.stride) if isinstance(layer, TRANSPOSED) else fan


def width_near(build: Callable[[int], nn.Module], target: int, step: int = 1, least: int | None = None) -> int:
    """The multiple of `step` for which `build(width)` has a parameter count nearest to the target.

    The count must grow with the width. The width is at least `least`, a multiple of `step`, by default `step` itself.
    If two widths are equally near, the smaller one is taken.
    """

    @cache
    def size(steps: int) -> int:
        return count(outline(lambda: build(steps * step)))

    low = (least or step) // step
    high = low + 1
    while size(high) <= target:
        low, high = high, 2 * high
    # The largest width that is not above the target is in [low, high), if there is one.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= target else (low, middle)
    return step * min((low, low + 1), key=lambda steps: abs(size(steps) - target))
