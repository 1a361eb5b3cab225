r"""Variational autoencoder: an encoder gives each image a normal law of codes instead of one code.

    q(z | x) = N(mu(x), diag sigma^2(x)),    z = mu + sigma e,  e ~ N(0, I),    prior N(0, s^2 I)
    KL(x)    = 1/2 sum_j [ (mu_j^2 + sigma_j^2) / s^2 - 1 - log(sigma_j^2 / s^2) ]      (nats)

With likelihood `cost` the objective is the paper's, in the loss l that all methods share,

    mean_i l(x_i, G(z_i)) + beta KL(x_i),

which is the ELBO of the likelihood exp(-l / beta): beta is how much loss one nat of KL is worth. With likelihood
`gaussian` it is the usual ELBO, x | z ~ N(G(z), v I) for p pixels, in nats per pixel and with its sign reversed:

    mean_i (1 / p) [ |x_i - G(z_i)|^2 / (2 v) + p/2 log(2 pi v) + beta KL(x_i) ],

where beta = 1 gives the ELBO itself, a lower bound of log p(x). The variance v is not a setting: at each step it is the
optimal one, the batch's mean squared error (so the step descends 1/2 log v, the likelihood with v profiled out). Its
running mean is the model's variance, which validation uses.

The code of an image is mu(x). Samples are G(z) with z from the prior; observation noise is not added.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neurosql.cost import Cost
from neurosql.errors import InputError
from neurosql.generators.base import Generator
from neurosql.joint import total
from neurosql.methods import encoders
from neurosql.methods.autoencoder import OPTIMIZER, Autoencoder
from neurosql.methods.base import Batch, Task, Update
from neurosql.prior import Normal
from neurosql.ranks import Part, here
from neurosql.settings import methods
from neurosql.settings.methods import VAESettings

ELBO = 1.0
LEAST_BETA, FEW = 0.0015, 8
LIMIT = 16.0
"""Log-variances stay within plus and minus this."""
LEAST_VARIANCE = 1e-6
"""About the variance of rounding to 256 grey levels."""
MEMORY = 0.95
"""Decay of the running mean of the observation variance."""
VALIDATION_SEED = 0


def kl_divergence(mean: Tensor, log_variance: Tensor, scale: float = 1.0) -> Tensor:
    """KL(N(mean, diag exp(log_variance)) || N(0, scale^2 I)) in nats: (n, d), (n, d) -> (n,)."""
    log_ratio = log_variance - 2 * math.log(scale)
    return 0.5 * (mean.square() / scale**2 + log_ratio.exp() - 1 - log_ratio).sum(1)


def draw(mean: Tensor, log_variance: Tensor, random: torch.Generator, part: Part | None = None) -> Tensor:
    """One z = mu + sigma e for each row, differentiable in both: (n, d). The rows may be part of a joint batch."""
    part = part or Part.all(len(mean))
    noise = part.of(lambda n: torch.randn(n, *mean.shape[1:], generator=random)).to(mean)
    return mean + (0.5 * log_variance).exp() * noise


def gaussian_loss(x: Tensor, y: Tensor, variance: Tensor | float) -> Tensor:
    """-log N(x_i; y_i, variance I) / p in nats per pixel: two (n, ...) tensors of p pixels -> (n,)."""
    variance = torch.as_tensor(variance).to(x)
    error = (x - y).flatten(1).square().mean(1)
    return 0.5 * (error / variance + variance.log() + math.log(2 * math.pi))


def optimal_variance(x: Tensor, y: Tensor) -> Tensor:
    """The variance that makes the joint batch most likely, the mean squared error: a scalar, differentiable."""
    error = (x - y).square()
    if not here().several:
        return error.mean().clamp(min=LEAST_VARIANCE)
    summed = total(torch.stack([error.sum(), error.new_tensor(float(error.numel()))]))
    return (summed[0] / summed[1]).clamp(min=LEAST_VARIANCE)


def default_beta(likelihood: str, latent_dim: int) -> float:
    """The default of beta.

    Against l, the paper has 0.005. From 8 dimensions on, less gave better samples; in fewer dimensions, where a nat of
    KL has fewer coordinates to go to, more did. This was tried on digits in 2, 8 and 16 dimensions and on faces in 2
    and 32.
    """
    return ELBO if likelihood == "gaussian" else LEAST_BETA * max(1.0, FEW / latent_dim)


class VAE(Autoencoder):
    """A generator and an encoder of 2 d outputs, means and log-variances, trained on the ELBO."""

    record = methods.VAE
    together = (*Autoencoder.together, "variance")

    def __init__(
        self, generator: Generator, encoder: encoders.Encoder, scale: float, cost: Cost, settings: VAESettings
    ) -> None:
        super().__init__(generator, encoder, cost)
        self.scale, self.settings = scale, settings
        usual = default_beta(settings.likelihood, generator.latent_dim)
        self.beta = usual if settings.beta is None else settings.beta
        self.pixels = math.prod(generator.shape)
        self.variance = torch.zeros((), dtype=torch.float64)
        """Running mean of the observation variance, 0 before the first step."""
        self.seen = 0
        """Training images seen, for the warm-up."""

    @classmethod
    def build(cls, task: Task) -> VAE:
        prior = task.prior
        if not isinstance(prior, Normal):
            raise InputError(f"a VAE needs the normal prior, got {prior.name!r}: use prior normal")
        settings, generator = task.settings.own, task.generator()
        encoder = encoders.make(settings.encoder, task, 2 * task.latent_dim, generator)
        return cls(generator, encoder, prior.scale, task.cost, settings)

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One step of encoder and generator together down the objective of a batch."""
        with self.clock("step"):
            self.generator.train()
            self.encoder.train()
            label = batch.label if self.classes else None
            mean, log_variance = self._posterior(self.encoder(batch.x, label))
            y = self.generator(draw(mean, log_variance, self.random, batch.part), label)
            variance = optimal_variance(batch.x, y) if self.settings.likelihood == "gaussian" else None
            reconstruction = self._reconstruction(batch.x, y, variance).mean()
            kl = kl_divergence(mean, log_variance, self.scale).mean()
            loss = reconstruction + self.warmth() * self._weight() * kl
            self.consists_of(reconstruction=reconstruction, kl_divergence=kl)
            update(OPTIMIZER, loss)
            if variance is not None:
                found = variance.detach().double().cpu()
                self.variance = MEMORY * self.variance + (1 - MEMORY) * found if self.seen else found
            self.seen += batch.part.whole
        return {"loss": loss.item(), "reconstruction": reconstruction.item(), "kl": kl.item()}

    def warmth(self) -> float:
        """The share of the KL's weight that is in effect: it rises linearly over the epochs of the warm-up."""
        rise = self.settings.warmup * len(self.x)
        return min(1.0, self.seen / rise) if rise else 1.0

    def heldout_loss(self, x: Tensor, label: Tensor | None) -> float:
        """The objective with the KL at full weight and with the same noise at each call."""
        random = torch.Generator().manual_seed(VALIDATION_SEED)
        label = self.known_labels(x, label)
        total = 0.0
        for i in range(0, len(x), encoders.CHUNK):
            some, its = x[i : i + encoders.CHUNK], None if label is None else label[i : i + encoders.CHUNK]
            mean, log_variance = self._posterior(encoders.outputs(self.encoder, some, its))
            y = self.decode(draw(mean, log_variance, random), its)
            kl = kl_divergence(mean, log_variance, self.scale)
            total += float((self._reconstruction(some, y, self.variance) + self._weight() * kl).sum())
        return total / len(x)

    def _posterior(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """mu (n, d) and log sigma^2 (n, d) from the encoder's outputs."""
        mean, log_variance = outputs.chunk(2, dim=1)
        return mean, log_variance.clamp(-LIMIT, LIMIT)

    def _reconstruction(self, x: Tensor, y: Tensor, variance: Tensor | None) -> Tensor:
        """The reconstruction term of each image, (n,)."""
        if self.settings.likelihood == "cost":
            return self.cost.paired(x, y)
        assert variance is not None
        return gaussian_loss(x, y, variance)

    def _weight(self) -> float:
        """The KL's weight beside the reconstruction term."""
        return self.beta if self.settings.likelihood == "cost" else self.beta / self.pixels

    def law_of(self, label: Tensor | None) -> Normal:
        """The prior, whatever the class."""
        return Normal(self.generator.latent_dim, scale=self.scale)

    def draw_usual(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """n draws from the prior."""
        labels = self.draw_labels(n, label, random)
        codes = self.scale * torch.randn(n, self.generator.latent_dim, generator=random)
        return codes.to(self.device), labels

    def tensors(self) -> dict[str, Tensor]:
        return {"variance": self.variance, "seen": torch.tensor(self.seen)}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.variance, self.seen = tensors["variance"].cpu(), int(tensors["seen"])

    def kept(self) -> dict[str, Tensor]:
        return super().kept() | {"variance": self.variance}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        self.variance = tensors["variance"].cpu()
