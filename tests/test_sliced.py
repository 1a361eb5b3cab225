"""The sliced distance: zero for the data themselves, equal to that of POT, and a loss that can be descended."""

import numpy as np
import ot
import pytest
import torch

from neurosql import sliced
from neurosql.sliced import SlicedDistance

SHAPES = [(1, 12, 12), (3, 10, 14), (6,), (2, 30), (1, 5, 5, 5)]


def samples(n, shape, seed=0):
    """Correlated samples in [0, 1]: a few random patterns, mixed."""
    random = torch.Generator().manual_seed(seed)
    patterns = torch.rand(4, *shape, generator=torch.Generator().manual_seed(99))
    weights = torch.rand(n, 4, generator=random)
    return torch.einsum("nk,k...->n...", weights, patterns) / 4 + 0.05 * torch.rand(n, *shape, generator=random)


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_zero_for_the_data_in_any_order_and_positive_for_others(shape):
    x = samples(60, shape)
    distance = SlicedDistance(x, 60, seed=1)
    shuffled = x[torch.randperm(60, generator=chance(5))]
    assert distance(shuffled, chance()) < 1e-8
    fresh = distance(samples(60, shape, seed=1), chance())
    assert 1e-3 < fresh < distance(x.mean(0, keepdim=True).expand_as(x), chance())


def test_along_each_direction_it_is_the_wasserstein_distance_of_pot():
    x, y = samples(50, (5,)), samples(50, (5,), seed=1)
    distance = SlicedDistance(x, 50, seed=3)
    scores, bank = distance.scores, distance.banks[0]
    for number, u in enumerate((scores.axes[0] @ bank.directions).T[:20]):
        ours = ((scores(y)[0] @ bank.directions[:, number]).sort().values - bank.quantiles[:, number]).square().mean()
        assert float(ours) == pytest.approx(ot.wasserstein_1d((y @ u).numpy(), (x @ u).numpy(), p=2), rel=1e-4)


def test_the_quantiles_of_fewer_samples_are_those_of_numpy():
    values = torch.randn(101, 3, generator=chance())
    found = sliced._quantiles(values, 16)
    expected = np.quantile(values.numpy(), (np.arange(16) + 0.5) / 16, axis=0, method="hazen")
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_along_every_direction_the_data_have_variance_one():
    x = samples(200, (1, 12, 12))
    distance = SlicedDistance(x, 32, seed=0)
    for scores, bank in zip(distance.scores(x), distance.banks):
        spread = (scores @ bank.directions).std(0, correction=0)
        torch.testing.assert_close(spread, torch.ones_like(spread), rtol=0.05, atol=0)


def test_faint_detail_counts_as_much_as_what_is_bright():
    bright, faint = torch.zeros(2, 1, 8, 8)
    bright[:, :4], faint[:, 4:] = 1, 0.01
    random = chance()
    weights = torch.rand(400, 2, generator=random)
    x = weights[:, :1, None, None] * bright + weights[:, 1:, None, None] * faint
    distance = SlicedDistance(x, 400, seed=0)
    without_bright = weights[:, :1, None, None].mean() * bright + weights[:, 1:, None, None] * faint
    without_faint = weights[:, :1, None, None] * bright + weights[:, 1:, None, None].mean() * faint
    ratio = distance(without_faint, chance()) / distance(without_bright, chance())
    assert 0.3 < ratio < 3


@pytest.mark.parametrize("shape", [(1, 12, 12), (6,)])
def test_its_gradient_is_that_of_differences(shape):
    distance = SlicedDistance(samples(40, shape).double(), 16, seed=0)
    y = samples(16, shape, seed=1).double().requires_grad_()
    (slope,) = torch.autograd.grad(distance(y, chance()), y)
    for seed in range(5):
        way = torch.randn(y.shape, generator=chance(seed), dtype=torch.float64)
        there, back = (distance(y.detach() + step * way, chance()) for step in (1e-6, -1e-6))
        assert float((slope * way).sum()) == pytest.approx(float(there - back) / 2e-6, rel=1e-3)


def test_descending_it_brings_samples_to_the_data():
    x = samples(80, (6,))
    distance = SlicedDistance(x, 80, seed=0)
    y = (0.3 + 0.01 * torch.randn(80, 6, generator=chance())).requires_grad_()
    before, optimizer = distance(y, chance()).item(), torch.optim.Adam([y], 0.01)
    for step in range(400):
        optimizer.zero_grad()
        distance(y, chance(step)).backward()
        optimizer.step()
    assert distance(y, chance()).item() < 0.05 * before
    torch.testing.assert_close(y.mean(0), x.mean(0), atol=0.01, rtol=0)


def test_a_seed_makes_it_the_same_and_the_global_state_is_left_alone():
    x, y = samples(40, (1, 12, 12)), samples(16, (1, 12, 12), seed=1)
    state = torch.random.get_rng_state()
    first, again, other = (SlicedDistance(x, 16, seed)(y, chance()) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(state, torch.random.get_rng_state())


def test_constant_pixels_and_constant_data_do_no_harm():
    x = samples(40, (1, 12, 12))
    x[..., :3] = 0
    assert torch.isfinite(SlicedDistance(x, 16, 0)(samples(16, (1, 12, 12), seed=1), chance()))
    assert torch.isfinite(SlicedDistance(torch.full((40, 1, 12, 12), 0.5), 16, 0)(x[:16], chance()))


def test_large_images_are_averaged_first():
    x = samples(20, (1, 96, 64))
    values = SlicedDistance(x, 8, 0).scores.features(x)
    assert values[0].shape == (20, sliced.LARGEST**2)
