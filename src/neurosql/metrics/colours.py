r"""The colours of samples against those of real images: how much they vary, and which there are.

Scores of whole pictures hardly notice when samples turn grey: most of what tells photographs apart is brightness. Two
descriptions of an image see nothing but its chroma (see colour.py):

- its mean chroma, two numbers; `chroma_spread` says whether samples differ by it as much as real images do;
- a soft histogram of its pixels' chroma; the Frechet distance of these is the score `colour frechet`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neurosql.colour import chroma
from neurosql.metrics.arrays import takes_tensors
from neurosql.metrics.features import Features, chunked
from neurosql.metrics.measure import Measure

NODES = (-0.5, -0.125, 0.0, 0.125, 0.5)
"""Bins of the histogram along each axis of chroma: most pixels are far less colourful than any could be."""


def _mean_chroma(x: Tensor) -> Tensor:
    return chroma(x).mean((2, 3))


def _shares(values: Tensor) -> Tensor:
    """How much of each value (...) belongs to each node: (..., nodes), piecewise linear, 1 in all."""
    nodes = values.new_tensor(NODES)
    right = torch.searchsorted(nodes, values.contiguous()).clamp_(1, len(NODES) - 1)
    upper = ((values - nodes[right - 1]) / (nodes[right] - nodes[right - 1])).clamp_(0, 1)
    shares = values.new_zeros(*values.shape, len(NODES))
    shares.scatter_(-1, right.unsqueeze(-1), upper.unsqueeze(-1))
    return shares.scatter_(-1, right.unsqueeze(-1) - 1, 1 - upper.unsqueeze(-1))


def _histogram(x: Tensor) -> Tensor:
    # In float64, so that the order in which a matrix product adds up is not seen in the result.
    blue, red = _shares(chroma(x).flatten(2).double()).unbind(1)
    return ((blue.mT @ red).flatten(1) / blue.shape[1]).float()


mean_chroma: Features = chunked(_mean_chroma)
"""Images (n, 3, h, w) to their mean Cb and Cr, (n, 2)."""
colour_histogram: Features = chunked(_histogram, 64)
"""Images (n, 3, h, w) to the shares (n, 25) of their pixels at each pair of nodes of Cb and Cr; each row's sum is 1.

A pixel counts for the four pairs around it, the more the nearer, so that a small change of colour is a small change."""

SPACES: dict[str, Features] = {"mean chroma": mean_chroma, "colour histogram": colour_histogram}
"""The descriptions by name, as feature spaces of scores."""


@takes_tensors
def chroma_spread(made: np.ndarray, real: np.ndarray) -> Measure:
    """The smaller over the larger of two spreads, root of tr Cov, of mean chromas made (n, 2) and real (m, 2).

    0 if all samples have one colour, 1 if their colours vary as much as those of real images do. Where they vary more,
    the note says so.
    """
    of_made, of_real = (float(np.sqrt(np.asarray(z, np.float64).var(0, ddof=1).sum())) for z in (made, real))
    if of_made <= of_real:
        return Measure(of_made / of_real if of_real else 1.0)
    return Measure(of_real / of_made, note="samples vary more in colour than real images do")
