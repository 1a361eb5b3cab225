"""The mathematics of priors and their quantile lattices."""

import math
import re
from pathlib import Path

import numpy as np
import ot
import pytest
import torch
from scipy import stats
from scipy.optimize import linear_sum_assignment
from scipy.stats import qmc

from neurosql import prior
from neurosql.errors import InputError

RADIAL_LATTICES = [(name, kind) for name in ("normal", "ball", "spherical") for kind in prior.LATTICES[name]]
ALL_LATTICES = [*RADIAL_LATTICES, ("cube", "sobol"), ("cube", "iid")]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def radial_cdf(name, dim):
    if name == "normal":
        return stats.chi(dim).cdf
    power = dim if name == "ball" else 1
    return lambda r: np.clip(r, 0, 1) ** power


def coordinate_variance(name, dim):
    return {"normal": 1.0, "cube": 1 / 12, "ball": 1 / (dim + 2), "spherical": 1 / (3 * dim)}[name]


def matching_error(x, y):
    """min over permutations of the mean squared distance between the rows of x and y."""
    cost = ot.dist(np.asarray(x), np.asarray(y))
    return cost[linear_sum_assignment(cost)].mean()


def mixture(n, g):
    """Two well separated normal clouds in the plane, a third and two thirds of the mass."""
    right = torch.rand(n, 1, generator=g, dtype=torch.float64) < 2 / 3
    centre = torch.where(right, torch.tensor([3.0, 0.0]), torch.tensor([-3.0, 0.0])).double()
    return centre + 0.5 * torch.randn(n, 2, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("dim", [2, 3, 5, 16])
@pytest.mark.parametrize("name, kind", ALL_LATTICES)
def test_moments_of_the_lattice_are_those_of_the_law(name, kind, dim):
    n = 4096
    q = prior.make(name, dim, kind).lattice(n).numpy()
    variance = coordinate_variance(name, dim)
    random_error = math.sqrt(variance / n)
    # The radii r / (n_R + 1) stop short of 1, so a grid of few shells has a little less spread than the law.
    shrink = 1 / prior.factorise(n, dim)[0] if kind == "grid" else 0
    assert np.abs(q.mean(0) - (0.5 if name == "cube" else 0)).max() < (5 if kind == "iid" else 2) * random_error
    covariance = np.cov(q.T)
    assert np.abs(np.diag(covariance) / variance - 1).max() < 0.1 + shrink
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 0.1 * variance


@pytest.mark.parametrize("dim", [2, 3, 8, 64])
@pytest.mark.parametrize("name, kind", RADIAL_LATTICES)
def test_radius_of_the_lattice_follows_the_radial_law(name, kind, dim):
    n = 2000
    radius = prior.make(name, dim, kind).lattice(n).norm(dim=1).numpy()
    distance = stats.kstest(radius, radial_cdf(name, dim)).statistic
    if kind == "grid":
        n_r, _, n_0 = prior.factorise(n, dim)
        assert distance < 1 / (n_r + 1) + n_0 / n + 1e-9
    elif kind == "iid" or (name, kind) == ("normal", "sobol"):
        assert distance < 1.63 / math.sqrt(n)
    else:
        assert distance < 3 / n


@pytest.mark.parametrize("name, kind", ALL_LATTICES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 100, 1000])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 64])
def test_every_size_gives_distinct_finite_points_of_the_support(name, kind, n, dim):
    law = prior.make(name, dim, kind, scale=0.7)
    q = law.lattice(n)
    assert q.shape == (n, dim) and q.dtype == torch.float64
    assert q.isfinite().all() and len(torch.unique(q, dim=0)) == n
    assert (law.log_prob(q) > -math.inf).all()
    assert (law.log_prob(q.float()) > -math.inf).all()


@pytest.mark.parametrize("dim", [2, 3, 5, 8])
@pytest.mark.parametrize("name, kind", [x for x in ALL_LATTICES if x[1] != "iid"])
def test_lattice_has_lower_discrepancy_than_iid(name, kind, dim):
    def on_the_cube(law, seed):
        q = law.lattice(500, seed)
        if name in ("ball", "spherical"):
            q = prior.Normal(dim).from_ball(law.to_ball(q))
        return q.numpy() if name == "cube" else stats.norm.cdf(q.numpy())

    lattice = qmc.discrepancy(on_the_cube(prior.make(name, dim, kind), 0))
    iid = prior.make(name, dim, "iid")
    random = np.median([qmc.discrepancy(on_the_cube(iid, seed)) for seed in range(9)])
    assert lattice < (0.8 if kind == "grid" else 0.4) * random


