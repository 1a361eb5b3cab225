"""Samples that are the same, or nearly: by their pixels, and by a perceptual hash."""

from __future__ import annotations

import hashlib

import numpy as np
from PIL import Image
from scipy.fft import dctn
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from neurosql.data.imageset import ImageSet
from neurosql.errors import InputError

SIDE = 32
LOW = 16
BLOCK = 2048
NEAR = 28
"""Of 255 bits, those in which the hashes of near duplicates differ at most: enough for a picture that was saved again,
and for the neighbouring slices of a brain, but not for the same slice of two brains."""


def digests(images: ImageSet) -> list[bytes]:
    """A digest of each sample's pixels."""
    return [hashlib.blake2b(np.ascontiguousarray(sample).data, digest_size=16).digest() for sample in images.pixels]


def hashes(images: ImageSet) -> np.ndarray:
    """Perceptual hashes (n, 255) of +-1: low frequencies of the grey picture, above or below their median."""
    if images.kind != "image":
        raise InputError(f"near duplicates are found among images, the data are {images.kind}s")
    found = np.empty((len(images), LOW * LOW - 1), np.float32)
    for i, sample in enumerate(images.pixels):
        grey = np.ascontiguousarray(sample.astype(np.float32).mean(0))
        small = np.asarray(Image.fromarray(grey).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        low = dctn(small, norm="ortho")[:LOW, :LOW].reshape(-1)[1:]
        found[i] = np.where(low > np.median(low), 1, -1)
    return found


def near(codes: np.ndarray, most: int = NEAR) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (i < j) of hashes that differ in at most so many bits."""
    rows, columns = [np.arange(0)], [np.arange(0)]
    for i in range(0, len(codes), BLOCK):
        for j in range(i, len(codes), BLOCK):
            # The product of two hashes is the number of bits that agree less those that differ.
            left, right = np.nonzero(codes[i : i + BLOCK] @ codes[j : j + BLOCK].T >= codes.shape[1] - 2 * most)
            left, right = left + i, right + j
            rows.append(left[left < right])
            columns.append(right[left < right])
    return np.concatenate(rows), np.concatenate(columns)


def groups(images: ImageSet, most: int = NEAR) -> np.ndarray:
    """A group for each sample (n,): lookalikes, and lookalikes of lookalikes, are in one. Known subjects hold too."""
    n = len(images)
    left, right = near(hashes(images), most)
    if images.subjects is not None:
        _, of = np.unique(images.subjects, return_inverse=True)
        order = np.argsort(of, kind="stable")
        same = of[order][1:] == of[order][:-1]
        left, right = np.concatenate([left, order[:-1][same]]), np.concatenate([right, order[1:][same]])
    graph = coo_array((np.ones(len(left), bool), (left, right)), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)
