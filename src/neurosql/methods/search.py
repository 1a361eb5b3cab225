"""Methods without an encoder: they search for the code of an image, starting from the nearest of many known codes."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from neurosql.cost import DEFAULT_MEMORY, Cost
from neurosql.encode import STEPS, Law, nearest_code, refine
from neurosql.errors import InputError
from neurosql.generators.base import Generator
from neurosql.methods.base import Method

VALIDATION_STEPS = 5
DRAWN = 1024
"""Codes to start from that are drawn, if those of training images are not known or not to be used."""


class Searched(Method):
    """A generator and codes to start from: the cheapest one is refined by gradient."""

    generator: Generator
    cost: Cost
    memory: int = DEFAULT_MEMORY
    """Bytes that cost matrices may use for their temporaries."""

    @abstractmethod
    def starts(self) -> tuple[Tensor, Tensor | None]:
        """Codes (k, d) to start from and, in the class-conditional case, their labels (k,)."""

    @abstractmethod
    def law_of(self, label: Tensor | None) -> Law:
        """The law of codes with these labels (m,), which keeps the search where samples are."""

    def heldout_loss(self, x: Tensor, label: Tensor | None) -> float:
        """Mean loss of images after a few steps from their nearest codes."""
        return float(self.encode(x, label, steps=VALIDATION_STEPS)[2].mean())

    def encode(
        self, x: Tensor, label: Tensor | None = None, progress: bool = False, steps: int = STEPS, afresh: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Codes (m, d), labels (m,) and losses (m,) of images (m, ...) that need not have been trained on.

        Without labels, a class-conditional model takes the class of the cheapest code. `afresh` starts from draws, as
        somebody would who has the model, but nothing that it knows of its training images: a model that was shared
        without these can do nothing else.
        """
        starts, classes = self._drawn() if afresh or not len(self.codes) else self.starts()
        if classes is None:
            label = None
        elif label is not None and not torch.isin(label, classes).all():
            raise InputError("some of the labels are of classes that the model was not trained on")
        nearest = nearest_code(self.cost, x, self.decode(starts, classes), label, classes, self.memory)
        if classes is not None and label is None:
            label = classes[nearest]
        codes, losses = refine(self.generator, self.law_of, self.cost, x, starts[nearest], label, steps, progress)
        return codes, label, losses

    def _drawn(self) -> tuple[Tensor, Tensor | None]:
        """Codes from the method's usual sampler and their labels, the same at each call."""
        return self.draw_usual(DRAWN, None, torch.Generator().manual_seed(0))
