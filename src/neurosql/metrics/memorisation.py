"""Is any sample a copy? Each sample's nearest training image is compared with its nearest held-out image.

Training and held-out images are drawn alike, so a sample that copies neither is as near to the ones as to the others.
Distances alone would not do: a blurred image is near every other image, and digits 1 are near each other. Hence the
ratio

    r = l(sample, nearest training image) / l(sample, nearest held-out image).

With as many training as held-out images, r and 1 / r have the same law for an honest sample. The training images are
therefore divided into J parts, none larger than the held-out set (by whole subjects, if these are known), and each part
is compared with as many held-out images. Samples that are far nearer to the held-out images than to a part can't be
copies, so they show what chance does: q is such that r > 1 / q for a share 0.01 / J of all samples and parts. A sample
is suspicious if r < q for one of the parts; by chance, that happens to about 1 % of honest samples at most.

That 1 % is what the share of suspicious samples is compared with, everywhere. q is found from few images, though: with
other held-out images of the same kind, honest samples might have given another share. The interval of the share allows
for both, few samples and few held-out images, so a sign of copying is an interval that lies above 1 %.

Samples that have the same nearest training image are close to it by the same coincidence or not at all. They are one
group, and the share varies as the sums over groups do (`statistics.effective_trials`): a model that has learned little
makes samples of few groups, so its interval is wide, however many samples there are. With fewer than 20 trials in this
sense, the interval says nothing, and only copies beyond doubt lead to a verdict.

This does not show that nothing about a training image can be inferred from the model: membership.py tries two attacks,
and only differential privacy gives a bound. It does not find copies under a transformation that the distance does not
see; moved.py has a distance that sees through some. It relies on held-out images of the same origin: if they are of
another kind, honest samples look suspicious.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from neurosql.cost import Cost
from neurosql.errors import InputError
from neurosql.metrics.arrays import takes_tensors
from neurosql.metrics.statistics import LEVEL, effective_trials, proportion_interval

EXPECTED = 0.01
"""The share of honest samples that are suspicious by chance."""
CLEAR = 0.05
"""The verdict is clear if the interval of the share lies above this."""
BLATANT, SEVERAL = 0.5, 0.005
IDENTICAL = 1e-3
LEAST_HELD_OUT = 20
LEAST_TRIALS = 20
"""With fewer independent trials, samples may all be close to training images by a few coincidences."""
ANY_SHARE = (0.0, 1.0)
"""The interval of a share about which nothing is known."""
TINY = 1e-12

Verdict = Literal["no sign", "some", "clear"]
Nearest = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""`nearest(indices)`: which of these images is nearest to each sample, counted within them, and its loss, (m,) each."""
FOLLOWS: dict[str, str] = {
    "no sign": "Samples may be shown as new images. This is no proof that they are anonymous: see membership, too.",
    "some": "Compare the suspicious samples with their training images before you share any, and leave copies out.",
    "clear": "Do not share samples of this model as anonymous or as new: some of them show training images.",
}
"""What follows from each verdict, for whoever wants to use the samples."""
TOO_ALIKE = "Compare the samples with their training images before you share any: this test can't tell."
"""What follows from samples that are too alike to be judged."""


@dataclass(frozen=True)
class Look:
    """One way to look for copies."""

    what: str
    """What samples are compared with, in the words of the verdict."""
    level: float = LEVEL
    """Level of the interval. Whoever looks twice has two chances of a false alarm: the second look is stricter."""


PLAIN = Look("a training image")


