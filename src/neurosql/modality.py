"""What depends on whether samples are images, signals, volumes or vectors: one object for each kind.

A modality names its default networks, its loss, the features that compare its samples, and how they are drawn. The
packages of networks, features and pictures look these names up. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Modality:
    """One kind of sample."""

    name: str
    plural: str
    axes: int
    """Spatial axes of a sample, hence of a convolution: a sample is (c, *spatial), or (p,) without spatial axes."""
    generator: str
    """The generator that `auto` stands for: a name of `settings.BACKBONES`."""
    cost: str
    """The loss that `auto` stands for."""
    paper_cost: str
    """The loss that `paper` stands for: the paper's, channel by channel."""
    costs: tuple[str, ...]
    """Every loss that can compare such samples."""
    encoder: str
    """The encoder of autoencoders that ask for convolutions: a name of `methods.encoders`."""
    discriminator: str
    """A name of `methods.discriminators`."""
    denoiser: str
    """A name of `methods.denoisers`."""
    features: str
    """The random network of proxy-FID: a name of `metrics.features`."""
    picture: str
    """How samples are drawn: a name of `report.pictures`."""
    bounded: bool = True
    """Whether values are in [0, 1]; otherwise they are standardised by column."""
    channels: int | None = None
    """Number of channels, if the modality is only for samples with that many."""
    also: tuple[str, ...] = ()
    """Names of narrower kinds that such samples belong to, besides `name`: a score may be for one of these."""

    @property
    def is_picture(self) -> bool:
        """Whether a sample can be written as a picture file."""
        return self.picture == "sheet"


_ANY_COST = ("ssim+l1", "ssim", "l1", "l2")
_DENSE: dict[str, Any] = {
    "generator": "mlp",
    "encoder": "mlp",
    "discriminator": "mlp",
    "denoiser": "mlp",
    "features": "dense",
}

_SSIM_L1: dict[str, Any] = {"cost": "ssim+l1", "paper_cost": "ssim+l1", "costs": _ANY_COST}
_L2: dict[str, Any] = {"cost": "l2", "paper_cost": "l2", "costs": ("l1", "l2")}

VECTOR = Modality("vector", "vectors", 0, picture="scatter", bounded=False, **_L2, **_DENSE)
SIGNAL = Modality("signal", "signals", 1, picture="profile", **_SSIM_L1, **_DENSE)
IMAGE = Modality(
    "image",
    "images",
    2,
    generator="convnet",
    encoder="conv",
    discriminator="conv",
    denoiser="unet",
    features="conv",
    picture="sheet",
    **_SSIM_L1,
)
COLOUR_IMAGE = replace(IMAGE, cost="colour", costs=("colour", *_ANY_COST), channels=3, also=("colour image",))
VOLUME = Modality("volume", "volumes", 3, picture="profile", **_SSIM_L1, **_DENSE)

MODALITIES = {modality.name: modality for modality in (VECTOR, SIGNAL, IMAGE, VOLUME)}
NARROWER = (COLOUR_IMAGE,)
"""Modalities under the name of a wider one: they look at the channels too."""


def of_shape(shape: Sequence[int]) -> Modality:
    """The modality of samples of this shape, (c, *spatial) or (p,): the narrowest."""
    fitting = (m for m in (*NARROWER, *MODALITIES.values()) if m.axes == len(shape) - 1)
    return next(modality for modality in fitting if modality.channels in (None, shape[0]))
