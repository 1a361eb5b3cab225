"""Codes for new samples, drawn from what a fitted model knows of its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neurosql.density import Mixture
from neurosql.settings import Sampling
from neurosql.settings.samplers import BETWEEN, GAUSSIAN, MIXTURE, NEAR, TRUNCATED

NEIGHBOURS = 4
"""Nearest codes that a sample may be interpolated to."""
MEMORY = 64 * 2**20
"""Bytes that distances between draws and codes may take at a time."""

Drawn = tuple[Tensor, Tensor | None]
"""Codes (n, d) and, in the class-conditional case, their labels (n,)."""


@dataclass(frozen=True)
class Known:
    """The codes (n, d) of a fitted model and, in the class-conditional case, their labels (n,)."""

    codes: Tensor
    labels: Tensor | None
    classes: int | None
    usual: Callable[[int], Drawn]
    """Draws m codes in the method's usual way."""
    draw_labels: Callable[[int], Tensor | None]
    """Draws m labels, in the class-conditional case."""


Sampler = Callable[[Known, Sampling, int, torch.Generator], Drawn]
"""`sampler(known, choice, n, random)`: n codes and their labels."""


def mixture(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """Draw from a Gaussian mixture of the codes, one per class; without components, from one Gaussian."""
    labels = known.draw_labels(n)
    fitted = Mixture.fit(known.codes, known.labels, known.classes, choice.components or 1, seed=0)
    return fitted.sample(n, labels, random).to(known.codes), labels


def near(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """z = Z_i + f (q - Z_i): usual draws q, of which only the fraction f of the way from the nearest code is left."""
    drawn, labels = known.usual(n)
    nearest = known.codes[nearest_codes(known, drawn, labels, 1)[1][:, 0]]
    return nearest + (choice.fraction or 0.0) * (drawn - nearest), labels


def truncated(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """The fraction f of usual draws that is nearest to the training codes, in random order."""
    fraction = 1.0 if choice.fraction is None else choice.fraction
    drawn, labels = known.usual(max(n, round(n / max(fraction, 1e-3))))
    distances = nearest_codes(known, drawn, labels, 1)[0][:, 0]
    kept = distances.argsort(stable=True)[:n]
    kept = kept[torch.randperm(n, generator=random).to(kept.device)]
    return drawn[kept], None if labels is None else labels[kept]


def between(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """z = Z_i + u (Z_j - Z_i): a point, u uniform in [0, 1], between a training code and one of its neighbours."""
    labels = known.draw_labels(n)
    if labels is None or known.labels is None:
        rows = torch.randint(len(known.codes), (n,), generator=random).to(known.codes.device)
    else:
        chances = (labels[:, None] == known.labels).double().cpu()
        rows = torch.multinomial(chances, 1, generator=random)[:, 0].to(known.codes.device)
    start = known.codes[rows]
    # The nearest code is the code itself.
    found = nearest_codes(known, start, labels, NEIGHBOURS + 1)[1]
    choose = torch.randint(min(1, found.shape[1] - 1), found.shape[1], (n, 1), generator=random).to(found.device)
    end = known.codes[found.gather(1, choose)[:, 0]]
    share = torch.rand(n, 1, generator=random, dtype=torch.float64).to(start)
    return start + share * (end - start), labels


def nearest_codes(known: Known, z: Tensor, labels: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """Distances and rows (n, count) of the training codes nearest to z (n, d), those of the same class if labelled.

    There are fewer columns if there are fewer codes; a class with fewer codes repeats its nearest one.
    """
    chunk = max(1, MEMORY // (8 * len(known.codes)))
    parts = []
    for i in range(0, len(z), chunk):
        distances = torch.cdist(z[i : i + chunk].double(), known.codes.double())
        if labels is not None and known.labels is not None:
            distances[labels[i : i + chunk, None] != known.labels] = torch.inf
        values, rows = distances.topk(min(count, len(known.codes)), largest=False)
        parts.append((values, torch.where(values.isinf(), rows[:, :1], rows)))
    distances, rows = (torch.cat(part) for part in zip(*parts))
    return distances, rows


SAMPLERS: dict[str, Sampler] = {
    GAUSSIAN.name: mixture,
    MIXTURE.name: mixture,
    NEAR.name: near,
    TRUNCATED.name: truncated,
    BETWEEN.name: between,
}
