"""The first permutation pi^(0): random, or an optimal match of PCA scores to the lattice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from neurosql.assign import candidates, refinement, solvers
from neurosql.assign.components import Axes
from neurosql.cost import Cost
from neurosql.pixels import Pixels

FITTED = 8192
"""Images that principal components are fitted to, if not all are in memory."""
PART = 4096
"""Images that are looked at together."""


def random_permutation(n: int, random: torch.Generator) -> Tensor:
    """A uniformly drawn permutation of 0..n-1."""
    return torch.randperm(n, generator=random)


def pca_permutation(
    x: Tensor | Pixels,
    lattice: Tensor,
    random: torch.Generator,
    strategy: str = "dense",
    seen: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """The permutation that matches rank-normalised PCA scores of x (n, ...) to the lattice (n, d), least squares.

    Score j of an image is replaced by the lattice's own j-th coordinate of the same rank, so that scores and lattice
    have equal margins whatever the prior. Dimensions beyond the rank of the data get random scores. The sign of each
    component is fixed by its largest loading, so the match follows the images when they are reordered. With the
    strategies candidates and blocks, and for images that stay bytes, the match is only nearly optimal, without a matrix
    of all pairs. `seen` says what of the images is compared.
    """
    from scipy.stats import rankdata

    n, dim = lattice.shape
    if n < 2:
        return torch.arange(n)
    scores = scores_in_parts(x, dim, random, seen) if isinstance(x, Pixels) else pca_scores(seen(x), dim, random)
    ranks = rankdata(scores, method="ordinal", axis=0).astype(np.int64) - 1
    points = lattice.cpu().to(torch.float64)
    normalised = torch.from_numpy(np.take_along_axis(np.sort(points.numpy(), axis=0), ranks, axis=0))
    if isinstance(x, Pixels):
        # There may be so many that even a few pairs of each would take more memory than they do.
        return torch.from_numpy(refinement.match_points(normalised.float().numpy(), points.float().numpy()))
    cost = Cost.named("l2")
    if strategy == "candidates":
        return candidates.solve(cost, normalised.float(), points.float()).permutation
    if strategy == "blocks":
        return refinement.solve(cost, normalised.float(), points.float()).permutation
    return solvers.solve(cost.matrix(normalised, points)).permutation


def pca_scores(x: Tensor, dim: int, random: torch.Generator) -> np.ndarray:
    """The first `dim` principal scores (n, dim) of x (n, ...), n at least 2; random ones beyond the data's rank."""
    # scikit-learn takes a second to import, and only training needs it.
    from sklearn.decomposition import PCA

    n, flat = len(x), x.flatten(1).cpu().to(torch.float64).numpy()
    components = min(dim, n, flat.shape[1])
    scores = np.empty((n, dim))
    # Of samples that are all alike, the estimator would divide no variance by none.
    with np.errstate(invalid="ignore", divide="ignore"):
        scores[:, :components] = PCA(components, random_state=0).fit_transform(flat)
    scores[:, components:] = torch.randn(n, dim - components, generator=random, dtype=torch.float64).numpy()
    return scores


def scores_in_parts(x: Pixels, dim: int, random: torch.Generator, seen: Callable[[Tensor], Tensor]) -> np.ndarray:
    """`pca_scores` of images that are not in memory: the components are those of some of them, evenly spaced."""
    n = len(x)
    axes = Axes.of(seen(x[torch.linspace(0, n - 1, min(n, FITTED), dtype=torch.float64).round().long()]), dim)
    scores = torch.cat([axes.project(seen(x[slice(i, i + PART)])) for i in range(0, n, PART)]).double()
    if axes.basis is not None:
        largest = axes.basis.abs().argmax(0, keepdim=True)
        scores *= axes.basis.gather(0, largest).sign()
    missing = torch.randn(n, dim - scores.shape[1], generator=random, dtype=torch.float64)
    return torch.cat([scores, missing], 1).numpy()


def standard_scores(x: Tensor, dim: int, random: torch.Generator) -> Tensor:
    """The principal scores (n, dim) of x (n, ...), each with mean 0 and variance 1; constant ones are 0."""
    scores = torch.from_numpy(pca_scores(x, dim, random))
    scores -= scores.mean(0)
    return scores / scores.std(0).clamp(min=1e-9)
