"""What depends on whether samples are images, signals, volumes or vectors: one object for each kind.

A modality names its default networks, its loss, the features that compare its samples, and how they are drawn. The
packages of networks, features and pictures look these names up. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

VECTOR = Modality("vector", "vectors", 0, cost="l2", costs=("l1", "l2"), picture="scatter", bounded=False, **_DENSE)
SIGNAL = Modality("signal", "signals", 1, cost="ssim+l1", costs=_ANY_COST, picture="profile", **_DENSE)
IMAGE = Modality(
    "image",
    "images",
    2,
    generator="convnet",
    cost="ssim+l1",
    costs=_ANY_COST,
    encoder="conv",
    discriminator="conv",
    denoiser="unet",
    features="conv",
    picture="sheet",
)
VOLUME = Modality("volume", "volumes", 3, cost="ssim+l1", costs=_ANY_COST, picture="profile", **_DENSE)

MODALITIES = {modality.name: modality for modality in (VECTOR, SIGNAL, IMAGE, VOLUME)}


def of_shape(shape: Sequence[int]) -> Modality:
    """The modality of samples of this shape, (c, *spatial) or (p,)."""
    return next(modality for modality in MODALITIES.values() if modality.axes == len(shape) - 1)