@dataclass(frozen=True, eq=False)
class Memorisation:
    """Nearest training and held-out images of samples."""

    nearest: np.ndarray
    """(m,) int64: the training image nearest to each sample."""
    distances: np.ndarray
    """(m,): the loss l between each sample and that image."""
    heldout_distances: np.ndarray
    """(m,): the loss between each sample and the held-out image nearest to it."""
    heldout: int
    """Number of held-out images."""
    threshold: float
    """q: samples with a ratio of the two losses below it are suspicious."""
    look: Look = PLAIN

    @property
    def trials(self) -> float:
        """How many independent samples would tell as much about the share: those with the same nearest training image
        depend on each other."""
        return effective_trials(self.ratios < self.threshold, self.nearest)

    @property
    def ratios(self) -> np.ndarray:
        """(m,): the loss to the nearest training image over the loss to the nearest held-out image."""
        return self.distances / np.maximum(self.heldout_distances, TINY)

    @property
    def order(self) -> np.ndarray:
        """(m,) int64: the samples, most suspicious first."""
        return np.argsort(self.ratios, kind="stable")

    @property
    def suspicious(self) -> np.ndarray:
        """(s,) int64: samples below the threshold, lowest ratio first."""
        return self.order[: int((self.ratios < self.threshold).sum())]

    @property
    def share(self) -> float:
        """Share of samples that are suspicious; 0.01 is what chance gives."""
        return len(self.suspicious) / len(self.distances)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the share: `share_interval`; all shares, if the samples are too alike to say anything."""
        if self.trials < min(LEAST_TRIALS, len(self.distances)):
            return ANY_SHARE
        return share_interval(self.share, self.trials, self.heldout, self.look.level)

    @property
    def copies(self) -> int:
        """Number of samples that are copies beyond doubt, with a ratio below half the threshold or next to no loss at
        all; 0 if there are no more of them than chance may give."""
        blatant = self.ratios < BLATANT * self.threshold
        least = IDENTICAL * max(float(np.median(self.heldout_distances)), TINY)
        identical = (self.distances < least) & (self.ratios < self.threshold)
        trials = effective_trials(blatant, self.nearest)
        rare = max(SEVERAL, proportion_interval(0, min(self.heldout, trials))[1])
        if proportion_interval(float(blatant.mean()) * trials, trials)[0] > rare:
            return int((blatant | identical).sum())
        return int(identical.sum())

    @property
    def verdict(self) -> Verdict:
        """`clear` if the interval of the share lies above 5 %, or if there are copies beyond doubt; `some` if it lies
        above the 1 % that chance gives; else `no sign`."""
        return verdict(self.interval, self.copies > 0)

    @property
    def reason(self) -> str:
        """Why the verdict is what it is: `reason`."""
        return reason(self.interval, self.copies)

    @property
    def follows(self) -> str:
        """What follows from the verdict."""
        return follows(self.verdict, self.interval)

    def sentence(self) -> str:
        """The verdict in words, with the figures that it is based on."""
        found = in_words(self.share, self.interval, len(self.distances), self.reason, self.look)
        return f"memorisation: {self.verdict}. {found}"


def share_interval(share: float, samples: float, heldout: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of the share of suspicious samples, for any independent samples and held-out images in these numbers.

    Wilson's interval has the chance in the samples. The chance in the threshold is that of 1 % seen among `heldout`; it
    widens the interval by as much, so that the lower end is above 1 % only if it was above all that chance explains.
    """
    few = min(heldout, samples)
    low, high = proportion_interval(share * samples, samples, level)
    least, most = proportion_interval(EXPECTED * few, few, level)
    return max(0.0, low - (most - EXPECTED)), min(1.0, high + (EXPECTED - least))


def verdict(interval: tuple[float, float], copies: bool) -> Verdict:
    """The verdict on an interval of the share, given whether there are copies beyond doubt."""
    low, _ = interval
    if low > CLEAR or copies:
        return "clear"
    return "some" if low > EXPECTED else "no sign"


def reason(interval: tuple[float, float], copies: int | None) -> str:
    """What `verdict` follows from, in words; None if there are copies beyond doubt, but nobody knows how many."""
    low, _ = interval
    if low > CLEAR:
        what = f"the whole interval is above {100 * CLEAR:.0f} %"
    elif copies != 0:
        counted = "one sample is a copy" if copies == 1 else f"{copies or 'some'} samples are copies"
        what = f"{counted} beyond doubt"
    elif interval == ANY_SHARE:
        what = "the samples are too alike to tell whether there are more"
    else:
        what = f"the {'whole interval is' if low > EXPECTED else 'interval is not'} above that"
    return f"chance alone gives {100 * EXPECTED:.0f} %, and {what}"


def follows(verdict: str, interval: tuple[float, float]) -> str:
    """What follows from a verdict on this interval of the share; nothing if the verdict is not known."""
    return TOO_ALIKE if untold(verdict, interval) else FOLLOWS.get(verdict, "")


