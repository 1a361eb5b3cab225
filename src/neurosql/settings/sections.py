"""The settings that every method shares: the generator, the law of the codes and the loss, the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neurosql.errors import InputError
from neurosql.settings.backbones import BACKBONES
from neurosql.settings.checks import at_least, check_choices

AUTO, AS_PAPER = "auto", "paper"
CostName = Literal["auto", "paper", "ssim+l1", "ssim", "l1", "l2", "colour"]


@dataclass(frozen=True)
class GeneratorSettings:
    """The generator: its architecture, its size, its input."""

    generator: str = AUTO
    """Architecture: mlp, convnet, resnet, unet or transformer; auto is convnet for images and mlp for everything else.
    `--generator NAME --help` also shows the settings of that architecture."""
    size: Literal["laptop", "paper"] = "laptop"
    """Widths of all layers together: laptop (ConvNet about 0.2M parameters at 28 x 28) or paper (2.8M)."""
    width: int | None = None
    """First (widest) layer width, in place of the one that `size` sets."""
    latent_dim: int = 2
    """Dimension d of the latent space."""
    conditional: bool = False
    """Class-conditional: each class gets a sublattice of its own and the generator a class embedding."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "latent_dim", "width")
        if self.generator != AUTO and self.generator not in BACKBONES:
            raise InputError(f"generator must be one of {', '.join((AUTO, *BACKBONES))}, got {self.generator!r}")


@dataclass(frozen=True)
class LatentSettings:
    """The law of the codes and the loss between samples: the same for every method that has them."""

    prior: Literal["normal", "cube", "ball", "spherical", "custom"] = "normal"
    """Law of the codes: standard normal, uniform on the cube, on the ball, or with uniform radius on the ball
    (custom is one given in Python)."""
    lattice: Literal["sobol", "centre-outward", "centre-outward-lebesgue", "grid", "iid"] | None = None
    """How the prior's n quantiles are placed; by default scrambled Sobol points through the quantile map."""
    scale: float = 1.0
    """Factor on the prior (lattice, sampler and density alike)."""
    cost: CostName = "auto"
    """Loss l between a sample and its reconstruction, and of the assignment. auto is l2 for vectors, colour for images
    of three channels (SSIM + L1 of brightness, and a term for colour), and ssim+l1 for everything else; paper is the
    same but for colour images, which get ssim+l1, channel by channel."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        if not self.scale > 0:
            raise InputError(f"scale must be positive, got {self.scale}")


@dataclass(frozen=True)
class TrainingSettings:
    """The budget and the optimiser: the same for every method."""

    epochs: int = 60
    """Passes over the training images."""
    steps: int | None = None
    """Most steps, whatever `epochs` says."""
    seconds: float | None = None
    """Most seconds of training, whatever `epochs` says; the schedule then follows the clock if that is ahead."""
    batch_size: int = 64
    """Images per step."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """Optimiser."""
    learning_rate: float = 2e-3
    """Learning rate at the start of the schedule."""
    beta1: float = 0.9
    """Decay rate of the mean of gradients (Adam, AdamW), or the momentum (SGD)."""
    beta2: float = 0.999
    """Decay rate of the mean of squared gradients (Adam, AdamW)."""
    schedule: Literal["cosine", "restarts", "constant"] = "cosine"
    """Learning rate over the run: one cosine, cosine with warm restarts, or constant."""
    cycle: int = 10
    """Epochs of the first warm-restart cycle; each next one is twice as long."""
    weight_decay: float = 1e-4
    """Decoupled weight decay (AdamW), or the L2 coefficient (Adam, SGD)."""
    clip: float = 1.0
    """Largest gradient norm; 0 does not clip."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights, used for validation and the final model; 0 is off."""
    validation_share: float = 0.1
    """Share of the images that is held out for validation where the data have no such part of their own."""
    patience: int = 30
    """Epochs without an improvement of the held-out loss after which training stops, with the best model; 0 is off."""
    validate_every: int = 5
    """Epochs between two looks at the held-out loss."""
    validate_on: int = 256
    """Most held-out images that a look uses."""
    checkpoint_every: int = 10
    """Epochs between two checkpoints (one is also written when a run is stopped)."""
    seed: int = 0
    """Seed of the lattice, the initial weights, the split and the order of the images."""
    device: str = "cpu"
    """Torch device: cpu, cuda, cuda:1, mps."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "epochs", "steps", "batch_size", "cycle", "validate_every", "validate_on")
        at_least(self, 1, "checkpoint_every")
        at_least(self, 0, "weight_decay", "clip", "patience", "seed")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be positive, got {self.seconds}")
        for name in ("ema", "validation_share", "beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise InputError(f"{name} must be in [0, 1), got {value}")
