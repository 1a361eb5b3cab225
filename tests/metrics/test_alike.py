"""Samples that are alike: they count as few, so that one coincidence is not called copying, and copies still are."""

import sys
from pathlib import Path

import numpy as np
import pytest

from neurosql import data
from neurosql.cost import Cost
from neurosql.metrics import memorisation as judge
from neurosql.metrics.memorisation import ANY_SHARE, TOO_ALIKE, Memorisation, memorisation, share_interval
from neurosql.metrics.score import Score
from neurosql.metrics.statistics import effective_trials
from neurosql.report.answers import copying

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import planted

SPLITS = 40


@pytest.fixture(scope="module")
def known():
    return planted.distances(data.load("mnist-sample", limit=1200), Cost.named("ssim+l1"), kinds=("exact",))


def test_trials_that_do_not_depend_on_each_other_all_count():
    for n, successes in ((50, 3), (400, 200), (400, 0), (400, 400)):
        assert effective_trials(np.arange(n) < successes, np.arange(n)) == pytest.approx(n, rel=1e-9)


@pytest.mark.parametrize("copies", [2, 7])
def test_trials_that_are_repeated_count_once(copies):
    random = np.random.default_rng(0)
    once, groups = random.random(300) < 0.3, np.arange(300)
    again = effective_trials(np.repeat(once, copies), np.repeat(groups, copies))
    assert again == pytest.approx(effective_trials(once, groups), rel=0.01)


def test_the_variance_is_that_of_shares_over_many_draws():
    """Groups of unequal size, of which all members or none are successes."""
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(120), random.integers(1, 12, 120))
    draws = [(random.random(120) < 0.25)[groups] for _ in range(3000)]
    claimed = np.mean([d.mean() * (1 - d.mean()) / effective_trials(d, groups) for d in draws])
    assert claimed == pytest.approx(np.var([d.mean() for d in draws]), rel=0.1)


@pytest.mark.parametrize("components", planted.COMPONENTS)
def test_models_that_never_saw_the_images_are_not_called_copies(components, known):
    verdicts = planted.verdicts_on_others(known, components, SPLITS)
    assert verdicts.count("no sign") >= SPLITS - 2


def test_counted_as_independent_the_same_samples_would_be(known):
    """The check above can fail: without the groups, a collapsed model is 'clear' in many splits."""
    alarms = 0
    for number in range(SPLITS):
        train, heldout, _ = planted.split(known, np.random.default_rng([0, 2, number]))
        rows = known.others[0][0]
        columns = [planted.Columns(rows[:, part]).nearest for part in (train, heldout)]
        found = judge.judged(*columns, (len(train), len(heldout)))
        alarms += share_interval(found.share, len(rows), found.heldout)[0] > judge.CLEAR
    assert alarms > SPLITS / 4


def test_one_exact_copy_in_twenty_is_still_clear(known):
    assert set(planted.verdicts(known, "exact", 0.05, 10)) == {"clear"}


@pytest.mark.parametrize("images", [8, 30])
def test_a_model_that_repeats_a_few_training_images_with_noise_is_clear(images, known):
    """All samples are far nearer to one of a few training images than to any other: no coincidence does that."""
    x = data.load("mnist-sample", limit=1000).x
    random = np.random.default_rng(0)
    copies = x[random.integers(0, images, 300)]
    noisy = np.clip(copies + random.normal(0, 0.02, copies.shape), 0, 1).astype(np.float32)
    assert memorisation(Cost.named("ssim+l1"), noisy, x[:600], x[600:]).verdict == "clear"


def test_samples_that_are_too_alike_are_not_said_to_be_new():
    found = Memorisation(np.zeros(200, np.int64), np.full(200, 0.7), np.ones(200), 100, threshold=0.8)
    assert found.interval == ANY_SHARE and found.verdict == "no sign" and found.follows == TOO_ALIKE
    assert "too alike to tell" in found.sentence()
    note = f"{found.verdict}: {found.reason}"
    score = Score("suspiciously close", 1.0, "sampled", "lower", 200, 100, interval=found.interval, note=note)
    short, told = copying([score])
    assert short == "That can't be told." and TOO_ALIKE in told and "too alike to tell" in told
