"""Duplicates, found by their pixels, and near duplicates, found by the correlation of their thumbnails."""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image

from neurosql.data.imageset import ImageSet
from neurosql.errors import InputError

SIDE = 32
BLOCK = 2048
NEAR = 0.99
"""Least correlation of near duplicates. A picture that was saved again reaches it, and so do neighbouring slices of a
brain; the same slice of two brains does not."""


def digests(images: ImageSet) -> list[bytes]:
    """A digest of each sample's pixels."""
    return [hashlib.blake2b(np.ascontiguousarray(sample).data, digest_size=16).digest() for sample in images.pixels]


def thumbnails(images: ImageSet) -> np.ndarray:
    """Grey pictures of 32 x 32, each of mean 0 and length 1: (n, 1024). Their products are correlations."""
    if not images.modality.is_picture:
        raise InputError(f"near duplicates can only be found among images, but the data are {images.modality.plural}")
    found = np.empty((len(images), SIDE * SIDE), np.float32)
    for i, sample in enumerate(images.pixels):
        grey = np.ascontiguousarray(sample.astype(np.float32).mean(0))
        found[i] = np.asarray(Image.fromarray(grey).resize((SIDE, SIDE), Image.Resampling.BILINEAR)).reshape(-1)
    found -= found.mean(1, keepdims=True)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-6)


def near(small: np.ndarray, least: float = NEAR) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (i < j) of thumbnails whose correlation is at least `least`."""
    rows, columns = [np.arange(0)], [np.arange(0)]
    for i in range(0, len(small), BLOCK):
        for j in range(i, len(small), BLOCK):
            left, right = np.nonzero(small[i : i + BLOCK] @ small[j : j + BLOCK].T >= least)
            left, right = left + i, right + j
            rows.append(left[left < right])
            columns.append(right[left < right])
    return np.concatenate(rows), np.concatenate(columns)


def groups(images: ImageSet, least: float = NEAR) -> np.ndarray:
    """The group of each sample (n,). Chains of near duplicates share a group, and so do samples of one subject."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(images)
    left, right = near(thumbnails(images), least)
    if images.subjects is not None:
        _, of = np.unique(images.subjects, return_inverse=True)
        order = np.argsort(of, kind="stable")
        same = of[order][1:] == of[order][:-1]
        left, right = np.concatenate([left, order[:-1][same]]), np.concatenate([right, order[1:][same]])
    graph = coo_array((np.ones(len(left), bool), (left, right)), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)