def untold(verdict: str, interval: tuple[float, float]) -> bool:
    """Whether there is no sign because samples are too alike to give any."""
    return verdict == "no sign" and interval == ANY_SHARE


def in_words(share: float, interval: tuple[float, float], samples: int, why: str, look: Look = PLAIN) -> str:
    """The share of suspicious samples with its interval, and the reason of the verdict, in one sentence."""
    low, high = interval
    return (
        f"{100 * share:.1f} % of {samples:,} samples are suspiciously close to {look.what} "
        f"({100 * look.level:.0f} % interval {100 * low:.1f} to {100 * high:.1f} %); {why}."
    )


def memorisation(
    cost: Cost, samples: np.ndarray, train: np.ndarray, heldout: np.ndarray, subjects: np.ndarray | None = None
) -> Memorisation:
    """Compare samples (m, *shape) with training (n, *shape) and held-out images (k, *shape) by the loss l.

    `subjects` (n,) are the subjects of the training images, if the held-out images were split off by subject.
    """
    enough(heldout)
    return judged(
        lambda part: nearest_images(cost, samples, train[part]),
        lambda some: nearest_images(cost, samples, heldout[some]),
        (len(train), len(heldout)),
        subjects,
    )


def enough(heldout: np.ndarray) -> None:
    """Refuse to judge by too few held-out images."""
    if len(heldout) < LEAST_HELD_OUT:
        raise InputError(
            f"memorisation is judged against held-out images: at least {LEAST_HELD_OUT} are needed, got {len(heldout)}"
        )


def judged(
    to_train: Nearest,
    to_heldout: Nearest,
    counts: tuple[int, int],
    subjects: np.ndarray | None = None,
) -> Memorisation:
    """`memorisation`, by what finds the image nearest to each sample among some training or held-out images.

    `counts` are their numbers.
    """
    n, k = counts
    parts = divided(n, k, subjects)
    some = _spread(k, round(n / len(parts)))
    apart = to_heldout(some)[1]
    found = [to_train(part) for part in parts]
    distances = np.stack([of for _, of in found], 1)
    nearest = np.stack([part[places] for part, (places, _) in zip(parts, found)], 1)
    best = distances.argmin(1)
    ratios = distances / np.maximum(apart, TINY)[:, None]
    highest = float(np.quantile(ratios, 1 - EXPECTED / len(parts), method="higher"))
    rows = np.arange(len(apart))
    # If all samples are nearer to training images, even the highest ratio is below 1.
    return Memorisation(nearest[rows, best], distances[rows, best], apart, len(some), min(1 / max(highest, TINY), 1))


def divided(n: int, size: int, subjects: np.ndarray | None = None) -> list[np.ndarray]:
    """The indices 0..n-1 at random in equal parts of at most `size`; with subjects, in nearly equal parts, with all
    indices of a subject in the same part."""
    random = np.random.default_rng(0)
    if subjects is None:
        ranks = random.permutation(n)
    else:
        ids = np.unique(subjects, return_inverse=True)[1]
        ranks = np.argsort(np.argsort(random.permutation(ids.max() + 1)[ids], kind="stable"), kind="stable")
    count = math.ceil(n / size)
    of = ranks * count // n
    if subjects is not None:
        # A subject on the border goes with its first image.
        first = np.full(ids.max() + 1, count)
        np.minimum.at(first, ids, of)
        of = first[ids]
    return [places for part in range(count) if len(places := np.flatnonzero(of == part))]


@takes_tensors
def nearest_images(cost: Cost, x: np.ndarray, among: np.ndarray, rows: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """The index of the image in `among` (n, ...) that is nearest to each x (m, ...), and their loss, (m,) each."""
    others = torch.from_numpy(np.ascontiguousarray(among))
    places, distances = [], []
    for i in range(0, len(x), rows):
        costs = cost.matrix(torch.from_numpy(np.ascontiguousarray(x[i : i + rows])), others)
        found = costs.min(1)
        places.append(found.indices.numpy())
        distances.append(found.values.double().numpy())
    return np.concatenate(places), np.concatenate(distances)


def _spread(n: int, most: int) -> np.ndarray:
    """At most `most` of n indices, evenly spread."""
    return np.arange(n) if n <= most else np.arange(most) * n // most
