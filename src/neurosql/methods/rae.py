r"""Regularised autoencoder: a deterministic encoder, and a density fitted to its codes after training.

    mean_i [ l(x_i, G(z_i)) + a |z_i|^2 / 2 ] + b |theta|^2,    z_i = E(x_i)

where a is the `code_penalty`, b the `weight_penalty` and theta the generator's parameters. The penalties take the place
of a VAE's noise: codes stay close together, and the generator stays smooth between them. The law of the codes is free,
so a Gaussian mixture is fitted to them after training, one per class in the class-conditional case, and samples are
G(z) with z from that mixture. The settings' prior plays no part.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neurosql.cost import Cost
from neurosql.density import Mixture
from neurosql.generators.base import Generator
from neurosql.methods import encoders
from neurosql.methods.autoencoder import OPTIMIZER, Autoencoder
from neurosql.methods.base import Batch, Task, Update
from neurosql.settings import methods
from neurosql.settings.methods import RAESettings


class RAE(Autoencoder):
    """A generator, an encoder and, after training, a Gaussian mixture of the codes."""

    record = methods.RAE
    together = (*Autoencoder.together, "density.")

    density: Mixture | None = None
    """The law of the codes, once fitted."""

    def __init__(
        self, generator: Generator, encoder: encoders.Encoder, cost: Cost, settings: RAESettings, seed: int
    ) -> None:
        super().__init__(generator, encoder, cost)
        self.settings, self.seed = settings, seed

    @classmethod
    def build(cls, task: Task) -> RAE:
        settings, generator = task.settings.own, task.generator()
        encoder = encoders.make(settings.encoder, task, task.latent_dim, generator)
        return cls(generator, encoder, task.cost, settings, task.seed)

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One step of encoder and generator together down the penalised loss of a batch."""
        self.density = None
        with self.clock("step"):
            self.generator.train()
            self.encoder.train()
            label = batch.label if self.classes else None
            z = self.encoder(batch.x, label)
            loss = self.cost.paired(batch.x, self.generator(z, label)).mean()
            penalty = self.code_penalty(z)
            weights = self.weight_penalty()
            self.consists_of(reconstruction=loss, code_penalty=penalty, weight_penalty=weights)
            update(OPTIMIZER, loss + penalty + weights)
        return {"loss": loss.item(), "code_penalty": penalty.item()}

    def code_penalty(self, z: Tensor) -> Tensor:
        """a mean_i |z_i|^2 / 2."""
        return self.settings.code_penalty * z.square().sum(1).mean() / 2

    def weight_penalty(self) -> Tensor:
        """b |theta|^2."""
        if not self.settings.weight_penalty:
            return torch.zeros((), device=self.device)
        squares = [p.square().sum() for p in self.generator.parameters()]
        return self.settings.weight_penalty * torch.stack(squares).sum()

    def finish(self) -> None:
        """Compute the codes of the training images, and fit their density."""
        super().finish()
        self.density = self._fit(self.codes)

    def _fit(self, codes: Tensor) -> Mixture:
        return Mixture.fit(codes, self.labels, self.classes, self.settings.components, self.seed)

    def heldout_loss(self, x: Tensor, label: Tensor | None) -> float:
        """The loss of the reconstructions plus the penalty of the codes."""
        codes, losses = self._code_and_loss(x, self.known_labels(x, label))
        return float(losses.mean() + self.code_penalty(codes))

    def draw_usual(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """n draws from the density of the codes, which is fitted for this call while training is under way."""
        density = self.density or self._fit(self.code(self.x, self.labels))
        labels = self.draw_labels(n, label, random)
        return density.sample(n, labels, random).float().to(self.device), labels

    def kept(self) -> dict[str, Tensor]:
        return super().kept() | (self.density.tensors() if self.density is not None else {})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        self.density = Mixture.from_tensors(tensors)
