"""The density of codes: what is fitted, what is drawn, and that both agree."""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from neurosql import InputError
from neurosql.density import FEWEST, NAMES, RIDGE, Mixture


def known(seed=0):
    """Three clusters in the plane, as torch has them."""
    rng = torch.Generator().manual_seed(seed)
    weights = torch.tensor([0.5, 0.3, 0.2]).double()
    means = torch.tensor([[0.0, 0.0], [4.0, 1.0], [-2.0, 5.0]]).double()
    factors = torch.randn(3, 2, 2, generator=rng).double().tril() * 0.5 + 0.4 * torch.eye(2)
    factors.diagonal(dim1=-2, dim2=-1).abs_()
    return weights, means, factors


def as_torch(weights, means, factors):
    return MixtureSameFamily(Categorical(weights), MultivariateNormal(means, scale_tril=factors))


def draws(n, seed=0):
    return Mixture(*(part[None] for part in known())).sample(n, None, torch.Generator().manual_seed(seed))


def test_draws_have_the_mixtures_mean_and_covariance():
    weights, means, factors = known()
    mean = weights @ means
    covariance = torch.einsum("k,kij,klj->il", weights, factors, factors)
    covariance += torch.einsum("k,ki,kj->ij", weights, means - mean, means - mean)
    z = draws(200_000)
    assert torch.allclose(z.mean(0), mean, atol=0.03)
    assert torch.allclose(z.T.cov(), covariance, atol=0.1)


def test_log_prob_is_that_of_the_mixture():
    parts = known()
    z = draws(50).requires_grad_()
    found = Mixture(*(part[None] for part in parts)).log_prob(z)
    assert torch.allclose(found, as_torch(*parts).log_prob(z))
    assert torch.isfinite(torch.autograd.grad(found.sum(), z)[0]).all()


def test_a_known_mixture_is_recovered_and_one_gaussian_does_not_do():
    train, test = draws(2000), draws(2000, seed=1)
    truth = as_torch(*known()).log_prob(test).mean()
    mixture, single = (Mixture.fit(train, None, None, components, 0) for components in (3, 1))
    assert mixture.log_prob(test).mean() > truth - 0.02
    assert single.log_prob(test).mean() < truth - 0.5
    order = mixture.weights[0].argsort(descending=True)
    assert torch.allclose(mixture.weights[0, order], known()[0], atol=0.05)
    assert torch.allclose(mixture.means[0, order], known()[1], atol=0.2)


def test_one_component_is_the_mean_and_the_covariance():
    z = draws(500)
    fitted = Mixture.fit(z.float(), None, None, 1, 0)
    covariance = fitted.factors[0, 0] @ fitted.factors[0, 0].T
    assert torch.allclose(fitted.means[0, 0], z.mean(0), atol=1e-5)
    ridge = RIDGE * float(z.var(0, correction=0).mean())
    assert torch.allclose(covariance, z.T.cov(correction=0) + ridge * torch.eye(2), atol=1e-4)
    assert fitted.scale == pytest.approx(math.sqrt(float(covariance.trace()) / 2))


def test_each_class_has_a_density_of_its_own():
    z, labels = draws(600), torch.arange(600) % 3
    z = z + 100.0 * labels[:, None]
    labels[labels == 2] = 3
    fitted = Mixture.fit(z, labels, 4, 2, 0)
    assert fitted.weights[2].sum() == 0, "class 2 has no codes"
    asked = torch.tensor([0, 1, 3] * 50)
    found = fitted.sample(150, asked, torch.Generator().manual_seed(0))
    assert torch.equal((found.mean(1) / 100).round().long().clamp(max=2), asked.clamp(max=2))
    by_row = fitted.of(labels).log_prob(z)
    for label in (0, 1, 3):
        rows, one = labels == label, fitted.of(torch.tensor([label]))
        assert torch.allclose(by_row[rows], one.log_prob(z[rows]))
        assert (one.log_prob(z[~rows]) < by_row[rows].min()).all()


@pytest.mark.parametrize(("n", "dim"), [(1, 3), (2, 3), (5, 8), (45, 2), (60, 16), (200, 3)])
def test_components_are_as_many_as_the_codes_can_bear(n, dim):
    z = torch.randn(n, dim, generator=torch.Generator().manual_seed(0))
    fitted = Mixture.fit(z, None, None, 10, 0)
    used = int((fitted.weights > 0).sum())
    assert used == min(10, max(1, n // max(FEWEST, 2 * dim + 2)))
    assert torch.isfinite(fitted.sample(20, None, torch.Generator())).all()
    assert float(fitted.weights.sum()) == pytest.approx(1)


def test_codes_that_collapsed_to_a_point_still_give_a_density():
    fitted = Mixture.fit(torch.full((50, 3), 2.0), None, None, 4, 0)
    assert torch.allclose(fitted.sample(5, None, torch.Generator()), torch.full((5, 3), 2.0).double(), atol=1e-3)


def test_a_fit_is_repeatable_and_leaves_the_global_random_state_alone():
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = (Mixture.fit(draws(300), None, None, 4, 7) for _ in range(2))
    assert all(torch.equal(getattr(first, name), getattr(second, name)) for name in NAMES)
    assert (np.random.get_state()[1] == before[0]).all() and torch.equal(torch.get_rng_state(), before[1])  # noqa: NPY002


def test_it_survives_a_file():
    first = Mixture.fit(draws(300), None, None, 4, 0)
    second = Mixture.from_tensors(load(save(first.tensors())))
    a, b = (mixture.sample(9, None, torch.Generator().manual_seed(2)) for mixture in (first, second))
    assert torch.equal(a, b)


def test_codes_that_are_not_numbers_are_refused():
    with pytest.raises(InputError, match="not finite"):
        Mixture.fit(torch.tensor([[math.nan, 0.0]]), None, None, 1, 0)
