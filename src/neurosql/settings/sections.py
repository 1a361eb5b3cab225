"""The settings that every method shares: the generator, the law of the codes and the loss, the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neurosql.errors import InputError, seed
from neurosql.settings.backbones import BACKBONES
from neurosql.settings.checks import at_least, check_choices

AUTO, AS_PAPER = "auto", "paper"
FLOAT32: Literal["float32"] = "float32"
BFLOAT16: Literal["bfloat16"] = "bfloat16"
MOST_LAYERS = 1000
Precision = Literal["auto", "float32", "bfloat16"]
CostName = Literal["auto", "paper", "ssim+l1", "ssim", "l1", "l2", "colour"]


@dataclass(frozen=True)
class GeneratorSettings:
    """The generator: its architecture, its size, its input."""

    generator: str = AUTO
    """Architecture: mlp, convnet, resnet, unet or transformer; auto is convnet for images and mlp for everything else.
    `--generator NAME --help` also shows the settings of that architecture."""
    size: Literal["laptop", "paper"] = "laptop"
    """Width of all layers: laptop (a ConvNet of about 0.2M parameters at 28 x 28 pixels) or paper (2.8M)."""
    width: int | None = None
    """Width of the first (widest) layer, instead of the one that `size` sets."""
    mapping: int = 0
    """Hidden layers of a mapping network between the code and the generator; 0 is none. It lets the generator follow
    codes that do not lie as the images do."""
    mapping_width: int = 128
    """Units of each of these layers."""
    latent_dim: int | Literal["auto"] = 2
    """Dimension d of the latent space. auto is the data's own dimension, estimated from distances between neighbours,
    but no more than the images can fill: 8 for 500 of them, 10 for 2,000, 15 for 60,000."""
    conditional: bool = False
    """Make the model class-conditional: each class gets its own sublattice, and the generator is told the class."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "width", "mapping_width", *(() if self.latent_dim == AUTO else ("latent_dim",)))
        at_least(self, 0, "mapping")
        if self.mapping > MOST_LAYERS:
            raise InputError(f"mapping must be at most {MOST_LAYERS}, got {self.mapping}")
        if self.generator != AUTO and self.generator not in BACKBONES:
            raise InputError(f"generator must be one of {', '.join((AUTO, *BACKBONES))}, got {self.generator!r}")

    @property
    def dim(self) -> int:
        """The latent dimension as a number, which `auto` becomes once the training images are known."""
        if isinstance(self.latent_dim, str):
            raise InputError(f"latent_dim {self.latent_dim} is chosen by the training images: give a number instead")
        return self.latent_dim


@dataclass(frozen=True)
class LatentSettings:
    """The law of the codes and the loss between samples, which every method that has them shares."""

    prior: Literal["normal", "cube", "ball", "spherical", "custom"] = "normal"
    """Law of the codes: standard normal, uniform on the cube or on the ball, or uniform in direction and radius
    (spherical). custom is a prior that was given in Python."""
    lattice: Literal["sobol", "centre-outward", "centre-outward-lebesgue", "grid", "iid"] | None = None
    """How the n quantiles of the prior are placed; by default, from scrambled Sobol points."""
    scale: float = 1.0
    """Factor by which the prior is scaled: its lattice, its sampler and its density."""
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
    """The budget and the optimiser, which every method shares."""

    epochs: int = 60
    """Passes over the training images."""
    steps: int | None = None
    """Stop after this many steps, even if `epochs` allows more."""
    seconds: float | None = None
    """Stop after this many seconds of training, even if `epochs` allows more. The schedule then follows the clock."""
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
    """Decay of a moving average of the weights, which validation and the final model use; 0 is off."""
    validation_share: float = 0.1
    """Share of the images held out for validation, if the data have no validation part of their own."""
    patience: int = 30
    """Stop after this many epochs without a better held-out loss, and keep the best model; 0 is off."""
    validate_every: int = 5
    """Epochs between two computations of the held-out loss."""
    validate_on: int = 256
    """Largest number of held-out images that each computation uses."""
    checkpoint_every: int = 10
    """Epochs between two checkpoints; another one is written when a run is stopped."""
    seed: int = 0
    """Seed of the lattice, the initial weights, the split and the order of the images."""
    device: str = "cpu"
    """Torch device: cpu, cuda, cuda:1, mps; auto is the first of cuda, mps and cpu that this machine has."""
    precision: Precision = "auto"
    """Precision of the networks' layers in training steps. auto is bfloat16 for convnet, resnet and unet on a processor
    that has instructions for it, which takes about two thirds of the time, and float32 everywhere else."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "epochs", "steps", "batch_size", "cycle", "validate_every", "validate_on")
        at_least(self, 1, "checkpoint_every")
        at_least(self, 0, "weight_decay", "clip", "patience", "seed")
        seed("seed", self.seed)
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be positive, got {self.seconds}")
        for name in ("ema", "validation_share", "beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise InputError(f"{name} must be in [0, 1), got {value}")
