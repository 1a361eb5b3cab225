"""What diffusion and flow matching share: a network as large as the generator, trained at all levels of noise.

Neither has a generator or codes: a sample begins as noise of its own shape and is carried to the data step by step. The
network sees samples in [0, 1] as [-1, 1]; vectors are already standardised and stay as they are.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from neurosql import networks
from neurosql.methods.base import PROBED, USUAL, Batch, Method, Task, Update
from neurosql.methods.denoisers import Denoiser, make, matched, rows_at_once
from neurosql.ranks import Part
from neurosql.settings import Sampling

HELDOUT_DRAWS = 1024
HELDOUT_SEED = 0


class FromNoise(Method):
    """A method that carries noise to the data with one network, the one that `sampling` names."""

    def __init__(self, network: Denoiser, settings: Any, bounded: bool, batch_size: int = 64, target: int = 0) -> None:
        super().__init__({self.sampling[0]: network}, network.classes)
        self.settings, self.bounded, self.batch_size, self.target = settings, bounded, batch_size, target
        self.shape = network.shape

    @classmethod
    def build(cls, task: Task) -> FromNoise:
        target = task.generator_parameters()
        own = task.settings.own
        network = make(matched(task.shape, task.classes, target, own.unet_width), task.seed, cls.sampling[0])
        return cls(network, own, task.modality.bounded, task.settings.training.batch_size, target)

    @abstractmethod
    def losses(self, x: Tensor, label: Tensor | None, random: torch.Generator, part: Part | None = None) -> Tensor:
        """The loss (m,) of samples x (m, ...) in the network's range, each at a random level of noise.

        The samples may be part of a joint batch.
        """

    @abstractmethod
    def carry(self, noise: Tensor, label: Tensor | None, random: torch.Generator, choice: Sampling) -> Tensor:
        """Samples (m, ...) in the network's range from noise of that shape, by the chosen sampler and its steps."""

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        (name,) = self.sampling
        with self.clock(name):
            label = batch.label if self.classes else None
            loss = self.losses(self.to_range(batch.x), label, self.random, batch.part).mean()
            update(name, loss)
        return {"loss": loss.item()}

    @torch.no_grad()
    def heldout_loss(self, x: Tensor, label: Tensor | None) -> float:
        """The training loss on held-out images at the same noise each time, so that only the network can change it.

        There are about a thousand draws, so few images are used several times, in batches of the training size.
        """
        random = torch.Generator().manual_seed(HELDOUT_SEED)
        repeats = max(1, math.ceil(HELDOUT_DRAWS / max(1, len(x))))
        rows = torch.arange(len(x), device=x.device).repeat(repeats)
        x, label = self.to_range(x), label if self.classes else None
        found = [self.losses(x[r], None if label is None else label[r], random) for r in rows.split(self.batch_size)]
        return float(torch.cat(found).mean())

    @torch.no_grad()
    def probe(self) -> tuple[Tensor, ...]:
        """The losses of a few training images, at noise that is the same each time."""
        random = torch.Generator().manual_seed(HELDOUT_SEED)
        label = self.labels[:PROBED] if self.classes and self.labels is not None else None
        return (self.losses(self.to_range(self.x[:PROBED]), label, random),)

    @torch.no_grad()
    def sample(
        self, n: int, label: int | None, random: torch.Generator, sampling: Sampling = USUAL
    ) -> tuple[Tensor, Tensor | None]:
        """n samples carried from noise, in chunks."""
        _, choice = self.record.sampling(sampling)
        labels = self.draw_labels(n, label, random)
        parts = []
        for first in range(0, n, rows := rows_at_once(self.shape)):
            chosen = None if labels is None else labels[first : first + rows]
            noise = self.draw((min(rows, n - first), *self.shape), random)
            parts.append(self.from_range(self.carry(noise, chosen, random, choice)))
        return torch.cat(parts), labels

    def draw(self, shape: tuple[int, ...], random: torch.Generator, part: Part | None = None) -> Tensor:
        """N(0, 1), drawn on the CPU: the same on every device. The rows may be part of a joint batch."""
        part = part or Part.all(shape[0])
        return part.of(lambda n: torch.randn((n, *shape[1:]), generator=random)).to(self.device)

    def to_range(self, x: Tensor) -> Tensor:
        """Samples in the network's range."""
        return 2 * x - 1 if self.bounded else x

    def from_range(self, x: Tensor) -> Tensor:
        """Samples in their own range, from the network's."""
        return (x / 2 + 0.5).clamp(0, 1) if self.bounded else x

    def facts(self) -> dict[str, str]:
        (name,) = self.sampling
        network = self.networks[name]
        assert isinstance(network, Denoiser)
        size = f"{network.kind} of width {network.width}, {networks.count(network):,} parameters"
        return {name: f"{size} (the generator would have {self.target:,})" if self.target else size}


def spread_times(n: int, random: torch.Generator) -> Tensor:
    """n times in [0, 1), each uniform, together evenly spread: the loss is less noisy than with independent draws."""
    return (torch.rand(1, generator=random) + torch.arange(n) / n) % 1


def column(values: Tensor, like: Tensor) -> Tensor:
    """values (n,) shaped to multiply the rows of `like` (n, ...), in its type and on its device."""
    return values.to(like).reshape(-1, *[1] * (like.ndim - 1))
