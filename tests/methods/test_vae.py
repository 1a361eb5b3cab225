"""The VAE's mathematics: its divergence, its noise, its bound, and what the weights of its terms do."""

import math

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

import neurosql
from neurosql import InputError, presets, prior
from neurosql.methods import vae
from neurosql.methods.base import Batch, Task
from neurosql.settings import Settings

SMALL = dict(method="vae", generator="mlp", width=32, epochs=4, batch_size=30, validate_every=2, latent_dim=3)


def build(shape=(1, 8, 8), **settings):
    return vae.VAE.build(Task(Settings.from_flat(SMALL | settings).resolve("image"), shape))


def posterior(n, dim, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=rng).double(), torch.randn(n, dim, generator=rng).double()


@pytest.mark.parametrize("scale", [1.0, 0.3, 2.5])
def test_the_divergence_is_the_closed_form(scale):
    mean, log_variance = posterior(20, 4)
    q = Independent(Normal(mean, (0.5 * log_variance).exp()), 1)
    p = Independent(Normal(torch.zeros(4).double(), torch.full((4,), scale).double()), 1)
    assert torch.allclose(vae.kl_divergence(mean, log_variance, scale), kl_divergence(q, p))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_the_divergence_is_the_mean_log_ratio(scale):
    """Monte Carlo: KL = E_q log q(z) / p(z), with the method's own draws."""
    mean, log_variance = posterior(1, 3)
    many = [part.expand(200_000, 3) for part in (mean, log_variance)]
    z = vae.draw(*many, torch.Generator().manual_seed(1))
    q, p = Normal(mean, (0.5 * log_variance).exp()), prior.Normal(3, scale=scale)
    ratio = q.log_prob(z).sum(1) - p.log_prob(z)
    error = 5 * float(ratio.std()) / math.sqrt(len(ratio))
    assert float(vae.kl_divergence(mean, log_variance, scale)) == pytest.approx(float(ratio.mean()), abs=error)


def test_no_divergence_from_the_prior_itself_and_some_from_anything_else():
    mean, log_variance = posterior(50, 3)
    assert (vae.kl_divergence(mean, log_variance) > 0).all()
    at_prior = vae.kl_divergence(torch.zeros(1, 3), torch.full((1, 3), 2 * math.log(1.7)), 1.7)
    assert float(at_prior) == pytest.approx(0, abs=1e-6)


def test_draws_have_the_posteriors_moments_and_its_gradients():
    mean, log_variance = (part.requires_grad_() for part in posterior(1, 2))
    z = vae.draw(mean.expand(100_000, 2), log_variance.expand(100_000, 2), torch.Generator().manual_seed(0))
    variance = log_variance.exp()
    assert torch.allclose(z.mean(0), mean[0], atol=0.02)
    assert torch.allclose(z.var(0), variance[0], rtol=0.03)
    # dE[z^2] / dmu = 2 mu and dE[z^2] / dlog sigma^2 = sigma^2, through the draws.
    gradients = torch.autograd.grad(z.square().mean(0).sum(), (mean, log_variance))
    assert torch.allclose(gradients[0], 2 * mean, atol=0.05)
    assert torch.allclose(gradients[1], variance, rtol=0.05)


def linear_model(p=6, d=2):
    """x = W z + b + noise, the columns of W orthogonal, so that the exact posterior has independent coordinates."""
    rng = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(p, p, generator=rng).double())[0]
    weight, bias, variance = basis[:, :d] * torch.tensor([1.5, 0.7]).double(), torch.randn(p, generator=rng), 0.3
    marginal = MultivariateNormal(bias.double(), weight @ weight.T + variance * torch.eye(p).double())
    precision = 1 + weight.square().sum(0) / variance
    x = marginal.mean + torch.randn(8, p, generator=rng).double() @ torch.linalg.cholesky(marginal.covariance_matrix).T
    mean = (x - marginal.mean) @ weight / variance / precision
    return x, weight, marginal, variance, mean, (-precision.log()).expand_as(mean)


def elbo(x, weight, marginal, variance, mean, log_variance, draws=20_000):
    """The bound of each image by the method's own terms, averaged over draws of z."""
    random, p, n = torch.Generator().manual_seed(0), x.shape[1], len(x)
    many = [part.repeat_interleave(draws, 0) for part in (mean, log_variance)]
    y = vae.draw(*many, random) @ weight.T + marginal.mean
    nats = p * vae.gaussian_loss(x.repeat_interleave(draws, 0), y, variance).view(n, draws).mean(1)
    return -nats - vae.kl_divergence(mean, log_variance)


def test_the_gaussian_elbo_is_a_bound_and_tight_at_the_exact_posterior():
    x, weight, marginal, variance, mean, log_variance = linear_model()
    truth = marginal.log_prob(x)
    assert torch.allclose(elbo(x, weight, marginal, variance, mean, log_variance), truth, atol=0.05)
    for shift, wider in [(0.5, 0.0), (0.0, 1.0), (-0.3, -1.0)]:
        loose = elbo(x, weight, marginal, variance, mean + shift, log_variance + wider)
        q = Independent(Normal(mean + shift, (0.5 * (log_variance + wider)).exp()), 1)
        gap = kl_divergence(q, Independent(Normal(mean, (0.5 * log_variance).exp()), 1))
        assert (loose < truth).all()
        assert torch.allclose(truth - loose, gap, atol=0.05)


