"""The first permutation pi^(0): random, or an optimal match of PCA scores to the lattice."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.decomposition import PCA
from torch import Tensor

from neurosql.assign import candidates, solvers
from neurosql.cost import Cost


def random_permutation(n: int, random: torch.Generator) -> Tensor:
    """A uniformly drawn permutation of 0..n-1."""
    return torch.randperm(n, generator=random)


def pca_permutation(x: Tensor, lattice: Tensor, random: torch.Generator, by_candidates: bool = False) -> Tensor:
    """The permutation that matches rank-normalised PCA scores of x (n, ...) to the lattice (n, d), least squares.

    Score j of an image is replaced by the lattice's own j-th coordinate of the same rank, so that scores and lattice
    have equal margins whatever the prior. Dimensions beyond the rank of the data get random scores. The sign of each
    component is fixed by its largest loading, so the match follows the images when they are reordered. Where
    `by_candidates`, the match is only nearly optimal, without a matrix of all pairs.
    """
    n, dim = lattice.shape
    if n < 2:
        return torch.arange(n)
    scores = pca_scores(x, dim, random)
    ranks = rankdata(scores, method="ordinal", axis=0).astype(np.int64) - 1
    points = lattice.cpu().to(torch.float64)
    normalised = torch.from_numpy(np.take_along_axis(np.sort(points.numpy(), axis=0), ranks, axis=0))
    if by_candidates:
        return candidates.solve(Cost.named("l2"), normalised.float(), points.float()).permutation
    return solvers.solve(Cost.named("l2").matrix(normalised, points)).permutation


def pca_scores(x: Tensor, dim: int, random: torch.Generator) -> np.ndarray:
    """The first `dim` principal scores (n, dim) of x (n, ...), n at least 2; random ones beyond the data's rank."""
    n, flat = len(x), x.flatten(1).cpu().to(torch.float64).numpy()
    components = min(dim, n, flat.shape[1])
    scores = np.empty((n, dim))
    # Of samples that are all alike, the estimator would divide no variance by none.
    with np.errstate(invalid="ignore"):
        scores[:, :components] = PCA(components, random_state=0).fit_transform(flat)
    scores[:, components:] = torch.randn(n, dim - components, generator=random, dtype=torch.float64).numpy()
    return scores


def standard_scores(x: Tensor, dim: int, random: torch.Generator) -> Tensor:
    """The principal scores (n, dim) of x (n, ...), each with mean 0 and variance 1; constant ones are 0."""
    scores = torch.from_numpy(pca_scores(x, dim, random))
    scores -= scores.mean(0)
    return scores / scores.std(0).clamp(min=1e-9)
