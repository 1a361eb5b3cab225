"""The settings that are a method's own, by the method's name. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from neurosql.errors import InputError
from neurosql.settings import QuantileSettings, at_least, check_choices


@dataclass(frozen=True)
class VAESettings:
    """Variational autoencoder."""

    encoder: Literal["mlp", "conv"] = "conv"
    """Encoder: an MLP on flat pixels (the paper's), or convolutions (images only; anything else gets the MLP)."""
    likelihood: Literal["cost", "gaussian"] = "cost"
    """Reconstruction term: the loss l, as in the paper, or a Gaussian log-likelihood, for the usual ELBO."""
    beta: float | None = None
    """Weight of the KL divergence in nats: against the loss l (by default 0.0015, in d < 8 dimensions 0.012 / d; the
    paper has 0.005), or against the Gaussian log-likelihood in nats (by default 1, the ELBO)."""
    warmup: int = 0
    """Epochs over which the weight of the KL divergence rises from 0."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 0, "beta", "warmup")


@dataclass(frozen=True)
class GANSettings:
    """Generative adversarial network."""

    r1: float = 1.0
    """Weight of the R1 penalty, the squared gradient of the discriminator at real images; 0 leaves it out."""
    r1_every: int = 4
    """Steps between two R1 penalties, each weighted up accordingly."""
    augment: float = 0.0
    """Strength, from 0 (off) to 1, of the differentiable augmentation (brightness, saturation, contrast, translation,
    cutout) of all that the discriminator sees. It is for long runs on few images, where the discriminator learns the
    images by heart: real_logit far above fake_logit. In short runs it only slows learning. Vectors have none."""

    def check(self) -> None:
        at_least(self, 0, "r1")
        at_least(self, 1, "r1_every")
        if not 0 <= self.augment <= 1:
            raise InputError(f"augment must be in [0, 1], got {self.augment}")


@dataclass(frozen=True)
class DDPMSettings:
    """Denoising diffusion."""

    unet_width: int | None = None
    """Images only: base width of the denoising U-Net. By default its parameter count matches the generator's, as that
    of the MLP for other data always does."""
    noise_steps: int = 1000
    """T, steps of the forward process."""
    noise_schedule: Literal["linear", "cosine"] = "linear"
    """Schedule of the noise: variances that grow linearly (the paper's), or a squared cosine for the data's share."""
    predict: Literal["noise", "v"] = "noise"
    """What the network predicts: the noise, or v = sqrt(a) noise - sqrt(1 - a) x, a the data's share."""
    sampling_steps: int = 100
    """Steps of sampling: a strided, deterministic DDIM below T, the ancestral sampler at T."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 1, "unet_width", "noise_steps", "sampling_steps")
        if self.sampling_steps > self.noise_steps:
            raise InputError(f"sampling_steps must be at most noise_steps, got {self.sampling_steps}")


@dataclass(frozen=True)
class IMLESettings:
    """Implicit maximum likelihood: each image takes the nearest of many samples."""

    pool: int = 4
    """Samples to choose from, for each training image."""
    renew: int = 1
    """Epochs between two choices."""
    jitter: float = 0.05
    """Standard deviation, over the prior's scale, of the noise that is added to a chosen code at each step."""

    def check(self) -> None:
        at_least(self, 1, "pool", "renew")
        at_least(self, 0, "jitter")


@dataclass(frozen=True)
class RSIMLESettings(IMLESettings):
    """Rejection-sampling IMLE: samples that are already close to some image are not offered."""

    reject: float = 0.02
    """Share of the pool that is rejected: the samples nearest to any training image."""
    epsilon: float | None = None
    """In place of that share, the loss l to the nearest image under which a sample is rejected."""

    def check(self) -> None:
        super().check()
        at_least(self, 0, "epsilon")
        if not 0 <= self.reject < 1:
            raise InputError(f"reject must be in [0, 1), got {self.reject}")


@dataclass(frozen=True)
class GLOSettings:
    """Generative latent optimisation: codes learnt by gradient."""

    code_rate: float = 0.15
    """Learning rate of the codes (Adam) at the start of the schedule, which they follow too."""
    radius: float = 1.0
    """Codes are projected to the ball of this radius times the square root of the latent dimension."""

    def check(self) -> None:
        if not (self.code_rate > 0 and self.radius > 0):
            raise InputError(f"code_rate and radius must be positive, got {self.code_rate} and {self.radius}")


@dataclass(frozen=True)
class RAESettings:
    """Regularised autoencoder with a density fitted after."""

    encoder: Literal["mlp", "conv"] = "conv"
    """Encoder: an MLP on flat pixels, or convolutions (images only; anything else gets the MLP)."""
    code_penalty: float = 1e-4
    """Weight of half the mean squared norm of the codes."""
    weight_penalty: float = 1e-6
    """Weight of the sum of the generator's squared parameters."""
    components: int = 10
    """Most components of the Gaussian mixture, of each class in the class-conditional case; fewer for few images."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 0, "code_penalty", "weight_penalty")
        at_least(self, 1, "components")


@dataclass(frozen=True)
class CFMSettings:
    """Flow matching with mini-batch optimal transport."""

    unet_width: int | None = None
    """Images only: base width of the U-Net. By default its parameter count matches the generator's, as that of the MLP
    for other data always does."""
    coupling: Literal["optimal", "independent"] = "optimal"
    """Pairs of noise and images in a batch: the cheapest assignment, or as they come."""
    sigma: float = 0.0
    """Standard deviation of the path around the straight line."""
    sampling_steps: int = 50
    """Steps of the ordinary differential equation's solver."""
    solver: Literal["euler", "midpoint", "heun"] = "midpoint"
    """Solver; midpoint and heun evaluate the network twice a step."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 1, "unet_width", "sampling_steps")
        at_least(self, 0, "sigma")


OPTIONS: dict[str, Any] = {
    "neurosql": QuantileSettings,
    "vae": VAESettings,
    "gan": GANSettings,
    "ddpm": DDPMSettings,
    "imle": IMLESettings,
    "rs-imle": RSIMLESettings,
    "glo": GLOSettings,
    "rae": RAESettings,
    "ot-cfm": CFMSettings,
}

NAMES = tuple(OPTIONS)
