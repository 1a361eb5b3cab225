"""ResNet: a linear projection, then four residual upsampling blocks; may start from a ResNet-18's weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import relu

from neurosql.errors import InputError, whole
from neurosql.generators.base import Generator
from neurosql.generators.grid import Size, base_grid, grow, halving_widths, image_shape, pyramid
from neurosql.settings.backbones import ResNetSettings

BLOCKS = 4
BASE = 2


class Block(nn.Module):
    """(n, before, h, w) -> (n, after, *size): two 3x3 convolutions, each with its batch norm, and a shortcut.

    Convolution, norm and ReLU come in the order of ResNet-18, so that its weights mean the same thing here.
    """

    def __init__(self, before: int, after: int, size: Size) -> None:
        super().__init__()
        self.size = size
        self.conv1 = nn.Conv2d(before, after, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, kernel_size=1, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        h = relu(self.bn1(self.conv1(grow(x, self.size))))
        # A 1x1 convolution commutes with repeating pixels; done first, it is a quarter of the work.
        return relu(self.bn2(self.conv2(h)) + grow(self.shortcut(x), self.size))


class ResNet(Generator):
    """Linear to the base grid, four blocks, 3x3 head.

    ``taper`` halves the width from block to block (512, 256, 128, 64); without it, all blocks are ``width``
    wide. The base grid is at least 2x2, so small images double in fewer than four blocks: the first blocks
    keep the size.
    """

    name = "resnet"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "laptop": {"width": 128, "taper": True},
        "paper": {"width": 512, "taper": True},
    }

    def __init__(
        self,
        shape: Sequence[int],
        latent_dim: int,
        *,
        classes: int | None,
        bounded: bool,
        width: int,
        taper: bool,
    ) -> None:
        channels, h, w = image_shape(self.name, shape)
        width, taper = whole("width", width), bool(taper)
        super().__init__(shape, latent_dim, classes=classes, bounded=bounded, width=width, taper=taper)
        sizes = pyramid((h, w), BASE, most=BLOCKS)
        self.sizes = [sizes[0]] * (BLOCKS + 1 - len(sizes)) + sizes
        self.widths = halving_widths(width, BLOCKS) if taper else [width] * BLOCKS
        base_h, base_w = self.sizes[0]
        self.entry = nn.Linear(self.code_dim, width * base_h * base_w)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(
            Block(before, after, size)
            for before, after, size in zip([width, *self.widths], self.widths, self.sizes[1:])
        )
        self.head = nn.Conv2d(self.widths[-1], channels, kernel_size=3, padding=1)

    @classmethod
    def own_options(cls, settings: ResNetSettings) -> dict[str, Any]:
        """``taper``; the file of weights is not part of the architecture."""
        return {"taper": settings.taper}

    def begin(self, settings: ResNetSettings) -> None:
        """Start from a ResNet-18's weights, if a file of them is given."""
        if settings.resnet18:
            load_resnet18(self, settings.resnet18)

    def decode(self, code: Tensor) -> Tensor:
        """(n, c, h, w) from code (n, code_dim)."""
        h = relu(self.norm(base_grid(self.entry(code), self.widths[0], self.sizes[0])))
        for block in self.blocks:
            h = block(h)
        return self.head(h).contiguous()


@torch.no_grad()
def load_matching(generator: Generator, state_dict: Mapping[str, Tensor]) -> list[str]:
    """Copy the 3x3 convolutions of a ResNet-18 into the residual convolutions that have their shape.

    Args:
        generator: a ``resnet`` generator, changed in place.
        state_dict: tensors with torchvision's names: ``layer1.0.conv1.weight``, ``layer1.0.bn1.weight``, ...

    Returns the names of the generator's parameters that were filled. Convolutions are visited from the base
    grid to the image; each takes the first source, in the order of names, that fits and is still free, with
    the weight and bias of the norm that follows it. Running statistics stay as they are: they describe
    photographs, not this net's activations.
    """
    if not isinstance(generator, ResNet):
        raise InputError(f"ResNet-18 weights fit a resnet generator only, got {type(generator).__name__}")
    free = sorted(key for key in state_dict if re.fullmatch(r"layer\d+\.\d+\.conv\d+\.weight", key))
    own = dict(generator.named_parameters())
    filled: list[str] = []
    for name in own:
        if not re.fullmatch(r"blocks\.\d+\.conv\d+\.weight", name):
            continue
        source = next((key for key in free if state_dict[key].shape == own[name].shape), None)
        if source is None:
            continue
        free.remove(source)
        own[name].copy_(state_dict[source])
        filled.append(name)
        for part in ("weight", "bias"):
            ours, theirs = (key.replace("conv", "bn").replace("weight", part) for key in (name, source))
            if theirs in state_dict and state_dict[theirs].shape == own[ours].shape:
                own[ours].copy_(state_dict[theirs])
                filled.append(ours)
    if not filled:
        raise InputError(
            f"no ResNet-18 convolution has the shape of one in this generator (width {generator.widths[0]}): "
            "use a width of 64, 128, 256 or 512"
        )
    return filled


def load_resnet18(generator: Generator, path: str | Path) -> list[str]:
    """``load_matching`` from the state dict in a ``.safetensors`` file."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(
            f"ResNet-18 weights are read from .safetensors files only, got {path.name}: "
            "a pickle can run code when it is opened, so convert it with safetensors.torch.save_file first"
        )
    try:
        state_dict = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"can't read {path}: {error}") from None
    return load_matching(generator, state_dict)
