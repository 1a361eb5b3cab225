r"""Components of a mixture lattice: clusters of the images, and where each has its place in the latent space.

A unimodal prior forces the generator to build bridges between kinds of images that have nothing in between. With k
components the law of the codes is a mixture of k normal laws,

    p(z) = sum_j w_j N(z; c_j, s^2 I),

and each component has a sublattice of its own, c_j + s Q, for the images of one cluster. Clusters are found by k-means
on principal scores. Their centres are k quantiles of the prior, matched to the mean images of the clusters as codes are
matched to images at the start, so that like clusters are neighbours. The spread s is a share of the distance between
neighbouring centres, and the whole has the variance of the prior.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits
from torch import Tensor

from neurosql import prior
from neurosql.assign.start import pca_permutation, pca_scores

SCORES = 32
"""Principal scores that the clusters are found by."""
STARTS = 4
APART = 5.0
"""Distance of neighbouring centres in units of the spread: neighbours hardly overlap."""
FEWEST = 8
"""Fewest images per component, on average."""


def clusters(x: Tensor, count: int, random: torch.Generator, seed: int) -> Tensor:
    """The cluster (n,) of each image x (n, ...), numbered from 0 without gaps; fewer than `count` for few images."""
    n = len(x)
    count = min(count, max(1, n // FEWEST))
    if count < 2:
        return torch.zeros(n, dtype=torch.int64)
    scores = pca_scores(x, min(SCORES, n, math.prod(x.shape[1:])), random)
    # More threads would add up in another order each time.
    with threadpool_limits(1):
        found = KMeans(count, n_init=STARTS, random_state=seed % 2**32).fit_predict(scores)
    return torch.from_numpy(np.unique(found, return_inverse=True)[1]).to(torch.int64)


def centres(means: Tensor, weights: Tensor, dim: int, random: torch.Generator, seed: int) -> tuple[Tensor, float]:
    """Places (k, d) of components with these mean images (k, ...) and weights (k,), and their common spread s.

    Places and spread give the mixture a mean of 0 and a mean variance of 1.
    """
    k = len(means)
    if k == 1:
        return torch.zeros(1, dim, dtype=torch.float64), 1.0
    lattice = prior.Normal(dim, "grid" if dim < 4 else "sobol").lattice(k, seed)
    places = lattice[pca_permutation(means, lattice, random)]
    share = (weights / weights.sum()).to(places)[:, None]
    places = places - (share * places).sum(0)
    apart = torch.cdist(places, places).fill_diagonal_(math.inf).amin(1).median()
    spread = float(apart) / APART
    total = math.sqrt(float((share * places.square()).sum() / dim) + spread**2)
    return places / total, spread / total
