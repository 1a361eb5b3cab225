"""Scores of colour: how much samples vary in it, and which colours there are."""

import numpy as np
import pytest
import torch

from neurosql import colour, fit
from neurosql.data import from_array
from neurosql.evaluate import Options, evaluate
from neurosql.metrics.colours import NODES, chroma_spread, colour_histogram, mean_chroma
from neurosql.metrics.frechet import frechet_distance

OWN = {"chroma spread", "colour frechet"}


def pictures(n, strength=0.2, seed=0, side=8):
    """Noise around a colour of its own for each image, (n, 3, side, side)."""
    random = np.random.default_rng(seed)
    tints = 0.5 + strength * random.standard_normal((n, 3, 1, 1)).clip(-2, 2)
    return (tints + 0.05 * random.standard_normal((n, 3, side, side))).clip(0, 1).astype(np.float32)


def grey(x):
    return np.repeat(colour.luma(torch.from_numpy(x)).numpy(), 3, 1)


def test_equal_sets_have_the_spread_one_and_grey_ones_zero():
    x = pictures(60)
    assert chroma_spread(mean_chroma(x), mean_chroma(x)).value == 1
    assert chroma_spread(mean_chroma(grey(x)), mean_chroma(x)).value < 1e-5
    assert chroma_spread(mean_chroma(grey(x)), mean_chroma(np.zeros_like(x))).value <= 1


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0])
def test_the_spread_follows_the_saturation_and_too_much_is_no_better_than_too_little(factor):
    x = 0.4 * pictures(60) + 0.3
    duller = grey(x) + factor * (x - grey(x))
    found = chroma_spread(mean_chroma(duller), mean_chroma(x))
    assert found.value == pytest.approx(min(factor, 1 / factor), rel=1e-4)
    assert ("vary more" in found.note) == (factor == 2)


def test_the_spread_knows_no_brightness_and_no_order():
    x = 0.4 * pictures(50) + 0.3
    lighter = x + np.random.default_rng(1).uniform(-0.2, 0.2, (50, 1, 1, 1)).astype(np.float32)
    assert chroma_spread(mean_chroma(lighter), mean_chroma(x[::-1])).value == pytest.approx(1, abs=1e-5)


def test_without_any_colour_there_is_no_difference():
    nothing = np.zeros((5, 2))
    assert chroma_spread(nothing, nothing).value == 1


def test_a_histogram_is_shares_and_its_nodes_tell_the_mean_chroma():
    x = pictures(30)
    found = colour_histogram(x).astype(np.float64).reshape(30, len(NODES), len(NODES))
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum((1, 2)), 1, atol=1e-5)
    # Weights of linear interpolation: the mean of the nodes is the mean of the values.
    means = np.stack([(found.sum(axis) * NODES).sum(1) for axis in (2, 1)], 1)
    np.testing.assert_allclose(means, mean_chroma(x), atol=1e-5)


def test_a_colour_at_a_node_is_in_one_bin():
    x = np.full((2, 3, 4, 4), 0.3, np.float32)
    expected = np.zeros((len(NODES), len(NODES)))
    expected[2, 2] = 1
    np.testing.assert_allclose(colour_histogram(x)[0].reshape(expected.shape), expected, atol=1e-5)
    blue = np.zeros((1, 3, 4, 4), np.float32)
    blue[:, 2] = 1
    assert colour_histogram(blue)[0].reshape(expected.shape)[-1].sum() == pytest.approx(1)


@pytest.mark.parametrize("describe", [mean_chroma, colour_histogram])
def test_an_image_is_described_by_itself(describe):
    x = pictures(300, side=5)
    np.testing.assert_array_equal(describe(x)[::7], describe(x[::7]))


def test_the_histograms_tell_grey_from_colour_and_one_colour_from_another():
    train, heldout = pictures(200), pictures(200, seed=1)
    real = colour_histogram(heldout)
    floor = frechet_distance(colour_histogram(train), real)
    swapped = np.ascontiguousarray((0.3 * train + np.array([0.4, 0.1, 0.0]).reshape(3, 1, 1)).astype(np.float32))
    for other in (grey(train), swapped):
        assert frechet_distance(colour_histogram(other), real) > 5 * floor


def test_colour_images_have_both_scores_and_no_others_do():
    quick = dict(generator="mlp", width=16, epochs=2, validation_share=0.0)
    options = Options(samples=40, image_pairs=5)
    for channels in (1, 3, 4):
        x = np.repeat(pictures(120), 2, 1)[:, :channels]
        train, heldout = (from_array(part, layout="nchw") for part in (x[:80], x[80:]))
        found = evaluate(fit(train, **quick), train, heldout, options).scores
        own = [score for score in found if score.name in OWN]
        assert {score.name for score in own} == (OWN if channels == 3 else set())
        for score in own:
            assert score.mode == "sampled" and score.floor is not None and (score.n, score.n_real) == (40, 40)
        if channels == 3:
            spread = next(score for score in own if score.name == "chroma spread")
            assert 0 <= spread.value <= 1 and spread.floor > 0.7
