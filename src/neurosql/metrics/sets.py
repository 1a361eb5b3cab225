"""Scores of two sets of features: samples against held-out images, in every feature space that a record names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosql.metrics import colours, features, records
from neurosql.metrics.cache import cached, cached_classifier
from neurosql.metrics.classifier import classifier_features
from neurosql.metrics.context import Context
from neurosql.metrics.lpips import LPIPS
from neurosql.metrics.measure import Measure, with_floor
from neurosql.metrics.records import ScoreRecord

NETS = 3
"""Random networks that an averaged score is the mean of."""

Described = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Features of samples, of held-out images and of training images."""


def measure(context: Context, records: list[ScoreRecord]) -> None:
    """Samples against held-out images, in equal numbers; the floor has training images in the samples' place."""
    unseen, train = context.unseen, context.train
    if unseen is None or not records:
        return
    n = min(context.options.samples, len(unseen), len(train))
    real = unseen.x[context.random.permutation(len(unseen))[:n]]
    perfect = train.x[context.random.permutation(len(train))[:n]]
    for space, described in list(_spaces(context, context.samples[:n], real, perfect)):
        some = context.available(r for r in records if space in r.features and n >= r.least)
        found = _averages(context, [r for r in some if r.averaged], described)
        found |= _values(context, [r for r in some if not r.averaged], described[0])
        for record in some:
            if record.name in found:
                context.add(record, found[record.name], record.modes[0], n, space)


def _values(context: Context, records: list[ScoreRecord], described: Described) -> dict[str, Measure]:
    made, real, perfect = described
    found = context.call(records, {"made": made, "real": real})
    floors = context.call(records, {"made": perfect, "real": real})
    return {name: with_floor(Measure.of(value), Measure.of(floors[name]), len(real)) for name, value in found.items()}


def _averages(context: Context, records: list[ScoreRecord], described: list[Described]) -> dict[str, Measure]:
    """Means over the networks of a space, with their spread."""
    by_net = [_values(context, records, one) for one in described]
    means = {}
    for name, first in by_net[0].items():
        values, floors = ([getattr(of[name], what) for of in by_net] for what in ("value", "floor"))
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        means[name] = Measure(float(np.mean(values)), None, spread, float(np.mean(floors)), n_real=first.n_real)
    return means


def _spaces(
    context: Context, samples: np.ndarray, real: np.ndarray, perfect: np.ndarray
) -> Iterator[tuple[str, list[Described]]]:
    """Each feature space by name, with the three sets as each of its networks describes them."""
    assert context.heldout is not None
    options, shape = context.options, context.run.like.shape
    parts = (samples, real, perfect)
    nets = [features.random_net(shape, seed) for seed in range(NETS)]
    yield "random net", [_described(net, parts) for net in nets]
    yield "pixels", [_described(features.pixels(shape), parts)]
    if records.COLOUR in context.kinds:
        for name, described in colours.SPACES.items():
            yield name, [_described(described, parts)]
    if context.labelled_images:
        learned = classifier_features(cached_classifier(context.train, options.seed))
        yield "classifier", [_described(learned, parts)]

    def with_cache(net: features.Features, name: str) -> list[Described]:
        assert context.heldout is not None
        true = cached(net, real, name, context.heldout.fingerprint, options.seed)
        return [(net(samples), true, cached(net, perfect, name, context.train.fingerprint, options.seed))]

    if options.vgg and (loaded := context.weights("lpips-vgg")) is not None:
        yield "vgg", with_cache(LPIPS("vgg", loaded).features(), "vgg")
    if context.inception is not None:
        yield "inception", with_cache(context.inception, f"inception-{context.inception_hash}")


def _described(net: features.Features, parts: Described) -> Described:
    made, real, perfect = (net(part) for part in parts)
    return made, real, perfect
