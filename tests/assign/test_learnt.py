"""A mixture lattice that follows its codes: it stays a partition, and the law is that of the codes."""

import pytest
import torch
from sklearn.mixture import GaussianMixture

from neurosql import prior
from neurosql.assign.blocks import Block
from neurosql.assign.learnt import follow, parts_of, responsibilities, whitened
from neurosql.density import Mixture


def spread_out(n=600, seed=0):
    """Codes of three components that differ in place, size and shape, and a law that is only near theirs."""
    random = torch.Generator().manual_seed(seed)
    component = torch.randint(3, (n,), generator=random)
    places = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 6.0]], dtype=torch.float64)
    shapes = torch.tensor([[[1.0, 0.0], [0.6, 0.5]], [[0.4, 0.0], [0.0, 1.2]], [[0.7, 0.0], [0.0, 0.7]]]).double()
    noise = torch.randn(n, 2, generator=random, dtype=torch.float64)
    codes = places[component] + torch.einsum("nij,nj->ni", shapes[component], noise)
    near = Mixture(torch.full((1, 3), 1 / 3).double(), (places + 0.5)[None], torch.eye(2).double().repeat(1, 3, 1, 1))
    return codes, component, near


def whole(n):
    return [Block(torch.arange(n), torch.arange(n))]


def settled(codes, law, blocks, rounds=20):
    for _ in range(rounds):
        laid = follow(law, codes, blocks, prior.Normal(codes.shape[1]), seed=0)
        law = laid.law
    return laid


def test_components_divide_images_and_lattice_rows():
    codes, _, law = spread_out()
    laid = follow(law, codes, whole(600), prior.Normal(2), seed=0)
    for what in ("rows", "columns"):
        assert torch.equal(torch.cat([getattr(part, what) for part in laid.parts]).sort().values, torch.arange(600))
    assert [len(part) for part in laid.parts] == (laid.law.weights[0] * 600).round().long().tolist()
    assert [part.columns.tolist() for part in parts_of(laid.law, whole(600))] == [
        p.columns.tolist() for p in laid.parts
    ]


def test_the_law_becomes_that_of_the_codes():
    codes, component, law = spread_out(3000)
    laid = settled(codes, law, whole(3000))
    oracle = GaussianMixture(3, means_init=law.means[0].numpy()).fit(codes.numpy())
    # Ours is shrunk a little towards equal spheres.
    torch.testing.assert_close(laid.law.means[0], torch.from_numpy(oracle.means_), atol=0.02, rtol=0)
    covariances = laid.law.factors[0] @ laid.law.factors[0].mT
    torch.testing.assert_close(covariances, torch.from_numpy(oracle.covariances_), atol=0.05, rtol=0)
    torch.testing.assert_close(laid.law.weights[0], torch.from_numpy(oracle.weights_), atol=0.01, rtol=0)
    found = responsibilities(laid.law, codes)
    torch.testing.assert_close(found, torch.from_numpy(oracle.predict_proba(codes.numpy())), atol=0.1, rtol=0)
    assert (found.argmax(1) == component).double().mean() > 0.98


def test_the_lattice_agrees_with_the_law():
    codes, _, law = spread_out(2000)
    laid = settled(codes, law, whole(2000))
    drawn = laid.law.sample(20_000, None, torch.Generator().manual_seed(0))
    torch.testing.assert_close(laid.lattice.mean(0), drawn.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(laid.lattice.T.cov(), drawn.T.cov(), atol=0.25, rtol=0.03)


def test_whitened_codes_and_quantiles_are_standard_normal_in_every_component():
    codes, _, law = spread_out(3000)
    laid = settled(codes, law, whole(3000))
    points, quantiles = whitened(laid, codes)
    for part in laid.parts:
        for found in (points[part.rows], quantiles[part.columns]):
            torch.testing.assert_close(found.mean(0), torch.zeros(2).double(), atol=0.03, rtol=0)
            torch.testing.assert_close(found.T.cov(), torch.eye(2).double(), atol=0.1, rtol=0)


def test_each_class_has_a_law_of_its_own():
    codes, _, law = spread_out(400)
    labels = torch.arange(400) % 2
    codes[labels == 1] += 20
    rows = [torch.nonzero(labels == label).flatten() for label in (0, 1)]
    blocks = [Block(rows[0], torch.arange(200), 0), Block(rows[1], torch.arange(200, 400), 1)]
    both = Mixture(law.weights.repeat(2, 1), torch.cat([law.means, law.means + 20]), law.factors.repeat(2, 1, 1, 1))
    laid = settled(codes, both, blocks)
    for label, block in enumerate(blocks):
        alone = settled(
            codes[block.rows], Mixture(both.weights[[label]], both.means[[label]], both.factors[[label]]), whole(200)
        )
        torch.testing.assert_close(laid.law.means[label], alone.law.means[0])
        torch.testing.assert_close(laid.lattice[block.columns].mean(0), codes[block.rows].mean(0), atol=0.2, rtol=0)


@pytest.mark.parametrize("codes", [torch.zeros(50, 2).double(), torch.arange(2.0).double().repeat(50, 1)])
def test_codes_that_coincide_still_have_a_law(codes):
    _, _, law = spread_out()
    laid = settled(codes, law, whole(50))
    assert torch.isfinite(laid.lattice).all() and float(laid.law.weights.sum()) == pytest.approx(1)
    assert (laid.law.factors[0].diagonal(dim1=-2, dim2=-1) > 0).all()
