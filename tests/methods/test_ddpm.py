"""Denoising diffusion: the forward process, the two samplers that reverse it, and the optimal network's output."""

import pytest
import torch
from torch import nn

from neurosql import InputError
from neurosql.methods.ddpm import DDPM, Schedule, ddim, split
from neurosql.settings import Sampling, Settings
from neurosql.settings.methods import DDPMSettings

SCHEDULES = ["linear", "cosine"]
MEAN = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
FACTOR = torch.tensor([[0.9, 0.0, 0.0], [0.4, 0.6, 0.0], [-0.2, 0.1, 0.3]], dtype=torch.float64)
COVARIANCE = FACTOR @ FACTOR.T


class Optimal(nn.Module):
    """E[noise | x_k], or E[v | x_k], for data from N(MEAN, COVARIANCE)."""

    classes, shape = None, (3,)

    def __init__(self, schedule, predict="noise"):
        super().__init__()
        self.schedule, self.predict = schedule, predict
        self.mark = nn.Parameter(torch.zeros(1))

    def forward(self, x, t, label=None):
        a = self.schedule.alpha_bar[(t * self.schedule.steps).round().long()][:, None]
        values, vectors = torch.linalg.eigh(COVARIANCE)
        # (a S + (1 - a) I)^-1 (x - sqrt(a) m), in the axes of S.
        centred = (x.double() - a.sqrt() * MEAN) @ vectors / (a * values + 1 - a)
        noise, start = (1 - a).sqrt() * centred @ vectors.T, MEAN + a.sqrt() * (centred * values) @ vectors.T
        return (noise if self.predict == "noise" else a.sqrt() * noise - (1 - a).sqrt() * start).to(x)


def method(network, bounded=False, **settings):
    return DDPM(network, DDPMSettings(**settings), bounded)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [1000, 200, 50])
def test_noise_only_grows_and_in_the_end_is_all_there_is(name, steps):
    schedule = Schedule(steps, name)
    a = schedule.alpha_bar
    assert a[0] == 1 and (a.diff() < 0).all() and 0 < a[-1] < 1e-4
    assert ((schedule.beta[1:] > 0) & (schedule.beta[1:] < 1)).all()


def test_the_linear_schedule_is_the_usual_one():
    schedule = Schedule(1000)
    assert torch.allclose(schedule.beta[1:], torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64))
    assert schedule.alpha_bar[-1] == pytest.approx(4.04e-5, rel=0.01)


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_step_after_another_gives_the_marginal_in_closed_form(name):
    """Mean factor and variance by the one-step kernel's own recursion, and of draws made all at once."""
    schedule = Schedule(300, name)
    factor, variance = 1.0, 0.0
    random = torch.Generator().manual_seed(0)
    start = torch.full((40_000, 1), 0.7, dtype=torch.float64)
    for k in range(1, 301):
        beta = float(schedule.beta[k])
        factor, variance = (1 - beta) ** 0.5 * factor, (1 - beta) * variance + beta
        a = float(schedule.alpha_bar[k])
        assert factor == pytest.approx(a**0.5, abs=1e-12)
        assert variance == pytest.approx(1 - a, abs=1e-12)
        if k % 75 == 0:
            noise = torch.randn(start.shape, generator=random, dtype=torch.float64)
            drawn = schedule.noised(start, noise, torch.full((len(start),), k))
            assert float(drawn.mean()) == pytest.approx(0.7 * factor, abs=4 * (variance / len(start)) ** 0.5)
            assert float(drawn.var()) == pytest.approx(variance, rel=4 * (2 / len(start)) ** 0.5)


@pytest.mark.parametrize("name", SCHEDULES)
def test_iterated_kernel_and_closed_form_have_one_law(name):
    schedule = Schedule(60, name)
    random = torch.Generator().manual_seed(1)
    x = torch.full((40_000,), -0.4, dtype=torch.float64)
    for k in range(1, 31):
        beta = schedule.beta[k]
        x = (1 - beta).sqrt() * x + beta.sqrt() * torch.randn(x.shape, generator=random, dtype=torch.float64)
    a = float(schedule.alpha_bar[30])
    assert float(x.mean()) == pytest.approx(-0.4 * a**0.5, abs=4 * ((1 - a) / len(x)) ** 0.5)
    assert float(x.var()) == pytest.approx(1 - a, rel=4 * (2 / len(x)) ** 0.5)


