"""The generators by name: for each, its class, the shapes that it makes and its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neurosql.registry import Registry


@dataclass(frozen=True)
class NoSettings:
    """A backbone without settings of its own."""

    def check(self) -> None:
        """There is nothing to refuse."""


@dataclass(frozen=True)
class ResNetSettings:
    """The residual generator's own settings."""

    taper: bool = True
    """ResNet only: halve the width from block to block; otherwise all blocks have the same width."""
    resnet18: str | None = None
    """ResNet only: a ResNet-18 state dict (.safetensors) to start from where shapes match."""

    def check(self) -> None:
        """There is nothing to refuse before the file is read."""


@dataclass(frozen=True)
class BackboneRecord:
    """A generator architecture."""

    name: str
    implementation: str
    """Its class, a `Generator`, as `module:name`."""
    axes: tuple[int, ...] = (2,)
    """How many spatial axes its samples may have: 0 for vectors, 1 for signals, 2 for images, 3 for volumes."""
    settings: type[Any] = NoSettings
    """A frozen dataclass with a docstring per field and a `check`."""
    bfloat16: bool = False
    """Whether it learns quicker in bfloat16, and no worse, on a processor that has instructions for it."""


MLP = BackboneRecord("mlp", "neurosql.generators.mlp:MLP", axes=(0, 1, 2, 3))
CONVNET = BackboneRecord("convnet", "neurosql.generators.convnet:ConvNet", bfloat16=True)
RESNET = BackboneRecord("resnet", "neurosql.generators.resnet:ResNet", settings=ResNetSettings, bfloat16=True)
UNET = BackboneRecord("unet", "neurosql.generators.unet:UNet", bfloat16=True)
TRANSFORMER = BackboneRecord("transformer", "neurosql.generators.transformer:Transformer")

BUILT_IN = {
    "mlp": "MLP",
    "convnet": "CONVNET",
    "resnet": "RESNET",
    "unet": "UNET",
    "transformer": "TRANSFORMER",
}
BACKBONES: Registry[BackboneRecord] = Registry(
    "generator", BackboneRecord, "neurosql.backbones", BUILT_IN, home=__name__
)
"""Every backbone by name. A record in a file of its own is listed in `BUILT_IN` as `module:RECORD`."""
