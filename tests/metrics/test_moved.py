"""Copies that were moved or changed: the distance is what it says, planted copies are found, real images are not."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from neurosql import data
from neurosql.cost import Cost
from neurosql.metrics import moved
from neurosql.metrics.copies import decisive
from neurosql.metrics.memorisation import LEAST_TRIALS
from neurosql.metrics.score import Score

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import planted

SPLITS = 6


@pytest.fixture(scope="module")
def digits():
    return data.load("mnist-sample", limit=900)


@pytest.fixture(scope="module")
def known(digits):
    return planted.distances(digits, Cost.named("ssim+l1"), learnt=0)


def halved(x):
    """Images (n, c, h, w), blurred and halved, one by one and pixel by pixel."""
    from scipy.ndimage import gaussian_filter

    blurred = np.stack([[gaussian_filter(channel, 2.0) for channel in image] for image in x])
    return blurred.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).mean((3, 5))


def test_the_distance_is_the_least_over_all_moves():
    random = np.random.default_rng(0)
    samples, images = (random.random((n, 3, 28, 32)).astype(np.float32) for n in (5, 7))
    places, distances = moved.nearest(moved.smoothed(samples), moved.features(images))
    pad = np.pad(moved.smoothed(samples), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    moves = [pad[:, :, 1 + a : 29 + a, 1 + b : 33 + b] for a, b in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))]
    moves.append(pad[:, :, 1:-1, 1:-1][..., ::-1])
    small = [m.reshape(5, 3, 14, 2, 16, 2).mean((3, 5)) for m in moves]
    expected = np.min([np.linalg.norm((m[:, None] - halved(images)).reshape(5, 7, -1), axis=2) for m in small], axis=0)
    assert np.array_equal(places, expected.argmin(1)) and distances == pytest.approx(expected.min(1), rel=1e-4)


def test_a_copy_has_distance_zero_moved_or_not(digits):
    """With a border that is wider than the blur, because a shift loses what leaves the image."""
    x = np.pad(digits.x[:40], ((0, 0), (0, 0), (10, 10), (10, 10)))
    features = moved.features(x)
    shifts = [np.roll(x, by, axis) for axis in (2, 3) for by in (1, -1)]
    for copies in (x, x[..., ::-1], *shifts):
        places, distances = moved.nearest(moved.smoothed(copies), features)
        assert np.array_equal(places, np.arange(40)) and distances.max() < 1e-5
    assert moved.nearest(moved.smoothed(np.roll(x, 3, 3)), features)[1].min() > 0.1


@pytest.mark.parametrize("kind", planted.CHANGES)
def test_planted_copies_are_found(kind, known):
    """One sample in five is a copy. With 180 held-out images, the interval is too wide to tell one in twenty."""
    assert set(planted.verdicts(known, kind, 0.2, SPLITS)) == {"clear"}


def test_real_images_raise_no_alarm(known):
    assert planted.verdicts(known, "", 0.0, 5 * SPLITS).count("no sign") >= 5 * SPLITS - 1


def test_parts_of_a_split_share_no_subject(known):
    by_subject = planted.Distances(known.real, known.copies, np.arange(900) // 7, {})
    parts = planted.split(by_subject, np.random.default_rng(0))
    assert sorted(np.concatenate(parts)) == list(range(900))
    subjects = [set(by_subject.subjects[part]) for part in parts]
    assert not subjects[0] & subjects[1] and not subjects[1] & subjects[2] and not subjects[0] & subjects[2]


def test_samples_that_are_all_alike_say_nothing(digits):
    """One image with a little noise, again and again: nearer to a training image by a single coincidence."""
    train, heldout = digits.x[:600], digits.x[600:]
    one = moved.smoothed(train[:1])
    random = np.random.default_rng(0)
    alike = np.clip(one + 0.01 * random.standard_normal((200, 1, 28, 28)), 0, 1).astype(np.float32)
    found = moved.moved_memorisation(alike, train, heldout)
    assert found.trials < LEAST_TRIALS and found.share > 0.5
    assert found.interval == (0.0, 1.0) and found.verdict == "no sign"
    copies = moved.moved_memorisation(train[:200, :, :, ::-1], train, heldout)
    assert copies.trials > 100 and copies.verdict == "clear" and "shifted, mirrored" in copies.sentence()


def test_odd_and_small_sizes_are_compared_too():
    x = torch.rand(3, 1, 9, 7, generator=torch.Generator().manual_seed(0)).numpy()
    assert moved.features(x).shape == (3, 20)
    assert moved.nearest(moved.smoothed(x), moved.features(x))[1].max() < 1e-5


def test_the_worse_verdict_counts():
    def score(name, verdict):
        return Score(name, 0.1, "sampled", "lower", 100, 100, interval=(0.0, 0.2), note=f"{verdict}: chance")

    plain, loose = "suspiciously close", "suspiciously close, moved"
    for first, second, worse in (("some", "clear", loose), ("clear", "some", plain), ("no sign", "no sign", plain)):
        found, interval, _ = decisive([score(plain, first), score(loose, second)])
        assert found.name == worse and interval == (0.0, 0.2)
    assert decisive([Score("ssim", 0.1, "sampled", "higher", 5)]) is None
