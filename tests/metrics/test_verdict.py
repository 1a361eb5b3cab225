"""The verdict on memorisation: one reference, and the printed figures lead to the printed verdict."""

import re

import numpy as np
import pytest

from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.memorisation import Memorisation, in_words, reason, share_interval, verdict
from neurosql.metrics.score import Score
from neurosql.metrics.statistics import proportion_interval

SHARES = [0.0, 0.005, 0.01, 0.02, 0.039, 0.05, 0.08, 0.1, 0.2, 0.4, 1.0]
COUNTS = [(200, 20), (300, 40), (2048, 256), (2048, 1792), (500, 10_000)]


def of_share(share, samples, heldout):
    """A result with this share of suspicious samples, none of which is a copy beyond doubt."""
    distances = np.where(np.arange(samples) < round(share * samples), 0.7, 1.0)
    return Memorisation(np.arange(samples), distances, np.ones(samples), heldout, threshold=0.8)


@pytest.mark.parametrize(("samples", "heldout"), COUNTS)
@pytest.mark.parametrize("share", SHARES)
def test_a_reader_of_the_sentence_comes_to_its_verdict(share, samples, heldout):
    found = of_share(share, samples, heldout)
    words = found.sentence()
    low, chance = (float(re.search(p, words)[1]) for p in (r"interval ([\d.]+) to", r"chance alone gives (\d+) %"))
    if abs(low - chance) < 0.1 or abs(low - 5) < 0.1:
        pytest.skip("the figures are rounded")
    expected = "clear" if low > 5 else "some" if low > chance else "no sign"
    assert words.startswith(f"memorisation: {expected}. ") and found.verdict == expected
    assert ("not above" in words) == (expected == "no sign") and ("above 5 %" in words) == (expected == "clear")


def test_the_bound_of_clear_is_five_percent_and_that_of_some_is_chance():
    assert verdict((0.051, 0.2), copies=False) == "clear" and verdict((0.049, 0.2), copies=False) == "some"
    assert verdict((0.011, 0.2), copies=False) == "some" and verdict((0.009, 0.2), copies=False) == "no sign"
    assert verdict((0.0, 0.1), copies=True) == "clear" and "3 samples are copies" in reason((0.0, 0.1), 3)


def test_one_identical_image_is_a_copy_beyond_doubt():
    found = of_share(0.0, 300, 200)
    found.distances[0] = 0.0
    assert found.copies == 1 and found.verdict == "clear" and "one sample is a copy beyond doubt" in found.sentence()


@pytest.mark.parametrize("share", SHARES)
def test_few_held_out_images_make_the_interval_wider_and_many_do_not(share):
    plain = proportion_interval(share * 2000, 2000)
    found = [share_interval(share, 2000, heldout) for heldout in (20, 100, 2000)]
    widths = [high - low for low, high in found]
    assert widths == sorted(widths, reverse=True) and widths[-1] >= plain[1] - plain[0]
    assert all(0 <= low <= share <= high <= 1 for low, high in found)


def test_an_old_score_is_told_by_the_same_rule_as_a_new_one():
    new = of_share(0.1, 2048, 400)
    old = Score("suspiciously close", new.share, "sampled", "lower", 2048, 400, interval=(0.08, 0.12), note="some")
    today = as_judged_today(old)
    assert today.interval == pytest.approx(new.interval, rel=1e-9) and today.note == f"clear: {new.reason}"
    assert as_judged_today(today) == today
    copied = as_judged_today(Score("suspiciously close", 0.01, "sampled", "lower", 500, 400, note="clear"))
    assert copied.note.startswith("clear: ") and "copies beyond doubt" in copied.note
    other = Score("ssim", 0.5, "sampled", "higher", 50, note="clear")
    assert as_judged_today(other) is other


def test_the_words_of_the_page_are_those_of_the_terminal():
    found = of_share(0.03, 1000, 300)
    assert in_words(found.share, found.interval, 1000, found.reason) in found.sentence()
