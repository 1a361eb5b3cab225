"""The latent space in numbers: how well the codes keep classes and neighbourhoods, and how well they fit the prior."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from neurosql.metrics.arrays import takes_tensors
from neurosql.metrics.context import Context
from neurosql.metrics.measure import Measure
from neurosql.metrics.records import ScoreRecord
from neurosql.metrics.statistics import mean_interval

NEAREST = 10
MOST = 2000
FEWEST = 4
"""Fewer codes have no neighbourhoods."""
DRAWN = 1000
"""Draw at least this many codes from the law that is sampled."""


def measure(context: Context, records: list[ScoreRecord]) -> None:
    """Add the scores of the training images' codes; those that need labels only if there are several classes."""
    if not context.run.has_codes or not records:
        return
    codes, labels = context.run.method.codes.cpu().numpy(), context.train.labels
    n = len(codes)
    offered: dict[str, Any] = {"codes": codes, "images": context.train.x}
    if any("drawn" in record.arguments for record in records):
        random = torch.Generator().manual_seed(context.options.seed)
        offered["drawn"] = (
            context.run.method.draw_codes(max(n, DRAWN), None, random, context.options.sampling)[0].cpu().numpy()
        )
    if labels is not None and len(np.unique(labels)) > 1:
        offered["labels"] = labels
    else:
        records = [record for record in records if "labels" not in record.arguments]
    if n < FEWEST:
        context.leave_out(f"scores of codes need at least {FEWEST} training samples")
        return
    found = context.call(records, offered)
    for record in records:
        if record.name in found:
            context.add(record, Measure.of(found[record.name]), record.modes[0], n)


@takes_tensors
def purity(codes: np.ndarray, labels: np.ndarray) -> Measure:
    """Mean share of the nearest others with the same label; the floor is what random labels give."""
    shares = knn_purity(codes, labels)
    classes = np.bincount(labels) / len(codes)
    return Measure(shares.mean(), mean_interval(shares), floor=float(classes @ classes))


@takes_tensors
def knn_purity(codes: np.ndarray, labels: np.ndarray, k: int = NEAREST) -> np.ndarray:
    """The share of the k nearest others of each code (n, d) that have the same label, (n,)."""
    k = min(k, len(codes) - 1)
    found = NearestNeighbors(n_neighbors=k + 1).fit(codes).kneighbors(codes, return_distance=False)
    # Equal codes may come in any order, so the code itself is taken out by its number, not by its position.
    same = labels[found] == labels[:, None]
    itself = found == np.arange(len(codes))[:, None]
    missing = ~itself.any(1)
    return (same.sum(1) - itself.any(1) - (missing & same[:, -1])) / k


@takes_tensors
def silhouette(codes: np.ndarray, labels: np.ndarray, seed: int = 0) -> float:
    """Mean silhouette of the classes in the space of codes, on at most 2,000 of them; -1 to 1."""
    some = np.random.default_rng(seed).permutation(len(codes))[:MOST]
    return float(silhouette_score(codes[some], labels[some]))


@takes_tensors
def neighbourhood_trust(x: np.ndarray, codes: np.ndarray, k: int = NEAREST, seed: int = 0) -> float:
    """Trustworthiness of the codes as a map of the images, on at most 2,000 of them; 0 to 1."""
    some = np.random.default_rng(seed).permutation(len(codes))[:MOST]
    k = max(1, min(k, len(some) // 2 - 1))
    return float(trustworthiness(x[some].reshape(len(some), -1), codes[some], n_neighbors=k))


@takes_tensors
def share_in_use(codes: np.ndarray) -> float:
    """Distinct codes over all codes: 1 when no two images share one."""
    return len(np.unique(codes, axis=0)) / len(codes)


@takes_tensors
def drift(codes: np.ndarray, prior_draws: np.ndarray) -> float:
    """Variance of the codes over variance of draws from the law that is sampled: 1 when they agree."""
    return float(codes.var(0).sum() / prior_draws.var(0).sum())
