"""The downstream test: train a classifier on synthetic images only, and test it on real ones."""

from __future__ import annotations

import numpy as np
import torch

from neurosql.metrics.cache import cached_classifier
from neurosql.metrics.classifier import evaluate_classifier, train_classifier
from neurosql.metrics.context import Context
from neurosql.metrics.measure import Measure
from neurosql.metrics.statistics import proportion_interval

NEEDS_LABELS = "the downstream classifier needs labels of training and held-out images"


def classify(context: Context) -> dict[str, Measure]:
    """Accuracy, precision and recall on real images; the floor is a classifier trained on the training images."""
    options, train, heldout = context.options, context.train, context.heldout
    if not options.downstream:
        return {}
    if train.labels is None or heldout is None or heldout.labels is None:
        context.leave_out(NEEDS_LABELS)
        return {}
    made, labels, how = synthetic(context)
    if made is None or labels is None:
        context.leave_out(how)
        return {}
    real = cached_classifier(train, options.seed, options.classifier_steps)
    bound = evaluate_classifier(real, heldout.x, heldout.labels)
    net = train_classifier(made, labels, len(train.classes), options.seed, steps=options.classifier_steps)
    found = evaluate_classifier(net, heldout.x, heldout.labels)
    chance = float(np.bincount(heldout.labels).max() / len(heldout))
    right = proportion_interval(found.right, found.n)
    sides = (len(made), found.n)
    return {
        "downstream accuracy": Measure(
            found.accuracy, right, None, bound.accuracy, *sides, note=f"{how}; chance {chance:.2f}"
        ),
        "downstream precision": Measure(found.precision, None, None, bound.precision, *sides, note=how),
        "downstream recall": Measure(found.recall, None, None, bound.recall, *sides, note=how),
    }


def synthetic(context: Context) -> tuple[np.ndarray | None, np.ndarray | None, str]:
    """Synthetic images with labels, and where the labels came from."""
    method, n, seed = context.run.method, context.options.synthetic, context.options.seed + 1
    if method.classes:
        images, labels = context.draw(n, seed)
        return images, labels, "labels given to a class-conditional model"
    if not method.has_codes:
        return None, None, f"{method.name} has neither classes nor codes: its samples have no labels"
    drawn = method.draw_codes(n, None, torch.Generator().manual_seed(seed), context.options.sampling)[0]
    assert context.train.labels is not None
    nearest = np.concatenate([torch.cdist(part, method.codes).argmin(1).cpu().numpy() for part in drawn.split(2048)])
    return method.decode(drawn).cpu().numpy(), context.train.labels[nearest], "labels of the nearest training code"
