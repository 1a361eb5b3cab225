"""The precision of training steps: float32, or bfloat16 where the processor is quicker with it.

Only the networks' own layers are cast, and only while they learn. Weights, their gradients and moments, codes, losses,
costs and everything that a trained model makes are float32: SSIM subtracts means of squares from squares of means.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from neurosql.settings import BACKBONES, Settings
from neurosql.settings.sections import AUTO, BFLOAT16, FLOAT32, Precision


def resolved(settings: Settings, quick: bool) -> Settings:
    """Replace the precision `auto` by the one that is quicker for the chosen generator, if bfloat16 is quick here."""
    if settings.training.precision != AUTO:
        return settings
    quick = quick and BACKBONES[settings.generator.generator].bfloat16
    chosen: Precision = BFLOAT16 if quick else FLOAT32
    training = dataclasses.replace(settings.training, precision=chosen)
    return dataclasses.replace(settings, training=training)


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device is known to be quicker with bfloat16: a processor that has instructions for it.

    Where there are tile registers too, torch uses them, and a system that withholds them ends the process.
    """
    if device.type != "cpu":
        return False
    cpu: Any = torch.cpu
    return bool(cpu._is_avx512_bf16_supported()) and (not cpu._is_amx_tile_supported() or bool(cpu._init_amx()))


@contextmanager
def casting(networks: Iterable[nn.Module], precision: str) -> Iterator[None]:
    """Compute the layers of these networks in a precision while they are in training mode, within the context."""
    changed = list(networks) if precision == BFLOAT16 else []
    for network in changed:
        network.forward = _cast(network, network.forward)
    try:
        yield
    finally:
        for network in changed:
            del network.forward


def _cast(network: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward` in bfloat16 in training mode, with results in float32."""

    def quick(*given: Any, **options: Any) -> Any:
        if not network.training:
            return forward(*given, **options)
        with torch.autocast(next(network.parameters()).device.type, torch.bfloat16):
            made = forward(*given, **options)
        return tuple(map(_exact, made)) if isinstance(made, tuple) else _exact(made)

    return quick


def _exact(made: Any) -> Any:
    return made.float() if isinstance(made, Tensor) and made.dtype == torch.bfloat16 else made
