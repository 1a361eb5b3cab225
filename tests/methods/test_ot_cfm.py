"""Flow matching: the pairs are optimal, the field is the conditional mean, and the solvers have their order."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import nn

from neurosql import InputError
from neurosql.methods.ot_cfm import OTCFM, couple, integrate
from neurosql.settings import Sampling, Settings
from neurosql.settings.methods import CFMSettings

MEAN, SCALE = 0.8, 0.4


def field(x, t):
    """E[x_1 - x_0 | x_t = x] for x_0 ~ N(0, I) and x_1 ~ N(MEAN, SCALE^2 I), drawn independently."""
    return MEAN + (t * SCALE**2 - (1 - t)) / ((1 - t) ** 2 + t**2 * SCALE**2) * (x - t * MEAN)


class Field(nn.Module):
    classes, shape = None, (2,)

    def __init__(self, off=0.0):
        super().__init__()
        self.mark, self.off = nn.Parameter(torch.zeros(1)), off

    def forward(self, x, t, label=None):
        return field(x, t[:, None]) + self.off


@pytest.mark.parametrize("shape", [(2,), (1, 6, 6)])
@pytest.mark.parametrize("n", [1, 2, 17, 64])
def test_pairs_are_a_permutation_of_least_squared_distance(n, shape):
    random = torch.Generator().manual_seed(n)
    noise, x = (torch.randn(n, *shape, generator=random) for _ in range(2))
    paired = couple(noise, x)
    assert sorted(paired.tolist()) == list(range(n))
    costs = cdist(x.flatten(1), noise.flatten(1), "sqeuclidean")
    assert costs[np.arange(n), paired].sum() == pytest.approx(costs[linear_sum_assignment(costs)].sum(), rel=1e-5)


def test_pairs_are_optimal_within_each_class():
    random = torch.Generator().manual_seed(0)
    noise, x = torch.randn(60, 3, generator=random), torch.randn(60, 3, generator=random)
    label = torch.randint(0, 4, (60,), generator=random)
    paired = couple(noise, x, label)
    assert sorted(paired.tolist()) == list(range(60))
    for value in range(4):
        rows = torch.nonzero(label == value).flatten()
        # A class keeps the noise that was drawn for it, whatever it looks like.
        assert sorted(paired[rows].tolist()) == rows.tolist()
        costs = cdist(x[rows], noise[rows], "sqeuclidean")
        total = (x[rows] - noise[paired[rows]]).square().sum()
        assert float(total) == pytest.approx(costs[linear_sum_assignment(costs)].sum(), rel=1e-5)


def rates(field, x, exact, solver):
    """The order at which the error falls each time the number of steps is doubled, as a power of the step."""
    errors = [float((integrate(field, x, steps, solver) - exact).square().mean().sqrt()) for steps in (20, 40, 80, 160)]
    return -np.diff(np.log2(errors)), errors[-1]


@pytest.mark.parametrize("solver, order", [("euler", 1), ("midpoint", 2), ("heun", 2)])
def test_solvers_carry_the_gaussian_with_their_order_of_accuracy(solver, order):
    """The flow of the closed-form field is x_1 = MEAN + SCALE x_0; on this one the midpoint rule gains an order."""
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found, last = rates(field, x, MEAN + SCALE * x, solver)
    assert (found > order - 0.1).all()
    assert last < (5e-3 if order == 1 else 1e-4)


@pytest.mark.parametrize("solver, order", [("euler", 1), ("midpoint", 2), ("heun", 2)])
def test_solvers_have_their_order_on_any_other_equation(solver, order):
    """dx/dt = x^2, whose solution is x_0 / (1 - x_0 t)."""
    x = torch.linspace(-1, 0.5, 20, dtype=torch.float64)
    found, _ = rates(lambda x, t: x * x, x, x / (1 - x), solver)
    assert found == pytest.approx([order] * 3, abs=0.15)


@pytest.mark.parametrize("solver", ["euler", "midpoint", "heun"])
def test_the_optimal_field_gives_the_moments_of_the_data(solver):
    flow = OTCFM(Field(), CFMSettings(), bounded=False)
    x, _ = flow.sample(20_000, None, torch.Generator().manual_seed(0), Sampling(solver, steps=100))
    assert x.mean(0).tolist() == pytest.approx([MEAN] * 2, abs=4 * SCALE / 20_000**0.5 + 0.003)
    assert x.std(0).tolist() == pytest.approx([SCALE] * 2, rel=4 / 40_000**0.5 + 0.01)


@pytest.mark.parametrize("t", [0.0, 0.25, 0.6, 1.0])
def test_the_field_is_the_conditional_mean_of_the_target(t):
    """Both are jointly Gaussian, so the mean is the regression line of x_1 - x_0 on x_t."""
    random = np.random.default_rng(0)
    n = 200_000
    x0, x1 = random.normal(size=n), MEAN + SCALE * random.normal(size=n)
    xt, target = (1 - t) * x0 + t * x1, x1 - x0
    slope = np.cov(xt, target)[0, 1] / xt.var()
    intercept = target.mean() - slope * xt.mean()
    for at in (-1.0, 0.0, 1.5):
        assert intercept + slope * at == pytest.approx(field(at, t), abs=0.02)


def test_no_field_has_a_lower_loss_than_the_conditional_mean():
    """And its loss is the variance that x_t leaves in x_1 - x_0: here the mean over t of s^2 / ((1-t)^2 + t^2 s^2)."""
    random = torch.Generator().manual_seed(0)
    x = MEAN + SCALE * torch.randn(20_000, 2, generator=random)
    losses = [
        OTCFM(Field(off), CFMSettings(coupling="independent"), bounded=False).heldout_loss(x, None)
        for off in (0.0, -0.2, 0.2)
    ]
    t = np.linspace(0, 1, 2001)
    least = np.trapezoid(SCALE**2 / ((1 - t) ** 2 + t**2 * SCALE**2), t)
    assert losses[0] == pytest.approx(least, rel=0.03)
    assert losses[1:] == pytest.approx([losses[0] + 0.04] * 2, abs=0.02)


def test_optimal_pairs_leave_less_to_guess_than_independent_ones():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(512, 2, generator=random).sign() + 0.05 * torch.randn(512, 2, generator=random)
    noise = torch.randn(512, 2, generator=random)
    paired = couple(noise, x)
    assert (x - noise[paired]).square().sum(1).mean() < 0.4 * (x - noise).square().sum(1).mean()


def test_sigma_widens_the_path():
    seen = []

    class Listening(Field):
        def forward(self, x, t, label=None):
            seen.append(x - t[:, None])
            return super().forward(x, t, label)

    x = torch.ones(4096, 2)
    for sigma in (0.0, 0.5):
        flow = OTCFM(Listening(), CFMSettings(coupling="independent", sigma=sigma), bounded=False)
        flow.losses(x, None, torch.Generator().manual_seed(0))
    # x_t - t = (1 - t) x_0 + sigma noise, of variance E (1 - t)^2 + sigma^2.
    assert float(seen[0].detach().var()) == pytest.approx(1 / 3, rel=0.1)
    assert float(seen[1].detach().var()) == pytest.approx(1 / 3 + 0.25, rel=0.1)


def test_bad_settings_are_refused():
    for name, value in [("sigma", -1.0), ("coupling", "none")]:
        with pytest.raises(InputError, match=name):
            Settings.from_flat({"method": "ot-cfm", name: value})
