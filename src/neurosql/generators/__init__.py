"""Generators G: (z, label) -> x, one file each.

``make`` builds one by name. Its initial weights are a function of the settings and the seed alone, so every
method that asks for the same generator starts from the same bits.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from neurosql.errors import InputError, whole
from neurosql.generators import initial
from neurosql.generators.base import Generator

_CLASS = {
    "convnet": "ConvNet",
    "mlp": "MLP",
    "resnet": "ResNet",
    "transformer": "Transformer",
    "unet": "UNet",
}

NAMES = tuple(_CLASS)
SIZES = ("laptop", "paper")

__all__ = ["NAMES", "SIZES", "Generator", "make"]


def make(
    name: str,
    shape: Sequence[int],
    latent_dim: int,
    *,
    size: str = "laptop",
    width: int | None = None,
    classes: int | None = None,
    seed: int = 0,
    bounded: bool = True,
    **options: Any,
) -> Generator:
    """Build the generator ``name`` for samples of ``shape``, on the CPU, with weights drawn from ``seed``.

    Args:
        name: one of ``NAMES``.
        shape: a sample's, without the batch: (c, h, w) for images, (p,) for vectors. ``mlp`` takes any.
        latent_dim: d, the length of a code z.
        size: the preset that sets the widths together, ``laptop`` or ``paper``.
        width: the first (widest) width, in place of the preset's.
        classes: number of labels of a conditional generator; None for an unconditional one.
        seed: seed of the initial weights; torch's global random state is neither read nor changed.
        bounded: True ends in a sigmoid, so x lies in [0, 1]; False leaves the output linear.
        options: the net's own settings in place of the preset's, e.g. ``taper`` of ``resnet``.
    """
    if name not in _CLASS:
        raise InputError(f"generator must be one of {', '.join(NAMES)}, got {name!r}")
    if size not in SIZES:
        raise InputError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    kind: type[Generator] = getattr(importlib.import_module(f"{__name__}.{name}"), _CLASS[name])
    settings = dict(kind.presets[size])
    unknown = sorted(set(options) - set(settings))
    if unknown:
        raise InputError(f"{name} has no option {unknown[0]!r}; its options are {', '.join(sorted(settings))}")
    settings.update(options)
    if width is not None:
        settings["width"] = width
    seed = whole("seed", seed, least=0)

    # On the meta device torch's own initialisers run without drawing from the global random state.
    with torch.device("meta"):
        generator = kind(shape, latent_dim, classes=classes, bounded=bounded, **settings)
    generator.to_empty(device="cpu")
    initial.fill(generator, seed)
    return generator
