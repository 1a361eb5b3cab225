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
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from scipy.special import logsumexp
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
COUNTS = (1, 2, 3, 5, 7, 10, 15, 20, 30)
"""Numbers of components that `choose` compares."""
PLENTY = 80
"""Fewest images per component, on average, where the number is chosen."""
HELD_OUT = 0.2


def clusters(x: Tensor, count: int, random: torch.Generator, seed: int) -> Tensor:
    """The cluster (n,) of each image x (n, ...), numbered from 0 without gaps; fewer than `count` for few images."""
    n = len(x)
    count = min(count, max(1, n // FEWEST))
    if count < 2:
        return torch.zeros(n, dtype=torch.int64)
    scores = pca_scores(x, min(SCORES, n, math.prod(x.shape[1:])), random)
    # More threads would add up in another order each time.
    from sklearn.cluster import KMeans

    with threadpool_limits(1), _equal_images_expected():
        found = KMeans(count, n_init=STARTS, random_state=seed % 2**32).fit_predict(scores)
    return torch.from_numpy(np.unique(found, return_inverse=True)[1]).to(torch.int64)


def choose(x: Tensor, random: torch.Generator, seed: int) -> int:
    """How many components images x (n, ...) should have: as few as describe held-out images nearly as well as the best.

    A mixture of spherical normal laws, with the clusters' centres and one common variance, is fitted to the principal
    scores of 80 % of the images. The number chosen is the smallest one whose log likelihood on the others is within one
    standard error of the highest.
    """
    n = len(x)
    counts = [count for count in COUNTS if count == 1 or n * (1 - HELD_OUT) >= PLENTY * count]
    if len(counts) == 1:
        return 1
    scores = pca_scores(x, min(SCORES, n, math.prod(x.shape[1:])), random)
    order = torch.randperm(n, generator=random).numpy()
    held, rest = scores[order[: int(HELD_OUT * n)]], scores[order[int(HELD_OUT * n) :]]
    found = np.array([_log_likelihood(rest, held, count, seed) for count in counts])
    best = found.mean(1).argmax()
    error = (found[best] - found).std(1) / math.sqrt(len(held))
    return counts[int(np.flatnonzero(found.mean(1) >= found[best].mean() - error)[0])]


@contextmanager
def _equal_images_expected() -> Iterator[None]:
    """Equal images make fewer clusters than were asked for: scikit-learn warns of it, and nobody minds."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        yield


def _log_likelihood(rest: np.ndarray, held: np.ndarray, count: int, seed: int) -> np.ndarray:
    """log p of each held-out point under a spherical mixture that is fitted to the rest."""
    from sklearn.cluster import KMeans

    with threadpool_limits(1), _equal_images_expected():
        fitted = KMeans(count, n_init=1, random_state=seed % 2**32).fit(rest)
    dim = rest.shape[1]
    variance = max(fitted.inertia_ / rest.size, 1e-12)
    share = np.bincount(fitted.labels_, minlength=count) / len(rest)
    squares = np.square(held[:, None] - fitted.cluster_centers_).sum(-1)
    with np.errstate(divide="ignore"):
        each = np.log(share) - squares / (2 * variance)
    return np.asarray(logsumexp(each, axis=1) - dim / 2 * math.log(2 * math.pi * variance))


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
