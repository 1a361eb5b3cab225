"""The latent plane in numbers: what the codes keep of classes and neighbourhoods, and of the prior."""

from __future__ import annotations

import numpy as np
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

NEAREST = 10
MOST = 2000


def knn_purity(codes: np.ndarray, labels: np.ndarray, k: int = NEAREST) -> np.ndarray:
    """For each code (n, d) the share of its k nearest others with the same label, (n,)."""
    k = min(k, len(codes) - 1)
    found = NearestNeighbors(n_neighbors=k + 1).fit(codes).kneighbors(codes, return_distance=False)
    # Of equal codes any may come first, so the code itself is taken out by its number, not by its place.
    same = labels[found] == labels[:, None]
    itself = found == np.arange(len(codes))[:, None]
    missing = ~itself.any(1)
    return (same.sum(1) - itself.any(1) - (missing & same[:, -1])) / k


def silhouette(codes: np.ndarray, labels: np.ndarray, seed: int = 0) -> float:
    """Mean silhouette of the classes in the space of codes, on at most 2,000 of them; -1 to 1."""
    some = np.random.default_rng(seed).permutation(len(codes))[:MOST]
    return float(silhouette_score(codes[some], labels[some]))


def neighbourhood_trust(x: np.ndarray, codes: np.ndarray, k: int = NEAREST, seed: int = 0) -> float:
    """Trustworthiness of the codes as a map of the images, on at most 2,000 of them; 0 to 1."""
    some = np.random.default_rng(seed).permutation(len(codes))[:MOST]
    k = max(1, min(k, len(some) // 2 - 1))
    return float(trustworthiness(x[some].reshape(len(some), -1), codes[some], n_neighbors=k))


def share_in_use(codes: np.ndarray) -> float:
    """Distinct codes over all codes: 1 when no two images share one."""
    return len(np.unique(codes, axis=0)) / len(codes)


def drift(codes: np.ndarray, prior_draws: np.ndarray) -> float:
    """Variance of the codes over variance of draws from the law that is sampled: 1 when they agree."""
    return float(codes.var(0).sum() / prior_draws.var(0).sum())
