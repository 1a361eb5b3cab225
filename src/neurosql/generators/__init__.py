"""Generators G: (z, label) -> x, one file each.

``make`` builds one by name. Its initial weights are a function of the settings and the seed alone, so every
method that asks for the same generator starts from the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neurosql import networks
from neurosql.errors import InputError, whole
from neurosql.generators import initial
from neurosql.generators.base import Generator
from neurosql.generators.mapping import Mapped, values_of
from neurosql.registry import imported
from neurosql.settings import BACKBONES

SIZES = ("laptop", "paper")

__all__ = ["SIZES", "Generator", "make", "parameters"]


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
    mapping: int = 0,
    mapping_width: int = 128,
    **options: Any,
) -> Generator:
    """Build the generator ``name`` for samples of ``shape``, on the CPU, with weights drawn from ``seed``.

    Args:
        name: one of ``settings.BACKBONES``.
        shape: the shape of one sample: (c, h, w) for images, (p,) for vectors. ``mlp`` takes any.
        latent_dim: d, the length of a code z.
        size: the preset that sets the widths together, ``laptop`` or ``paper``.
        width: the first (widest) width, in place of the preset's.
        classes: number of labels of a conditional generator; None for an unconditional one.
        seed: seed of the initial weights; torch's global random state is neither read nor changed.
        bounded: True ends in a sigmoid, so x is in [0, 1]; False leaves the output linear.
        mapping: hidden layers of the mapping network in front of the net; 0 for none.
        mapping_width: units in each of them; the net then reads a quarter as many values in place of the code.
        options: the net's own settings in place of the preset's, e.g. ``taper`` of ``resnet``.
    """
    settings: dict[str, Any] = {"size": size, "width": width, "classes": classes, "bounded": bounded}
    settings |= {"mapping": mapping, "mapping_width": mapping_width, **options}
    build = _builder(name, shape, latent_dim, **settings)
    return networks.made(build, initial.fill, whole("seed", seed, least=0))


def parameters(name: str, shape: Sequence[int], latent_dim: int, *, seed: int = 0, **settings: Any) -> int:
    """How many parameters the generator has that ``make`` would build, without memory for them."""
    return networks.count(networks.outline(_builder(name, shape, latent_dim, **settings)))


def _builder(
    name: str,
    shape: Sequence[int],
    latent_dim: int,
    *,
    size: str,
    width: int | None,
    classes: int | None,
    bounded: bool,
    mapping: int,
    mapping_width: int,
    **options: Any,
) -> Callable[[], Generator]:
    """What builds the generator, without its initial weights."""
    kind: type[Generator] = imported(BACKBONES[name].implementation)
    if size not in SIZES:
        raise InputError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    settings = dict(kind.presets[size])
    unknown = sorted(set(options) - set(settings))
    if unknown:
        raise InputError(f"{name} has no option {unknown[0]!r}; its options are {', '.join(sorted(settings))}")
    settings.update(options)
    if width is not None:
        settings["width"] = width

    def build() -> Generator:
        if not mapping:
            return kind(shape, latent_dim, classes=classes, bounded=bounded, **settings)
        dim = whole("latent_dim", latent_dim)
        backbone = kind(shape, values_of(dim, mapping_width), classes=None, bounded=bounded, **settings)
        return Mapped(backbone, dim, classes=classes, hidden=mapping, width=mapping_width)

    return build