@pytest.mark.parametrize("name, law", [("normal", stats.norm), ("cube", stats.uniform), ("ball", stats.uniform(-1, 2))])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_one_dimensional_lattice_is_the_exact_quantiles(name, law, scale):
    for kind in (k for k in prior.LATTICES[name] if k != "iid"):
        q = prior.make(name, 1, kind, scale).lattice(37, seed=5)[:, 0].numpy()
        np.testing.assert_allclose(q, scale * law.ppf(np.arange(1, 38) / 38), atol=1e-12)


def test_mean_square_error_of_uniform_order_statistics_is_one_over_six_n_plus_one():
    n, repeats = 20, 20000
    z = prior.Cube(1).sample(n * repeats, generator()).reshape(repeats, n).sort(dim=1).values
    error = (z - prior.Cube(1).lattice(n)[:, 0]).square().mean(1).numpy()
    standard_error = error.std() / math.sqrt(repeats)
    assert abs(error.mean() - 1 / (6 * (n + 1))) < 4 * standard_error


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(
    "name, kind", [("ball", "sobol"), ("spherical", "grid"), ("normal", "centre-outward"), ("cube", "sobol")]
)
def test_matching_error_to_a_sample_falls_at_the_optimal_rate(name, kind, dim):
    law = prior.make(name, dim, kind)
    small, large = 64, 512
    error = {
        n: np.mean([matching_error(law.lattice(n, s), law.sample(n, generator(s))) for s in range(repeats)])
        for n, repeats in ((small, 16), (large, 3))
    }
    rate = (small / large) ** (2 / max(dim, 2))
    assert error[large] < 1.6 * rate * error[small]
    if dim == 3:
        assert error[large] > rate * error[small] / 1.6


