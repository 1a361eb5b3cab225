"""Where scores lie between worst and best, and what the figure beside each is."""

import dataclasses

import pytest

from neurosql.metrics.records import REFERENCES, RESOURCE, SCORES, record_of
from neurosql.metrics.scale import scale_of
from neurosql.metrics.score import Score, table

NAMES = [name for name in SCORES.names() if record_of(name).family != RESOURCE]


def score(name, value, mode=None, floor=None, **more):
    record = record_of(name)
    features = record.features[0] if record.features else None
    return Score(name, value, mode or record.modes[0], record.direction, 50, 50, 0, features, floor=floor, **more)


@pytest.mark.parametrize("name", NAMES)
def test_every_score_has_words_a_scale_and_a_name_for_the_figure_beside_it(name):
    record = record_of(name)
    assert record.words and scale_of(score(name, 0.3, floor=0.2)) is not None
    assert not record.floor or (record.reference or record.floor) in REFERENCES
    assert all(record.compared_with(mode) is not None for mode in record.modes) == bool(record.floor)


@pytest.mark.parametrize("name", [name for name in NAMES if record_of(name).direction != "none"])
def test_better_is_further_to_the_right(name):
    sign, floor = record_of(name).sign, 0.05
    values = [0.06, 0.08, 0.3, 0.6, 0.9]
    for mode in record_of(name).modes:
        places = [scale_of(score(name, value, mode, floor)).at for value in values]
        assert places == sorted(places, reverse=sign < 0) and all(0 <= place <= 1 for place in places)


def test_the_reference_is_at_the_end_that_it_stands_for():
    """Unrelated images are where nothing was learned, but what a perfect model's samples get."""
    for name, floor in (("ssim", 0.1), ("lpips", 0.3)):
        assert scale_of(score(name, floor, "paired-train", floor)).at == 0
        assert scale_of(score(name, floor, "sampled", floor)).at == 1
    assert scale_of(score("ssim", 1.0, "paired-train", 0.1)).at == 1
    assert scale_of(score("10-nn purity", 0.1, floor=0.1)).at == 0
    assert scale_of(score("proxy-fid", 0.02, floor=0.02)).at == 1
    assert scale_of(score("proxy-fid", 0.2, floor=0.02)).at == pytest.approx(0.5)
    assert scale_of(score("two-sample accuracy", 0.5, floor=0.49)).at == 1
    assert scale_of(score("two-sample accuracy", 1.0, floor=0.49)).at == 0


def test_a_reference_beyond_the_other_end_does_not_turn_the_scale_round():
    assert scale_of(score("ssim", -0.01, "sampled", floor=-0.014)) is None
    assert scale_of(score("lpips", 1.1, "sampled", floor=1.2)) is None


def test_an_unbiased_distance_is_measured_in_units_of_its_noise():
    """Between real images it is 0 on average, and any value as small as its noise is as good."""
    noisy = score("kid", 0.002, floor=-1e-6, floor_interval=(-0.002, 0.002))
    assert scale_of(noisy).at == 1
    assert scale_of(dataclasses.replace(noisy, value=0.02)).at == pytest.approx(0.5)


def test_drift_is_worse_both_ways():
    assert scale_of(score("drift", 1.0)).at == 1
    assert scale_of(score("drift", 0.5)).at == pytest.approx(scale_of(score("drift", 2.0)).at) == 0.5


def test_a_score_of_a_package_that_is_gone_is_still_shown():
    gone = Score("beauty", 0.7, "sampled", "higher", 50, floor=0.9)
    assert scale_of(gone) is None and gone.reference is None and "0.9000" in table([gone])


def test_the_terminal_names_what_each_score_is_compared_with():
    text = table([score("recall", 0.4, floor=0.9), score("ssim", 0.5, "paired-train", 0.1), score("drift", 1.1)])
    assert "real vs. real 0.9000" in text and "unrelated 0.1000" in text and "floor" not in text
    assert "best possible" in text and "nothing learned" in text and "chance" not in text
