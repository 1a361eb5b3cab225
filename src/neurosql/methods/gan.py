r"""Generative adversarial network, with the non-saturating loss on logits.

In each step both networks learn once, first the discriminator, then the generator, with z from the prior:

    discriminator    E softplus(-D(T(x))) + E softplus(D(T(G(z)))) + r1/2 E |grad D(T(x))|^2
    generator        E softplus(-D(T(G(z))))

softplus(-a) = -log sigmoid(a), so this is binary cross-entropy with logits. The best discriminator has the loss
2 log 2 - 2 JSD, with the JSD between the laws of x and G(z). T is a differentiable augmentation with the same law on
both sides. The R1 penalty keeps the discriminator flat where the data are; it is taken every few steps and weighted up.
Without these two, this is the paper's baseline.

Real and generated samples go through D separately: D looks at how varied its batch is, and in a joint pass half of the
batch would come from the other side. The generator stays in training mode throughout, so D judges the samples that the
generator's step will change, made with the batch's own normalisation. Running statistics are used for sampling only, as
is the average of the weights, which includes them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from neurosql import networks
from neurosql.generators.base import Generator
from neurosql.methods import discriminators
from neurosql.methods.augmentation import augment
from neurosql.methods.base import Batch, Method, Task, Update
from neurosql.methods.discriminators import Discriminator
from neurosql.prior import Prior
from neurosql.ranks import Part
from neurosql.settings import methods
from neurosql.settings.methods import GANSettings


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """E softplus(-D(x)) + E softplus(D(G(z))) from the logits of real and generated samples."""
    return softplus(-real).mean() + softplus(fake).mean()


def generator_loss(fake: Tensor) -> Tensor:
    """E softplus(-D(G(z))) from the logits of generated samples."""
    return softplus(-fake).mean()


def squared_gradient(logits: Tensor, x: Tensor) -> Tensor:
    """E |grad D(x)|^2 of logits (n,) that were computed from x (n, ...); differentiable in D's weights."""
    (gradient,) = torch.autograd.grad(logits.sum(), x, create_graph=True)
    return gradient.flatten(1).square().sum(1).mean()


class GAN(Method):
    """The generator learns from a discriminator, which is dropped afterwards."""

    record = methods.GAN
    validates = False

    def __init__(self, generator: Generator, discriminator: Discriminator, prior: Prior, settings: GANSettings) -> None:
        super().__init__({"generator": generator, "discriminator": discriminator}, generator.classes)
        self.generator = generator
        self.discriminator = discriminator
        self.prior = prior
        self.settings = settings
        self.steps = 0

    @classmethod
    def build(cls, task: Task) -> GAN:
        generator, settings = task.generator(), task.settings.own
        assert isinstance(settings, GANSettings)
        discriminator = discriminators.make(
            task.shape,
            parameters=networks.count(generator),
            classes=task.classes,
            bounded=task.modality.bounded,
            seed=task.seed,
        )
        return cls(generator, discriminator, task.prior, settings)

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One step of the discriminator, then one of the generator."""
        label = None if self.labels is None else self.labels[batch.index]
        self.generator.train()
        with self.clock("discriminator"):
            with torch.no_grad():
                fake = self._generate(batch.part, label)
            real_logit, penalty = self._judge_real(batch.x, label, batch.part)
            fake_logit = self._judge(fake, label, batch.part)
            discriminators_loss = discriminator_loss(real_logit, fake_logit)
            self.consists_of(
                generated_images=fake, logits_of_real=real_logit, logits_of_generated=fake_logit, r1=penalty
            )
            update("discriminator", discriminators_loss + penalty)
        with self.clock("generator"):
            # The discriminator's weights get no gradient from the generator's loss.
            self.discriminator.requires_grad_(False)
            fake = self._generate(batch.part, label)
            loss = generator_loss(self._judge(fake, label, batch.part))
            self.consists_of(generated_images=fake)
            update("generator", loss)
            self.discriminator.requires_grad_(True)
        self.steps += 1
        return {
            "loss": loss.item(),
            "discriminator_loss": discriminators_loss.item(),
            "real_logit": real_logit.mean().item(),
            "fake_logit": fake_logit.mean().item(),
        }

    def _generate(self, part: Part, label: Tensor | None) -> Tensor:
        """G(z) for draws z of the prior, one for each image of the batch."""
        return self.generator(
            part.of(lambda n: self.prior.sample(n, self.random)).to(next(self.generator.parameters())), label
        )

    def _judge(self, x: Tensor, label: Tensor | None, part: Part) -> Tensor:
        """D(T(x)), (n,)."""
        return self.discriminator(augment(x, self.random, self.settings.augment, part), label)

    def _judge_real(self, x: Tensor, label: Tensor | None, part: Part | None = None) -> tuple[Tensor, Tensor]:
        """D(T(x)) of real samples, and the R1 penalty if this step has one, else 0."""
        every, weight = self.settings.r1_every, self.settings.r1
        x = augment(x, self.random, self.settings.augment, part).detach()
        if not weight or self.steps % every:
            return self.discriminator(x, label), x.new_zeros(())
        x.requires_grad_(True)
        logits = self.discriminator(x, label)
        return logits, every * weight / 2 * squared_gradient(logits, x)

    def draw_usual(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Codes drawn from the prior, with labels drawn as in the training set, or with the given one."""
        codes = self.prior.sample(n, random).to(next(self.generator.parameters()))
        return codes, self.draw_labels(n, label, random)

    def tensors(self) -> dict[str, Tensor]:
        return {"steps": torch.tensor(self.steps)}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.steps = int(tensors["steps"])