@pytest.mark.parametrize("dim", [1, 2, 3, 10, 64])
@pytest.mark.parametrize("law", [prior.Normal, prior.Ball, lambda d, scale: prior.Ball(d, "spherical", scale=scale)])
def test_to_ball_and_from_ball_are_inverse(law, dim):
    p = law(dim, scale=3.0)
    z = torch.cat([p.sample(200, generator()), torch.zeros(1, dim, dtype=torch.float64)])
    u = p.to_ball(z)
    assert (u.norm(dim=1) < 1).all()
    torch.testing.assert_close(p.from_ball(u), z, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(p.to_ball(p.from_ball(u)), u, rtol=1e-8, atol=1e-12)
    tiny = 2e-4 * z[:1]
    torch.testing.assert_close(p.from_ball(p.to_ball(tiny)), tiny, rtol=1e-8, atol=0)
    single = p.from_ball(torch.eye(dim)[:1])
    assert single.dtype == torch.float32 and single.isfinite().all()


@pytest.mark.parametrize("name", ["normal", "ball", "spherical"])
def test_to_ball_carries_a_sample_to_the_spherical_uniform_law(name):
    law = prior.make(name, 3, scale=2.0)
    u = law.to_ball(law.sample(3000, generator())).numpy()
    radius = np.linalg.norm(u, axis=1)
    assert stats.kstest(radius, "uniform").pvalue > 1e-3
    assert stats.kstest(u[:, 2] / radius, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    contour = law.from_ball(0.4 * torch.eye(3, dtype=torch.float64)).norm(dim=1)
    share = (law.sample(20000, generator(1)).norm(dim=1) <= contour[0]).double().mean()
    assert abs(share - 0.4) < 4 * math.sqrt(0.24 / 20000)


def test_to_ball_in_one_dimension_is_two_f_minus_one():
    z = torch.linspace(-3, 3, 31, dtype=torch.float64)[:, None]
    np.testing.assert_allclose(prior.Normal(1).to_ball(z).numpy(), 2 * stats.norm.cdf(z.numpy()) - 1, atol=1e-14)


@pytest.mark.parametrize("dim", [2, 7])
def test_radius_and_direction_come_from_one_sobol_point(dim):
    s = qmc.Sobol(dim + 1, scramble=True, rng=np.random.default_rng(3)).random(256)
    direction = stats.norm.ppf(s[:, 1:])
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    for law, radius in (("spherical", s[:, :1]), ("lebesgue", s[:, :1] ** (1 / dim))):
        np.testing.assert_allclose(prior.Ball(dim, law).lattice(256, 3).numpy(), radius * direction, atol=1e-6)


@pytest.mark.parametrize("dim", [2, 6])
def test_both_balls_give_the_normal_the_same_quantiles(dim):
    a = prior.Normal(dim, "centre-outward").lattice(300)
    b = prior.Normal(dim, "centre-outward-lebesgue").lattice(300)
    torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
    for law in ("lebesgue", "spherical"):
        ball = prior.Ball(dim, law)
        torch.testing.assert_close(
            prior.Normal(dim).from_ball(ball.to_ball(ball.lattice(300))), a, rtol=1e-7, atol=1e-9
        )


def test_normal_density_is_that_of_torch():
    z = torch.randn(50, 4, generator=generator(), dtype=torch.float64)
    want = torch.distributions.Normal(0.0, 1.7).log_prob(z).sum(1)
    torch.testing.assert_close(prior.Normal(4, scale=1.7).log_prob(z), want)


@pytest.mark.parametrize("name", prior.NAMES)
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_density_integrates_to_one(name, dim):
    box = 6.0
    x = prior.Cube(dim, -box, box).lattice(2**16)
    # The spherical law has an infinite density at the origin, so its integral converges more slowly.
    mass = prior.make(name, dim, scale=1.3).log_prob(x).exp().mean().item() * (2 * box) ** dim
    assert abs(mass - 1) < (0.1 if name == "spherical" else 0.03)


@pytest.mark.parametrize("name", prior.NAMES)
def test_density_agrees_with_the_sampler(name):
    law = prior.make(name, 2, scale=1.5)
    z = law.sample(40000, generator())
    inside = (z - 0.4).abs().amax(1) < 0.1
    x = 0.4 + prior.Cube(2, -0.1, 0.1).lattice(4096)
    assert abs(inside.double().mean() / (0.04 * law.log_prob(x).exp().mean()) - 1) < 5 / math.sqrt(inside.sum())


@pytest.mark.parametrize("name", prior.NAMES)
def test_log_prob_is_differentiable_and_keeps_its_dtype(name):
    law = prior.make(name, 3, scale=1.2)
    z = law.sample(8, generator()).requires_grad_()
    assert torch.autograd.gradcheck(law.log_prob, (z,))
    assert law.log_prob(z.float()).dtype == torch.float32
    far = torch.full((1, 3), 50.0, requires_grad=True)
    value = law.log_prob(far)
    assert name == "normal" or value.item() == -math.inf
    value.sum().backward()
    assert far.grad.isfinite().all()


@pytest.mark.parametrize("name", prior.NAMES)
@pytest.mark.parametrize("dim", [2, 5])
def test_sampler_and_lattice_follow_the_same_law(name, dim):
    law = prior.make(name, dim, scale=2.0)
    z, q = law.sample(2000, generator(3)).numpy(), law.lattice(2000).numpy()
    for margin in range(dim):
        assert stats.ks_2samp(z[:, margin], q[:, margin]).pvalue > 1e-3
    assert stats.ks_2samp(np.linalg.norm(z, axis=1), np.linalg.norm(q, axis=1)).pvalue > 1e-3


@pytest.mark.parametrize("name, kind", ALL_LATTICES)
def test_seed_decides_the_lattice(name, kind):
    law = prior.make(name, 5, kind)
    state = torch.random.get_rng_state()
    assert torch.equal(law.lattice(100, 1), law.lattice(100, 1))
    assert not torch.equal(law.lattice(100, 1), law.lattice(100, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    doubled = prior.make(name, 5, kind, scale=2.0)
    assert torch.equal(doubled.lattice(100, 1), 2 * law.lattice(100, 1))


@pytest.mark.parametrize("name", prior.NAMES)
def test_iid_lattice_is_a_draw(name):
    law = prior.make(name, 3, "iid")
    assert torch.equal(law.lattice(20, 4), law.sample(20, generator(4)))


@pytest.mark.parametrize("name", prior.NAMES)
def test_short_sobol_lattice_begins_the_long_one(name):
    law = prior.make(name, 3, "sobol")
    assert torch.equal(law.lattice(100), law.lattice(1000)[:100])


@pytest.mark.parametrize("dim", [2, 3, 4, 20, 64])
def test_factorised_grid_has_the_promised_shells(dim):
    for n in (2, 3, 10, 97, 1000, 4099):
        n_r, n_s, n_0 = prior.factorise(n, dim)
        assert n == n_r * n_s + n_0 and 0 <= n_0 < min(n_r, n_s)
        radius = prior.Ball(dim, "spherical", "grid").lattice(n).norm(dim=1)
        want = torch.arange(1, n_r + 1, dtype=torch.float64).repeat_interleave(n_s) / (n_r + 1)
        torch.testing.assert_close(radius[n_0:], want)
        assert (radius[:n_0] < 1 / (n_r + 1)).all()


def test_sampled_prior_reproduces_a_mixture_better_than_iid():
    n, draws = 100, 800
    reference = mixture(2000, generator(99)).numpy()

    def distance(q):
        return ot.emd2([], [], ot.dist(np.asarray(q), reference), numItermax=1_000_000)

    law = prior.Sampled(mixture, 2, draws=draws)
    lattice = np.mean([distance(law.lattice(n, s)) for s in range(3)])
    random = np.median([distance(mixture(n, generator(s))) for s in range(9)])
    assert lattice < 0.6 * random
    pool = mixture(draws, generator(0))
    q = law.lattice(n, 0)
    assert (q[:, None] == pool).all(2).any(1).all()
    assert abs((q[:, 0] > 0).double().mean() - (pool[:, 0] > 0).double().mean()) < 0.04


def test_sampled_lattice_is_the_optimal_transport_of_the_grid():
    def cross(n, g):
        return torch.randn(n, 2, generator=g, dtype=torch.float64) * torch.tensor([5.0, 0.2]) + 100

    n = 60
    q = prior.Sampled(cross, 2, draws=n).lattice(n).numpy()
    u = prior.Ball(2, "spherical", "grid").lattice(n).numpy()
    assert np.square(u - q).sum(1).mean() == pytest.approx(ot.emd2([], [], ot.dist(u, q)), rel=1e-9)


def test_sampled_normal_in_eight_dimensions_keeps_its_spread():
    normal = prior.Normal(8)
    law = prior.Sampled(normal.sample, 8, normal.log_prob, draws=512, scale=2.0)
    q = law.lattice(128)
    assert abs(q.var() / 4 - 1) < 0.15
    torch.testing.assert_close(law.log_prob(q), prior.Normal(8, scale=2.0).log_prob(q))
    assert torch.equal(law.sample(5, generator()), 2 * normal.sample(5, generator()))


def test_sampled_quantiles_in_one_dimension_are_empirical_quantiles():
    law = prior.Sampled(prior.Normal(1).sample, 1, draws=20000)
    q = law.lattice(9)[:, 0].numpy()
    np.testing.assert_allclose(q, stats.norm.ppf(np.arange(1, 10) / 10), atol=0.05)
    assert prior.Sampled(prior.Normal(2).sample, 2).lattice(1).shape == (1, 2)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: prior.Normal(0), "latent_dim must be at least 1, got 0"),
        (lambda: prior.Normal(2.5), "latent_dim must be a whole number, got 2.5"),
        (lambda: prior.Normal(2, "hexagonal"), "must be one of sobol, centre-outward, .*, got 'hexagonal'"),
        (
            lambda: prior.Cube(2, lattice="grid"),
            "the lattice of the cube prior must be one of sobol, iid, got 'grid'",
        ),
        (lambda: prior.Cube(2, low=1, high=1), "low must be less than high, got low 1 and high 1"),
        (lambda: prior.Cube(2, low=-math.inf), "low must be a finite number, got -inf"),
        (
            lambda: prior.Ball(2, law="flat"),
            "the law of the ball must be one of lebesgue, spherical, got 'flat'",
        ),
        (lambda: prior.Normal(2, scale=0), "scale must be greater than 0, got 0"),
        (lambda: prior.Normal(2, scale=math.nan), "scale must be a finite number, got nan"),
        (
            lambda: prior.make("cauchy", 2),
            "the prior must be one of normal, cube, ball, spherical, got 'cauchy'",
        ),
        (
            lambda: prior.make("ball", 2, "centre-outward"),
            "the lattice of the ball prior must be one of sobol, grid, iid",
        ),
        (lambda: prior.Normal(2).lattice(0), "n must be at least 1, got 0"),
        (lambda: prior.Normal(2).lattice(5, seed=-1), "seed must be at least 0, got -1"),
        (lambda: prior.Normal(2).sample(0), "n must be at least 1, got 0"),
        (lambda: prior.Normal(30000).lattice(2), "at most 21201 coordinates, got 30000"),
        (lambda: prior.Normal(2).log_prob(torch.zeros(4, 3)), r"z must have shape \(n, 2\), got \(4, 3\)"),
        (lambda: prior.Normal(2).log_prob(torch.zeros(4, 2, dtype=torch.int64)), "got torch.int64"),
        (lambda: prior.Normal(2).from_ball(torch.ones(1, 2)), "unit ball, got a point of norm 1.41"),
        (lambda: prior.Sampled(mixture, 2).log_prob(torch.zeros(1, 2)), "has no density"),
        (lambda: prior.Sampled(mixture, 3).sample(4), r"must return shape \(4, 3\), got \(4, 2\)"),
        (lambda: prior.Sampled(lambda n, g: torch.full((n, 2), math.nan), 2).sample(4), "finite numbers"),
        (lambda: prior.Sampled(mixture, 2, draws=0), "draws must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused_with_the_value(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_code_of_the_quantiles_page_runs(capsys):
    page = Path(__file__).parents[1] / "docs" / "quantiles.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), str(page), "exec"), {})
    assert capsys.readouterr().out
