r"""Generative latent optimisation: each training image has a code of its own, learnt by gradient with the generator.

    min over theta and Z of  mean_i l(X_i, G_theta(Z_i))  subject to  |Z_i| <= r sqrt(d)

There is no encoder. The codes start at the images' whitened PCA scores (within each class in the class-conditional
case). In each step the codes of the batch's images take an Adam step of their own, with their own moments, and are
projected back to the ball; all other codes stay where they are. The radius is proportional to sqrt(d), the norm of a
standard normal code, so that coordinates are of size about 1 in any dimension (radius 1 / sqrt(d) is the unit ball).

For sampling, a Gaussian with full covariance is fitted to the codes, one per class in the class-conditional case, and
its draws are decoded. The settings' prior plays no part. A new image gets the nearest training code, refined by
gradient with that Gaussian as its prior.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neurosql.assign.start import standard_scores
from neurosql.cost import Cost
from neurosql.density import Mixture
from neurosql.encode import Law
from neurosql.generators.base import Generator
from neurosql.methods.base import Batch, Task, Update, must_be_finite
from neurosql.methods.moving import CodeSteps
from neurosql.methods.search import Searched
from neurosql.ranks import here
from neurosql.settings import methods
from neurosql.settings.methods import GLOSettings


def project(z: Tensor, radius: float) -> Tensor:
    """The point of the ball of that radius that is nearest to each row of z (n, d)."""
    return z * (radius / z.norm(dim=1, keepdim=True).clamp(min=radius))


class GLO(Searched):
    """A generator and one learnt code for each training image."""

    record = methods.GLO
    together = (*Searched.together, "density.")

    codes: Tensor
    """Z, (n, d)."""
    moving: CodeSteps
    """How the codes move."""
    density: Mixture | None = None
    """The Gaussian of the codes, once fitted."""

    def __init__(self, generator: Generator, cost: Cost, settings: GLOSettings, seed: int) -> None:
        super().__init__({"generator": generator}, generator.classes)
        self.generator, self.cost, self.settings, self.seed = generator, cost, settings, seed
        self.radius = settings.radius * math.sqrt(generator.latent_dim)

    @classmethod
    def build(cls, task: Task) -> GLO:
        return cls(task.generator(), task.cost, task.settings.own, task.seed)

    def start(self) -> None:
        """Place the codes at the whitened PCA scores, inside the ball."""
        n, dim = len(self.x), self.generator.latent_dim
        codes = torch.zeros(n, dim)
        for rows in self._groups():
            if len(rows) > 1:
                codes[rows] = standard_scores(self.cost.seen(self.x[rows.to(self.x.device)]), dim, self.random).float()
        self.codes = project(self.settings.radius * codes, self.radius).to(self.device)
        self.moving = CodeSteps(self.codes)

    def _groups(self) -> list[Tensor]:
        """The training images of each class that has any, or all of them."""
        if self.labels is None:
            return [torch.arange(len(self.x))]
        labels = self.labels.cpu()
        return [torch.nonzero(labels == label).flatten() for label in labels.unique()]

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One step of the generator, and one of the codes of the batch's images, down the same loss."""
        self.density = None
        with self.clock("step"):
            self.generator.train()
            z = self.codes[batch.index].requires_grad_()
            label = batch.label if self.classes else None
            loss = self.cost.paired(batch.x, self.generator(z, label)).mean()
            update("generator", loss)
            assert z.grad is not None
            # The gradient of each image's own loss, however many images there are in the batch.
            whole, rate = batch.part.whole, self.settings.code_rate * self.pace
            counts = here().counts(whole)
            places, gradient = (here().gather(rows, counts) for rows in (z.detach(), z.grad * whole))
            must_be_finite("the gradient of the codes", gradient)
            moved = self.moving.moved(batch.joint, places, gradient, rate)
            self.codes[batch.joint] = project(moved, self.radius)
        return {"loss": loss.item()}

    def end_epoch(self, epoch: int, epochs: int) -> dict[str, float]:
        """The share of the codes that are on the sphere."""
        return {"on_sphere": float((self.codes.norm(dim=1) > self.radius * (1 - 1e-4)).cpu().double().mean())}

    def finish(self) -> None:
        """Fit the Gaussian of the codes."""
        self.density = self._fit()

    def _fit(self) -> Mixture:
        return Mixture.fit(self.codes, self.labels, self.classes, 1, self.seed)

    def starts(self) -> tuple[Tensor, Tensor | None]:
        """The training images' codes."""
        return self.codes, self.labels

    def law_of(self, label: Tensor | None) -> Law:
        """The Gaussian of the codes, or one for each label's class."""
        if self.density is None:
            self.density = self._fit()
        return self.density.of(label)

    def draw_usual(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """n draws from the Gaussian of the codes, which is fitted for this call while training is under way."""
        density = self.density or self._fit()
        labels = self.draw_labels(n, label, random)
        return density.sample(n, labels, random).to(self.codes), labels

    def tensors(self) -> dict[str, Tensor]:
        return {"codes": self.codes} | self.moving.tensors()

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.codes = tensors["codes"].to(self.device)
        self.moving = CodeSteps(self.codes)
        self.moving.load(tensors, self.device)

    def kept(self) -> dict[str, Tensor]:
        kept = super().kept() | ({} if self.labels is None else {"labels": self.labels})
        return kept | (self.density.tensors() if self.density is not None else {})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        if self.classes:
            self.labels = tensors["labels"].to(self.device)
        self.density = Mixture.from_tensors(tensors)
