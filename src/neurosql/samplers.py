"""Codes for new samples, drawn from what a fitted model knows of its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neurosql.density import Mixture
from neurosql.settings import Sampling
from neurosql.settings.samplers import GAUSSIAN, MIXTURE


@dataclass(frozen=True)
class Known:
    """The codes (n, d) of a fitted model and, in the class-conditional case, their labels (n,)."""

    codes: Tensor
    labels: Tensor | None = None
    classes: int | None = None


Sampler = Callable[[Known, Sampling, int, Tensor | None, torch.Generator], Tensor]
"""`sampler(known, choice, n, labels, random)`: n codes (n, d), of the classes `labels` (n,) where there are any."""


def mixture(known: Known, choice: Sampling, n: int, labels: Tensor | None, random: torch.Generator) -> Tensor:
    """From a Gaussian mixture of the codes, for each class of its own; one Gaussian where there are no components."""
    fitted = Mixture.fit(known.codes, known.labels, known.classes, choice.components or 1, seed=0)
    return fitted.sample(n, labels, random)


SAMPLERS: dict[str, Sampler] = {GAUSSIAN.name: mixture, MIXTURE.name: mixture}
