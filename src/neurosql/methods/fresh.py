"""Fresh samples in the loss: the generator also learns between its codes.

Codes are drawn from the law that is sampled, and the images that the generator makes of them are compared with the
training images as two sets (see sliced.py). If the law is a mixture, each component and each class gets its share of
the draws, up to rounding: chance would only add noise to the comparison.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from neurosql.density import Mixture
from neurosql.generators.base import Generator
from neurosql.ranks import here
from neurosql.sliced import SlicedDistance


class FreshSamples:
    """A loss on `batch` fresh samples, against the training images x (n, ...)."""

    def __init__(self, x: Tensor, batch: int, seed: int) -> None:
        self.batch = batch
        self.distance = SlicedDistance(x, batch, seed)

    def loss(
        self,
        generator: Generator,
        draw: Callable[[int], tuple[Tensor, Tensor | None]],
        at_once: int,
        random: torch.Generator,
    ) -> Tensor:
        """The distance of fresh samples to the training images; `draw(m)` gives m codes and their labels, if any.

        Ranks share the samples: all draw the same codes, and each decodes its part of them. `at_once` is the size of
        the joint batch.
        """
        codes, classes = draw(self.batch)
        # In parts of about a batch, which stay in the cache: twice as many at once take almost three times as long.
        parts = max(1, len(codes) // at_once)
        labels = [None] * parts if classes is None else classes.tensor_split(parts)
        made, counts = [], []
        for z, y in zip(codes.tensor_split(parts), labels):
            rows = here().part(len(z)).rows
            made.append(generator(z[rows], None if y is None else y[rows]))
            counts.append(here().counts(len(z)))
        return self.distance(torch.cat(made), random, [sum(of_rank) for of_rank in zip(*counts)])


def even_draws(
    law: Mixture, class_counts: Tensor | None, n: int, random: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """n draws (n, d) from a mixture, with each class and component as often as expected, up to rounding.

    The draws come in random order. With classes, of the sizes `class_counts` (c,), their labels (n,) come too.
    """
    shares = law.weights
    if class_counts is not None:
        shares = shares * (class_counts.double() / class_counts.sum())[:, None]
    flat = shares.flatten()
    # One random offset for all: the number of draws of each differs from its expectation by less than 1.
    offset = torch.rand(1, generator=random, dtype=torch.float64)
    places = (torch.arange(n, dtype=torch.float64) + offset) / n
    last = int(torch.nonzero(flat > 0)[-1])
    chosen = torch.searchsorted(flat.cumsum(0), places * flat.sum(), right=True).clamp(max=last)
    chosen = chosen[torch.randperm(n, generator=random)]
    group, component = chosen // shares.shape[1], chosen % shares.shape[1]
    return law.draw(group, component, random), None if class_counts is None else group