@pytest.mark.parametrize("k", [1, 30, 99, 100])
def test_noise_and_v_say_the_same(k):
    schedule = Schedule(100, "cosine")
    random = torch.Generator().manual_seed(0)
    start, noise = (torch.randn(8, 2, 3, generator=random, dtype=torch.float64) for _ in range(2))
    at = torch.full((8,), k)
    x, v = schedule.noised(start, noise, at), schedule.velocity(start, noise, at)
    for predict, output in (("noise", noise), ("v", v)):
        found_start, found_noise = split(schedule, predict, x, output, k)
        assert torch.allclose(found_start, start, atol=1e-8)
        assert torch.allclose(found_noise, noise, atol=1e-8)
    # v is the rotation of (x_0, noise) by a quarter turn from x_k.
    a = schedule.alpha_bar[k]
    assert torch.allclose(a.sqrt() * v + (1 - a).sqrt() * x, noise, atol=1e-12)


@pytest.mark.parametrize("predict", ["noise", "v"])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("choice", [Sampling("ancestral"), Sampling("ddim", steps=250)], ids=["ancestral", "ddim"])
def test_the_optimal_network_recovers_a_gaussian(predict, name, choice):
    """The ancestral sampler, and DDIM: both give N(MEAN, COVARIANCE) within Monte Carlo error."""
    n = 8000
    network = Optimal(Schedule(1000, name), predict)
    diffusion = method(network, predict=predict, noise_schedule=name)
    noise = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        x = diffusion.carry(noise, None, torch.Generator().manual_seed(1), choice).double()
    variances = COVARIANCE.diag()
    assert ((x.mean(0) - MEAN).abs() < 4 * (variances / n).sqrt() + 0.01).all()
    scale = (variances[:, None] * variances).sqrt()
    assert ((x.T.cov() - COVARIANCE).abs() / scale < 4 * (2 / n) ** 0.5 + 0.02).all()


def test_more_ddim_steps_come_closer_to_the_exact_flow():
    """The probability flow of a Gaussian is affine: x_0 = m + S^(1/2) (a S + (1 - a) I)^(-1/2) (x_T - sqrt(a) m)."""
    schedule = Schedule(1000)
    network = Optimal(schedule)
    values, vectors = torch.linalg.eigh(COVARIANCE)
    a = schedule.alpha_bar[-1]
    exact = vectors @ torch.diag((values / (a * values + 1 - a)).sqrt()) @ vectors.T
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = MEAN + (x - a.sqrt() * MEAN) @ exact

    def guess(x, k):
        return split(schedule, "noise", x, network(x, torch.full((1,), k / 1000)), k)

    errors = [
        float((ddim(schedule, guess, x, schedule.strided(count)) - target).square().mean().sqrt())
        for count in (10, 30, 100, 300, 1000)
    ]
    assert all(after < 0.6 * before for before, after in zip(errors, errors[1:]))
    assert errors[-1] < 2e-3


def test_strided_steps_fall_from_the_last_to_the_first():
    schedule = Schedule(1000)
    assert schedule.strided(1000) == list(range(1000, 0, -1))
    few = schedule.strided(100)
    assert len(set(few)) == 100 and few[0] == 1000 and few[-1] == 1
    assert schedule.strided(1) == [1000]


def test_bounded_data_bound_the_guess_and_x_stays_their_sum():
    class Wild(Optimal):
        def forward(self, x, t, label=None):
            return 5 * torch.ones_like(x)

    schedule = Schedule(100)
    diffusion = method(Wild(schedule), bounded=True, noise_steps=100)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    start, noise = diffusion.guess(x, 40, None)
    a = float(schedule.alpha_bar[40])
    assert start.abs().max() <= 1
    assert torch.allclose(a**0.5 * start + (1 - a) ** 0.5 * noise, x, atol=1e-5)
    samples, _ = diffusion.sample(20, None, torch.Generator().manual_seed(0), Sampling(steps=10))
    assert samples.min() >= 0 and samples.max() <= 1


@pytest.mark.parametrize("predict", ["noise", "v"])
def test_no_network_has_a_lower_loss_than_the_conditional_mean(predict):
    schedule = Schedule(100)
    random = torch.Generator().manual_seed(0)
    x = (MEAN + torch.randn(4000, 3, generator=random, dtype=torch.float64) @ FACTOR.T).float()

    class Off(Optimal):
        def forward(self, x, t, label=None):
            return super().forward(x, t) + self.by

    losses = []
    for by in (0.0, -0.2, 0.2):
        network = Off(schedule, predict)
        network.by = by
        diffusion = method(network, predict=predict, noise_steps=100)
        losses.append(diffusion.heldout_loss(x, None))
    assert losses[0] + 0.03 < min(losses[1:])
    assert losses[1:] == pytest.approx([losses[0] + 0.04] * 2, abs=0.02)


def test_there_are_no_more_steps_back_than_forth():
    diffusion = method(Optimal(Schedule(20)), noise_steps=20)
    drawn = [
        diffusion.sample(5, None, torch.Generator().manual_seed(0), Sampling(steps=steps))[0]
        for steps in (20, None, 500)
    ]
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="noise_schedule must be one of"):
        Settings.from_flat({"method": "ddpm", "noise_schedule": "square"})