def test_the_observation_variance_is_the_most_likely_one():
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 16, 1, 4, 4, generator=rng)
    best = vae.optimal_variance(x, y)
    at = {factor: float(vae.gaussian_loss(x, y, factor * best).mean()) for factor in (0.5, 0.9, 1.0, 1.1, 2.0)}
    assert min(at, key=at.get) == 1.0
    # The profile: half the logarithm of 2 pi e v.
    assert at[1.0] == pytest.approx(0.5 * math.log(2 * math.pi * math.e * float(best)), abs=1e-6)
    expected = -Normal(y.double(), 0.4).log_prob(x.double()).flatten(1).mean(1)
    assert torch.allclose(vae.gaussian_loss(x, y, 0.16).double(), expected, atol=1e-5)


def one_loss(method, x, **state):
    for name, value in state.items():
        setattr(method, name, value)
    losses = []
    method.attach(x, None, 0)
    figures = method.training_step(Batch(torch.arange(len(x)), x, None), lambda name, loss: losses.append(loss.item()))
    return losses[0], figures


def test_the_objective_is_the_sum_that_is_written_down(digits):
    x = torch.from_numpy(digits[0][:20, None])
    total, figures = one_loss(build(beta=0.02), x)
    assert total == pytest.approx(figures["reconstruction"] + 0.02 * figures["kl"], abs=1e-6)
    total, figures = one_loss(build(likelihood="gaussian", beta=3.0), x)
    assert total == pytest.approx(figures["reconstruction"] + 3.0 * figures["kl"] / 64, abs=1e-6)


def test_beta_is_in_the_units_of_its_likelihood():
    assert [build(latent_dim=d).beta for d in (2, 3, 8, 32)] == [0.006, 0.004, 0.0015, 0.0015]
    assert build(likelihood="gaussian").beta == 1.0 and build(beta=0.3).beta == 0.3
    assert presets.settings("vae", "paper").own.beta == 0.005


def test_without_beta_it_is_an_autoencoder(digits):
    """Information is free: the loss is that of the reconstructions, and the noise vanishes."""
    x = torch.from_numpy(digits[0][:20, None])
    total, figures = one_loss(build(beta=0.0), x)
    assert total == figures["reconstruction"]
    free, dear = (
        neurosql.fit(digits[0][:300], **SMALL | {"beta": beta, "epochs": 30, "patience": 0}) for beta in (0.0, 0.02)
    )
    last = [run.history[-1] for run in (free, dear)]
    assert last[0]["kl"] > 2 * last[1]["kl"]
    assert last[0]["reconstruction"] < last[1]["reconstruction"]


def test_the_warm_up_rises_linearly_over_its_epochs(digits):
    x = torch.from_numpy(digits[0][:20, None])
    method = build(warmup=4, beta=0.1)
    for seen, share in [(0, 0.0), (20, 0.25), (50, 0.625), (80, 1.0), (200, 1.0)]:
        total, figures = one_loss(method, x, seen=seen)
        assert total == pytest.approx(figures["reconstruction"] + share * 0.1 * figures["kl"], abs=1e-6)


@pytest.mark.parametrize("likelihood", ["cost", "gaussian"])
def test_the_bound_improves_in_training(likelihood, digits):
    run = neurosql.fit(digits[0][:300], **SMALL | {"likelihood": likelihood, "epochs": 20, "patience": 0})
    losses = [record["loss"] for record in run.history]
    heldout = [record["heldout_loss"] for record in run.history if "heldout_loss" in record]
    assert losses[-1] < losses[4] < losses[0]
    assert heldout[-1] < heldout[0]


def test_the_held_out_loss_is_the_same_at_each_call_and_the_noise_is_in_it(digits):
    run = neurosql.fit(digits[0][:200], **SMALL | {"likelihood": "gaussian"})
    x = torch.from_numpy(digits[0][300:340, None])
    before = run.method.random.get_state()
    assert run.method.heldout_loss(x, None) == run.method.heldout_loss(x, None)
    assert torch.equal(run.method.random.get_state(), before)
    assert 0 < float(run.method.variance) < 0.3


def test_codes_are_the_posterior_means(digits):
    run = neurosql.fit(digits[0][:200], **SMALL)
    method = run.method
    outputs = method.encoder.eval()(method.x)
    assert torch.allclose(method.codes, outputs[:, :3], atol=1e-5)
    again = method.cost.paired(method.x, method.decode(method.codes))
    assert torch.allclose(method.encode(method.x)[2], again, atol=1e-5)


def test_the_scale_of_the_prior_is_in_the_samples_and_in_the_divergence(digits):
    run = neurosql.fit(digits[0][:200], **SMALL | {"scale": 2.0})
    assert run.method.scale == 2.0
    codes = 2.0 * torch.randn(5, 3, generator=torch.Generator().manual_seed(4))
    found = run.method.sample(5, None, torch.Generator().manual_seed(4))[0]
    assert torch.equal(found, run.method.decode(codes))


def test_other_priors_are_refused():
    for name in ("cube", "ball", "spherical"):
        with pytest.raises(InputError, match="needs the normal prior"):
            build(prior=name)
