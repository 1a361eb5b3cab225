r"""The latent dimension that `auto` stands for: no more than the data have, and no more than their number can fill.

n codes in d dimensions have about n^(1/d) places on each axis. The fewer these are, the farther apart are the codes,
and the more samples come from between them, where the generator was not trained. With 2 or more, n samples allow

    d_n = floor(log2 n),

and no more is needed than the data's own dimension m. Its maximum likelihood estimate is that of Levina and Bickel
(2004): with T_j(x) the distance from x to its j-th nearest neighbour,

    1 / m_k = 1 / (n (k - 1)) sum_i sum_{j < k} ln(T_k(x_i) / T_j(x_i)),

and m is the mean of m_k over k = 10..20. It is inverse estimates that are averaged over the samples, as MacKay and
Ghahramani (2005) suggest: around a uniform point the mean of the logarithms is 1 / m, without bias.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from neurosql.cost import Cost
from neurosql.modality import of_shape
from neurosql.prior import Prior
from neurosql.settings import METHODS, Settings
from neurosql.settings.sections import AUTO

PER_AXIS = 2
"""Codes that each axis of the latent space should have."""
LEAST = 2
"""The smallest dimension that is chosen, but for vectors of one column."""
NEIGHBOURS = range(10, 21)
"""The numbers k of neighbours that the estimate is averaged over."""
FEW = 25
"""Distinct samples that an estimate needs."""
MOST, SOME = 2000, 500
"""Samples that an estimate looks at, however many there are, and however large they are."""

# Values of all samples that an estimate looks at, together.
_VALUES = 2**24
# Values of each sample that are compared at a time.
_TOGETHER = 4096
# Samples nearer than this, in units of their mean distance, are copies: rounding alone makes distances of 1e-8.
_COPY = 1e-6


def affordable(n: int) -> int:
    """d_n: the largest dimension in which n codes have 2 values on each axis."""
    return int(math.log2(max(1, n)) / math.log2(PER_AXIS))


@torch.no_grad()
def intrinsic(x: Tensor) -> float | None:
    """The dimension of the set that points x (n, ...) lie on, at most their number of values; None for too few points.

    Copies of a point count once. All pairs are compared: n should be a few thousand at most.
    """
    squares = _squared_distances(x.flatten(1).cpu())
    copies = squares <= _COPY**2 * squares.mean()
    kept = ~copies.tril(-1).any(1)
    squares = squares[kept][:, kept]
    if len(squares) < FEW:
        return None
    # Each point is its own nearest neighbour.
    logs = squares.topk(NEIGHBOURS[-1] + 1, largest=False).values[:, 1:].log() / 2
    # Points at equal distances from each other would have infinitely many dimensions.
    least = 1 / math.prod(x.shape[1:])
    inverses = [float((logs[:, k - 1 : k] - logs[:, : k - 1]).mean()) for k in NEIGHBOURS]
    return sum(1 / max(inverse, least) for inverse in inverses) / len(inverses)


def choose(x: Tensor, cost: Cost) -> tuple[int, str]:
    """The latent dimension for training samples x (n, ...), and a sentence that says why."""
    kind, values = of_shape(x.shape[1:]), math.prod(x.shape[1:])
    most, own = affordable(len(x)), intrinsic(cost.seen(_some(x)))
    wanted = most if own is None else min(most, round(own))
    dim = min(values, max(LEAST, wanted))
    chosen = f"latent dimension {dim}" + (", the least that is chosen" if dim > wanted else "")
    if dim < wanted:
        return dim, f"{chosen}: one {kind.name} has no more values"
    many = f"{len(x):,} {kind.plural}"
    if own is not None and wanted < most:
        return dim, f"{chosen}: the data have about {own:.0f}; {many} would allow {most}"
    about = "they are too few to tell how many the data have" if own is None else f"the data have about {own:.0f}"
    return dim, f"{chosen}: about {PER_AXIS} codes per axis for {many}; {about}"


def resolved(settings: Settings, x: Tensor, law: Prior | None = None) -> tuple[Settings, list[str]]:
    """The settings with a number as their latent dimension, and notes for the user.

    x (n, ...) are the training samples, and `law` is a prior of the caller's own. A method without a latent dimension
    gets the number too, because its networks are made as large as the generator; there is nothing to note then.
    """
    if settings.generator.latent_dim != AUTO:
        return settings, []
    if law is not None:
        dim, note = law.dim, f"latent dimension {law.dim}: that of the prior"
    else:
        dim, note = choose(x, Cost.named(settings.latent.cost))
    chosen = dataclasses.replace(settings.generator, latent_dim=dim)
    return dataclasses.replace(settings, generator=chosen), [note] if METHODS[settings.method].latent else []


def _some(x: Tensor) -> Tensor:
    """At most 2,000 samples of x (n, ...), evenly spaced; fewer if they are so large that comparing them takes long."""
    count = min(MOST, max(SOME, _VALUES // max(1, math.prod(x.shape[1:]))))
    if len(x) <= count:
        return x
    return x[torch.linspace(0, len(x) - 1, count, dtype=torch.float64).round().long().to(x.device)]


def _squared_distances(flat: Tensor) -> Tensor:
    """|x_i - x_j|^2 of points (n, p): (n, n) float64, exactly 0 on the diagonal."""
    result = torch.zeros(len(flat), len(flat), dtype=torch.float64)
    for part in flat.split(_TOGETHER, 1):
        # Centred, because |x|^2 + |y|^2 - 2 <x, y> loses digits where the norms are large.
        exact = part.cpu().double()
        centred = exact - exact.mean(0)
        norms = centred.square().sum(1)
        result += norms[:, None] + norms - 2 * centred @ centred.T
    return result.clamp_(min=0).fill_diagonal_(0)
