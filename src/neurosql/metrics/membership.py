"""Can somebody who has the model tell which images it was trained on? Two simple attacks, and how often they succeed.

Training and held-out images are treated alike: as many of both are drawn, by the seed, and each gets one number.

    by loss             l(x, G(z)), with z found for x: by the encoder, or by a search that starts from fresh draws. The
                        codes that training gave its images play no part, for a stranger does not have them
    by nearest sample   the loss between x and the sample nearest to it

If the model knows its training images better than others, their numbers are lower. The score is the area under the ROC
curve (AUC), the probability that a training image has a lower number than a held-out one: 0.5 if the attack does no
better than guessing, 1 if it always succeeds. Images of one subject count as dependent.

An attack that fails proves little: a stronger one may succeed. One that succeeds is a leak. Held-out images must be of
the same origin as the training images; else the score says how different they are, and nothing about the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from neurosql.data.imageset import ImageSet
from neurosql.methods.search import Searched
from neurosql.metrics.context import Context
from neurosql.metrics.measure import Measure
from neurosql.metrics.memorisation import nearest_images
from neurosql.metrics.records import BY_LOSS, BY_SAMPLE
from neurosql.metrics.score import Score
from neurosql.metrics.statistics import auc_interval

MOST = 500
"""Use at most this many training images, and as many others."""
SEARCHED = 300
"""The same, where the code of each image has to be searched for."""
STEPS = 20
"""Steps of the search for a code: fewer than `encode` takes, so that many images can be tried."""
FALSE_ALARMS = 0.01
ENOUGH = 100
"""Held-out images that are needed to say what happens at so few false alarms."""
GUESSING = 0.5
ATTACKS = {BY_LOSS.name: "the model's loss of an image", BY_SAMPLE.name: "the distance to the nearest sample"}

FOLLOWS = {
    True: "Share the model and its samples only with people who may know who or what is in the training data.",
    False: "These two attacks found nothing; a stronger one may.",
}
"""What follows, by whether an attack did better than guessing."""


def by_loss(context: Context) -> Measure | dict[str, Measure]:
    """The AUC of the loss of images at codes that are found for them; nothing if the method has no codes."""
    if context.unseen is None:
        return {}
    if not context.run.has_codes:
        name = context.run.settings.method
        context.leave_out(f"membership by loss: {name} has no codes, so there is no loss of a single image")
        return {}
    method = context.run.method

    def losses(x: np.ndarray) -> np.ndarray:
        if isinstance(method, Searched):
            return method.encode(torch.from_numpy(x).to(method.device), steps=STEPS, afresh=True)[2].cpu().numpy()
        return context.run.encode(x)[2]

    return _judged(context, losses, SEARCHED if isinstance(method, Searched) else MOST)


def by_sample(context: Context) -> Measure | dict[str, Measure]:
    """The AUC of the loss between images and the nearest of the evaluation's samples."""
    if context.unseen is None:
        return {}
    return _judged(context, lambda x: nearest_images(context.cost, x, context.samples)[1], MOST)


def _judged(context: Context, number: Callable[[np.ndarray], np.ndarray], most: int) -> Measure:
    """How well a number, lower for training images, tells them from others."""
    assert context.unseen is not None
    count = min(most, len(context.train), len(context.unseen))
    chosen = [drawn(images, count, context.options.seed) for images in (context.train, context.unseen)]
    inside, outside = (number(images.x) for images in chosen)
    return membership(inside, outside, (chosen[0].subjects, chosen[1].subjects))


def membership(
    inside: np.ndarray, outside: np.ndarray, subjects: tuple[np.ndarray | None, np.ndarray | None] = (None, None)
) -> Measure:
    """The AUC of numbers of training images (n,) and of others (m,), lower for the ones that the model knows."""
    area, interval = auc_interval(-inside, -outside, subjects)
    note = ""
    if len(outside) >= ENOUGH:
        bound = np.quantile(outside, FALSE_ALARMS, method="lower")
        found = 100 * float((inside < bound).mean())
        note = f"finds {found:.1f} % of the training images at {100 * FALSE_ALARMS:.0f} % false alarms"
    return Measure(area, interval, floor=GUESSING, n=len(inside), n_real=len(outside), note=note)


def leaks(scores: Sequence[Score]) -> bool | None:
    """Whether an attack does better than guessing, beyond chance; None if none was tried."""
    found = [score.interval[0] > GUESSING for score in scores if score.name in ATTACKS and score.interval is not None]
    return any(found) if found else None


def in_words(scores: Sequence[Score]) -> str:
    """How often the attacks succeeded, and what follows for whoever shares the model; empty if none was tried."""
    told = [
        f"{ATTACKS[score.name]} tells a training image from another in {100 * score.value:.0f} % of pairs "
        f"(95 % interval {100 * score.interval[0]:.0f} to {100 * score.interval[1]:.0f} %)"
        for score in scores
        if score.name in ATTACKS and score.interval is not None
    ]
    if not told:
        return ""
    words = " and ".join(told)
    return f"{words[0].upper()}{words[1:]}; 50 % is guessing. {FOLLOWS[bool(leaks(scores))]}"


def drawn(images: ImageSet, count: int, seed: int) -> ImageSet:
    """`count` of the images, by the seed."""
    return images.take(np.sort(np.random.default_rng(seed).permutation(len(images))[:count]))
