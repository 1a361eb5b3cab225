"""Methods without an encoder: they search for the code of an image, starting from the nearest of many known codes."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from neurosql.cost import DEFAULT_MEMORY, Cost
from neurosql.encode import IN_PARTS, STEPS, Law, nearest_code, nearest_in_parts, refine
from neurosql.errors import InputError
from neurosql.generators.base import Generator
from neurosql.methods.base import Method
from neurosql.ranks import here

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
        """Mean loss of images after a few steps from their nearest codes. Ranks share the images, and all call it."""
        if not here().several:
            return float(self.encode(x, label, steps=VALIDATION_STEPS)[2].mean())
        rows = here().part(len(x)).rows
        starts, classes = self.starts()
        known = None if label is None else label[rows]
        # Each rank makes a part of the images of few codes; many are made anew by each, a few at a time.
        decoded = self._decoded(starts, classes) if len(starts) <= IN_PARTS else None
        losses = self._search(x[rows], known, starts, classes, VALIDATION_STEPS, False, decoded)[2]
        return here().sums([float(losses.double().sum())])[0] / len(x)

    def _decoded(self, codes: Tensor, label: Tensor | None) -> Tensor:
        """The images of codes, of which each rank makes a part."""
        rows = here().part(len(codes)).rows
        return here().gather(
            self.decode(codes[rows], None if label is None else label[rows]), here().counts(len(codes))
        )

    def encode(
        self, x: Tensor, label: Tensor | None = None, progress: bool = False, steps: int = STEPS, afresh: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Codes (m, d), labels (m,) and losses (m,) of images (m, ...) that need not have been trained on.

        Without labels, a class-conditional model takes the class of the cheapest code. `afresh` starts from draws, as
        somebody would who has the model, but nothing that it knows of its training images: a model that was shared
        without these can do nothing else.
        """
        starts, classes = self._drawn() if afresh or not len(self.codes) else self.starts()
        return self._search(x, label, starts, classes, steps, progress)

    def _search(
        self,
        x: Tensor,
        label: Tensor | None,
        starts: Tensor,
        classes: Tensor | None,
        steps: int,
        progress: bool,
        decoded: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """`encode` from codes to start from, their labels and, if they are known, the images that they stand for."""
        if classes is None:
            label = None
        elif label is not None and not torch.isin(label, classes).all():
            raise InputError("some of the labels are of classes that the model was not trained on")
        if decoded is None:
            nearest = self._nearest(x, starts, classes, label)
        else:
            nearest = nearest_code(self.cost, x, decoded, label, classes, self.memory)
        if classes is not None and label is None:
            label = classes[nearest]
        codes, losses = refine(self.generator, self.law_of, self.cost, x, starts[nearest], label, steps, progress)
        return codes, label, losses

    def _nearest(self, x: Tensor, starts: Tensor, classes: Tensor | None, label: Tensor | None) -> Tensor:
        """The positions (m,) of the cheapest codes to start from."""
        if len(starts) <= IN_PARTS:
            return nearest_code(self.cost, x, self.decode(starts, classes), label, classes, self.memory)

        def decoded(part: slice) -> Tensor:
            return self.decode(starts[part], None if classes is None else classes[part])

        return nearest_in_parts(self.cost, x, decoded, len(starts), label, classes, self.memory)

    def _drawn(self) -> tuple[Tensor, Tensor | None]:
        """Codes from the method's usual sampler and their labels, the same at each call."""
        return self.draw_usual(DRAWN, None, torch.Generator().manual_seed(0))
