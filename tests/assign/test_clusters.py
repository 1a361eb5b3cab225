"""Mixture lattices: sublattices partition the lattice, and lattice, sampler and density are of one law."""

import ot
import pytest
import torch

from neurosql.assign.blocks import lay_out, lay_out_components
from neurosql.assign.clusters import APART, centres, choose, clusters
from neurosql.data import load
from neurosql.prior import Normal


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def images():
    """Digits and their labels."""
    digits = load("mnist-sample", limit=400)
    return torch.from_numpy(digits.x), torch.from_numpy(digits.labels)


def laid(images, count, conditional=False, dim=3, scale=1.0, seed=0):
    x, labels = images
    prior = Normal(dim, scale=scale)
    given = (labels, 10) if conditional else (None, None)
    return lay_out_components(prior, x, *given, count, chance(seed), seed)


@pytest.mark.parametrize("conditional", [False, True])
def test_sublattices_partition_the_lattice_and_components_the_images(images, conditional):
    layout = laid(images, 4, conditional)
    for blocks in (layout.blocks, layout.parts):
        for what in ("rows", "columns"):
            assert sorted(torch.cat([getattr(block, what) for block in blocks]).tolist()) == list(range(400))
        assert all(len(block.rows) == len(block.columns) for block in blocks)
    if conditional:
        for part in layout.parts:
            assert (images[1][part.rows] == part.label).all()
        assert {part.label for part in layout.parts} == set(range(10))
    else:
        assert len(layout.parts) == 4


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_lattice_and_sampler_agree_in_moments_and_by_a_two_sample_test(images, conditional, dim):
    layout = laid(images, 3, conditional, dim)
    labels = None
    if conditional:
        # The classes of the lattice's rows, as often as they are in it.
        labels = torch.cat([torch.full((len(block),), block.label) for block in layout.blocks])
    drawn = layout.law.sample(400, labels, chance(1))
    torch.testing.assert_close(drawn.mean(0), layout.lattice.mean(0), atol=0.2, rtol=0)
    torch.testing.assert_close(drawn.var(0), layout.lattice.var(0), atol=0.25, rtol=0)

    def energy(a, b):
        return float(2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean())

    observed = energy(drawn, layout.lattice)
    both, by_chance = torch.cat([drawn, layout.lattice]), []
    for seed in range(50):
        order = torch.randperm(len(both), generator=chance(seed))
        by_chance.append(energy(both[order[:400]], both[order[400:]]))
    # The lattice is more even than a sample, so the distance is, if anything, smaller than chance makes it.
    assert observed <= max(by_chance)
    # Another law of the same mean and variance is told apart, where components are apart.
    if dim == 2 and not conditional:
        assert energy(torch.randn(400, dim, generator=chance(2)).double(), layout.lattice) > max(by_chance)


def test_the_density_is_that_of_the_components(images):
    law = laid(images, 3, dim=2).law
    z = law.sample(20, None, chance())
    weights, means, spread = law.weights[0], law.means[0], law.factors[0, 0, 0, 0]
    normal = torch.distributions.Normal(means[None], spread)
    expected = (weights.log() + normal.log_prob(z[:, None]).sum(-1)).logsumexp(1)
    torch.testing.assert_close(law.log_prob(z), expected)


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_the_mixture_has_the_mean_and_the_variance_of_the_prior(images, dim, scale):
    law = laid(images, 6, dim=dim, scale=scale).law
    weights, means = law.weights[0, :, None], law.means[0]
    torch.testing.assert_close((weights * means).sum(0), torch.zeros(dim, dtype=torch.float64))
    variance = (weights * means.square()).sum() / dim + law.factors[0, 0, 0, 0] ** 2
    assert float(variance) == pytest.approx(scale**2)


@pytest.mark.parametrize("dim", [1, 2, 8])
def test_neighbouring_components_hardly_overlap(dim):
    means = torch.rand(10, 1, 6, 6, generator=chance())
    places, spread = centres(means, torch.ones(10), dim, chance(), 0)
    apart = torch.cdist(places, places).fill_diagonal_(torch.inf).amin(1)
    assert float(apart.median() / spread) == pytest.approx(APART)


def test_like_clusters_are_neighbours():
    """On a line of images, the centres' first coordinates are in the order of the line, or in the reverse."""
    means = torch.linspace(0, 1, 7)[:, None, None, None].expand(7, 1, 6, 6)
    places = centres(means, torch.ones(7), 1, chance(), 0)[0][:, 0]
    assert places.tolist() in (places.sort().values.tolist(), places.sort(descending=True).values.tolist())


def test_clusters_find_what_is_apart_and_are_the_same_for_a_seed():
    kinds = torch.arange(90) % 3
    x = torch.eye(3)[kinds][:, None, :, None].expand(-1, 1, 3, 8) + 0.1 * torch.rand(90, 1, 3, 8, generator=chance())
    found = clusters(x, 3, chance(), 0)
    assert len({(int(a), int(b)) for a, b in zip(kinds, found)}) == 3
    assert torch.equal(found, clusters(x, 3, chance(), 0))


@pytest.mark.parametrize(("n", "count", "expected"), [(7, 5, 1), (16, 5, 2), (1, 3, 1), (80, 4, 4)])
def test_few_images_have_fewer_components(n, count, expected):
    x = torch.rand(n, 1, 5, 5, generator=chance())
    assert len(clusters(x, count, chance(), 0).unique()) == expected


@pytest.mark.parametrize("kinds", [1, 3, 5])
def test_the_number_of_components_is_that_of_clusters_that_are_apart(kinds):
    kind = torch.arange(600) % kinds
    x = 3 * torch.eye(5)[kind][:, None, :, None].expand(-1, 1, 5, 4) + torch.randn(600, 1, 5, 4, generator=chance())
    assert choose(x, chance(), 0) == kinds


def test_few_images_are_one_component_unless_more_are_asked_for(images):
    assert choose(images[0][:60], chance(), 0) == 1
    assert choose(images[0], chance(), 0) <= 400 // 80
    layout = laid(images, 0)
    assert len(layout.parts) == choose(images[0], chance(), 0)


def test_one_component_is_the_plain_lattice():
    """`components=1` takes the plain path, bit for bit: a layout of its own is made from two on."""
    prior = Normal(3)
    lattice, blocks = lay_out(prior, 50, None, 4)
    assert torch.equal(lattice, prior.lattice(50, 4)) and len(blocks) == 1


def test_the_sampler_is_nearer_to_the_lattice_than_to_that_of_one_component(images):
    layout = laid(images, 8, dim=2)
    drawn = layout.law.sample(400, None, chance(3))
    own, plain = (
        ot.emd2([], [], torch.cdist(drawn, other).square().numpy())
        for other in (layout.lattice, Normal(2).lattice(400))
    )
    assert own < plain
