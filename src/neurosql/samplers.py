"""Codes for new samples, drawn from what a fitted model knows of its codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neurosql.cost import Cost
from neurosql.density import Mixture
from neurosql.settings import Sampling
from neurosql.settings.samplers import APART, BETWEEN, GAUSSIAN, LOCAL, MIXTURE, NEAR, TRUNCATED

NEIGHBOURS = 4
"""Nearest codes that a sample may be interpolated to."""
AROUND = 32
"""Nearest codes whose differences say in which directions, and how far, codes vary."""
OTHERS = 7
"""Training images, besides the nearest one, that a sample is compared with."""
REFERENCE = 1024
"""Draws that say which samples are like copies."""
REFERENCE_SEED = 0
MOST_ROUNDS = 100
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
    usual: Callable[[int, torch.Generator], Drawn]
    """Draws m codes in the method's usual way."""
    decode: Callable[[Tensor, Tensor | None], Tensor]
    """The images of codes."""
    cost: Cost
    """The loss between images."""
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
    drawn, labels = known.usual(n, random)
    nearest = known.codes[nearest_codes(known, drawn, labels, 1)[1][:, 0]]
    return nearest + (choice.fraction or 0.0) * (drawn - nearest), labels


def truncated(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """The fraction f of usual draws that is nearest to the training codes, in random order."""
    fraction = 1.0 if choice.fraction is None else choice.fraction
    drawn, labels = known.usual(max(n, round(n / max(fraction, 1e-3))), random)
    distances = nearest_codes(known, drawn, labels, 1)[0][:, 0]
    kept = distances.argsort(stable=True)[:n].to(drawn.device)
    kept = kept[torch.randperm(n, generator=random).to(kept.device)]
    return drawn[kept], None if labels is None else labels[kept]


def between(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """z = Z_i + u (Z_j - Z_i): a point, u uniform in [0, 1], between a training code and one of its neighbours."""
    labels = known.draw_labels(n)
    rows = _training_rows(known, labels, n, random)
    start = known.codes[rows]
    end = known.codes[_neighbours(known, rows, labels, NEIGHBOURS, random)]
    share = torch.rand(n, 1, generator=random, dtype=torch.float64).to(start)
    return start + share * (end - start), labels


def local(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """z = Z_i + f (Z_k - Z_j): a training code, moved as a neighbour Z_j would be to reach a neighbour Z_k of its own.

    Codes thus vary as they do nearby, in whatever directions and however far; no law is fitted to all of them.
    """
    labels = known.draw_labels(n)
    rows = _training_rows(known, labels, n, random)
    first = _neighbours(known, rows, labels, AROUND, random)
    second = _neighbours(known, first, labels, AROUND, random)
    fraction = 1.0 if choice.fraction is None else choice.fraction
    return known.codes[rows] + fraction * (known.codes[second] - known.codes[first]), labels


def _training_rows(known: Known, labels: Tensor | None, n: int, random: torch.Generator) -> Tensor:
    """n training codes at random, of the given classes (n,) if there are any: their rows (n,)."""
    if labels is None or known.labels is None:
        rows = torch.randint(len(known.codes), (n,), generator=random)
    else:
        chances = (labels[:, None] == known.labels).double().cpu()
        rows = torch.multinomial(chances, 1, generator=random)[:, 0]
    return rows.to(known.codes.device)


def _neighbours(known: Known, rows: Tensor, labels: Tensor | None, count: int, random: torch.Generator) -> Tensor:
    """For each of these training codes (n,), one of its `count` nearest others, of the same class: rows (n,)."""
    # The nearest code is the code itself.
    found = nearest_codes(known, known.codes[rows], labels, count + 1)[1]
    choose = torch.randint(min(1, found.shape[1] - 1), found.shape[1], (len(rows), 1), generator=random)
    return found.gather(1, choose.to(found.device))[:, 0]


def apart(known: Known, choice: Sampling, n: int, random: torch.Generator) -> Drawn:
    """Usual draws, without the share 1 - f of them whose images are most like copies of a training image.

    An image is like a copy if it is much nearer to the reconstruction of one training image than to those of the next
    ones. The limit comes from draws of its own, so samples are independent of each other, however many there are.
    """
    fraction = 1.0 if choice.fraction is None else choice.fraction
    remade = known.decode(known.codes, known.labels)
    reference = known.usual(REFERENCE, torch.Generator().manual_seed(REFERENCE_SEED))
    limit = float(novelty(known, remade, *reference).quantile(1 - max(fraction, 1 / REFERENCE)))
    found: list[Tensor] = []
    labels: list[Tensor] = []
    missing = n
    for _ in range(MOST_ROUNDS):
        drawn, classes = known.usual(max(16, round(1.2 * missing / max(fraction, 0.05))), random)
        kept = torch.nonzero(novelty(known, remade, drawn, classes) >= limit).flatten()[:missing]
        found.append(drawn[kept.to(drawn.device)])
        if classes is not None:
            labels.append(classes[kept.to(classes.device)])
        missing -= len(kept)
        if not missing:
            break
    else:
        # A class whose images are all alike: nothing is apart from anything.
        drawn, classes = known.usual(missing, random)
        found.append(drawn)
        labels += [] if classes is None else [classes]
    return torch.cat(found), torch.cat(labels) if labels else None


def novelty(known: Known, remade: Tensor, z: Tensor, labels: Tensor | None) -> Tensor:
    """How new the images of codes z (n, d) are, (n,) in [0, 1] on the CPU: near 0, a copy of one training image.

    It is the loss to the nearest of the reconstructions `remade`, over the mean loss to the next ones.
    """
    chunk = max(1, MEMORY // (4 * len(remade)))
    parts = []
    for i in range(0, len(z), chunk):
        images = known.decode(z[i : i + chunk], None if labels is None else labels[i : i + chunk])
        costs = known.cost.matrix(images, remade)
        nearest = costs.topk(min(1 + OTHERS, len(remade)), largest=False).values.double().cpu()
        parts.append(nearest[:, 0] / nearest[:, min(1, nearest.shape[1] - 1) :].mean(1).clamp(min=1e-12))
    return torch.cat(parts)


def nearest_codes(known: Known, z: Tensor, labels: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """Distances, in float64, and rows (n, count) of the training codes nearest to z (n, d): of its class, if labelled.

    There are fewer columns if there are fewer codes; a class with fewer codes repeats its nearest one.
    """
    chunk = max(1, MEMORY // (8 * len(known.codes)))
    # Apple's devices have no float64.
    place = torch.device("cpu") if z.device.type == "mps" else z.device
    drawn, codes = z.to(place).double(), known.codes.to(place).double()
    parts = []
    for i in range(0, len(z), chunk):
        distances = torch.cdist(drawn[i : i + chunk], codes)
        if labels is not None and known.labels is not None:
            distances[(labels[i : i + chunk, None] != known.labels).to(place)] = torch.inf
        values, rows = distances.topk(min(count, len(known.codes)), largest=False)
        parts.append((values, torch.where(values.isinf(), rows[:, :1], rows)))
    distances, rows = (torch.cat(part) for part in zip(*parts))
    return distances, rows.to(z.device)


SAMPLERS: dict[str, Sampler] = {
    GAUSSIAN.name: mixture,
    MIXTURE.name: mixture,
    NEAR.name: near,
    TRUNCATED.name: truncated,
    BETWEEN.name: between,
    LOCAL.name: local,
    APART.name: apart,
}
