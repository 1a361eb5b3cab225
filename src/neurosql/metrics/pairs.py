"""Scores of pairs of images: samples with real images, and reconstructions with their originals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from neurosql.metrics.arrays import takes_tensors
from neurosql.metrics.context import Context
from neurosql.metrics.measure import Measure, with_floor
from neurosql.metrics.records import SSIM_OF_ALL, ScoreRecord
from neurosql.metrics.score import Score
from neurosql.metrics.statistics import mean_interval
from neurosql.registry import imported

CHUNK = 256


def measure(context: Context, records: list[ScoreRecord]) -> None:
    """Add the scores, all on the same pairs, in every mode that the model and the record have."""
    if not records:
        return
    of_all = [record for record in records if record.every]
    some = context.available(record for record in records if not record.every)
    against = context.train if context.heldout is None else context.heldout
    count = min(context.options.image_pairs, len(against), len(context.samples))
    first, second = random_pairs(len(against), count, context.options.seed)
    floors: dict[str, Measure] = {}
    if len(against) > 1:
        floors = _compare(context, some, against.x[first], against.x[second])
    _add(context, some, "sampled", context.samples[:count], against.x[first], floors)
    if not context.run.has_codes:
        return
    train = context.train.x
    chosen = context.random.permutation(len(train))[: context.options.image_pairs]
    again = context.reconstructions
    _add(context, some, "paired-train", again[chosen], train[chosen], floors)
    for record in of_all:
        context.add(record, _of_all(record, train, again), "paired-train", len(train), seed=0)
    if context.heldout is not None and len(context.heldout) > 1:
        held = context.heldout.x[context.random.permutation(len(context.heldout))[: context.options.image_pairs]]
        codes, labels, _ = context.run.encode(held)
        _add(context, some, "paired-heldout", context.run.decode(codes, labels), held, floors)


def _add(
    context: Context,
    records: list[ScoreRecord],
    mode: str,
    made: np.ndarray,
    real: np.ndarray,
    floors: Mapping[str, Measure],
) -> None:
    some = [record for record in records if mode in record.modes]
    found = _compare(context, some, made, real)
    for record in some:
        if record.name in found:
            context.add(record, with_floor(found[record.name], floors.get(record.name)), mode, len(made))


def _compare(context: Context, records: list[ScoreRecord], made: np.ndarray, real: np.ndarray) -> dict[str, Measure]:
    x, y = (torch.from_numpy(np.ascontiguousarray(z)) for z in (made, real))
    return {name: Measure.of(value) for name, value in context.call(records, {"made": x, "real": y}).items()}


def _of_all(record: ScoreRecord, x: np.ndarray, again: np.ndarray) -> Measure:
    """The mean over all images, a few at a time."""
    function = imported(record.function)
    parts = (torch.from_numpy(images).split(CHUNK) for images in (x, again))
    values = torch.cat([function(a, b) for a, b in zip(*parts)]).numpy()
    return Measure(float(values.mean()), mean_interval(values))


@takes_tensors
def reconstruction_score(x: np.ndarray, again: np.ndarray) -> Score:
    """Mean SSIM between all training images (n, *shape) and their reconstructions."""
    record = SSIM_OF_ALL
    found = _of_all(record, x, again)
    return Score(record.name, found.value, "paired-train", record.direction, len(x), interval=found.interval)


def random_pairs(n: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` pairs of two different numbers below n; no number comes first twice before all have come first once."""
    random = np.random.default_rng(seed)
    first = np.concatenate([random.permutation(n) for _ in range(-(-count // n))])[:count]
    second = (first + random.integers(1, n, count)) % n if n > 1 else first
    return first, second
