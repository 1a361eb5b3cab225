"""The score of copies: how many samples, and reconstructions, are suspiciously close to a training image."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurosql.metrics.context import Context
from neurosql.metrics.measure import Measure
from neurosql.metrics.memorisation import EXPECTED, Memorisation, memorisation

RECONSTRUCTED = 500
"""Judge at most this many reconstructions."""


def suspiciously_close(context: Context) -> dict[str, Any]:
    """The share of samples, and of reconstructions if there are codes, below the threshold of `memorisation`."""
    if context.unseen is None:
        return {}
    found = _judged(context, context.samples)
    context.result.memorisation = found
    shares = {"sampled": _share(found, found.verdict)}
    if context.run.has_codes:
        some = np.random.default_rng(context.options.seed).permutation(len(context.train))[:RECONSTRUCTED]
        again = _judged(context, context.reconstructions[some])
        shares["paired-train"] = _share(again, "reconstructions: what the codes give away")
    return {"suspiciously close": shares}


def _judged(context: Context, images: np.ndarray) -> Memorisation:
    assert context.heldout is not None
    return memorisation(context.cost, images, context.train.x, context.heldout.x, context.train.subjects)


def _share(found: Memorisation, note: str) -> Measure:
    n = len(found.distances)
    return Measure(found.share, found.interval, floor=EXPECTED, n=n, n_real=found.heldout, note=note)
