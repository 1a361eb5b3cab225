"""Block refinement: it never makes an assignment worse, comes near the optimum, and reaches it in one block."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from neurosql import data, engine
from neurosql.assign import refinement
from neurosql.cost import Cost
from neurosql.errors import InputError


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    """Runs a test with the compiled extension and without it."""
    if request.param == "plain":
        monkeypatch.setenv("NEUROSQL_NATIVE", "0")
    elif engine.native() is None:
        pytest.skip("the compiled extension is not built")
    return request.param


def blurred(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """n real digits, and n images like those of a generator: other digits, mixed in pairs."""
    images = torch.from_numpy(data.load("mnist-sample", 3 * n).x)
    order = torch.randperm(3 * n, generator=torch.Generator().manual_seed(seed))
    x, one, other = images[order].split(n)
    return x, 0.75 * one + 0.25 * other


def optimum(cost: Cost, x: torch.Tensor, y: torch.Tensor) -> float:
    matrix = cost.matrix(x, y).double().numpy()
    return float(matrix[linear_sum_assignment(matrix)].mean())


def mean_cost(cost: Cost, x: torch.Tensor, y: torch.Tensor, permutation: torch.Tensor) -> float:
    return float(cost.paired(x, y[permutation]).double().mean())


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 90), size=st.integers(2, 60), k=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_cost_never_rises_and_the_result_is_a_permutation(n, size, k, seed):
    random = torch.Generator().manual_seed(seed)
    x, y = torch.rand(n, 3, generator=random), torch.rand(n, 3, generator=random)
    before, cost = torch.randperm(n, generator=random), Cost.named("l2")
    stale = -torch.rand(n, generator=random, dtype=torch.float64)
    found = refinement.solve(cost, x, y, before, stale, size, k, seed)
    assert sorted(found.permutation.tolist()) == list(range(n))
    assert found.cost == pytest.approx(mean_cost(cost, x, y, found.permutation), rel=1e-5)
    least = optimum(cost, x, y)
    assert least * (1 - 1e-5) <= found.cost <= mean_cost(cost, x, y, before) * (1 + 1e-5)
    # The same start and the same cuts give the same result.
    assert torch.equal(refinement.solve(cost, x, y, before, stale, size, k, seed).permutation, found.permutation)


@pytest.mark.parametrize("size", [60, 1000])
def test_one_block_of_all_images_gives_the_optimum(path, size):
    x, y = blurred(60)
    for cost in (Cost(), Cost.named("l1")):
        found = refinement.solve(cost, x, y, torch.arange(60).roll(7), size=size)
        assert found.cost == pytest.approx(optimum(cost, x, y), rel=1e-6)
        assert found.exact and found.compared == 60 * 60
        assert found.gap_estimate <= 1e-6


@pytest.mark.parametrize("size", [64, 200])
@pytest.mark.parametrize("start", ["none", "random", "not a permutation"])
def test_real_digits_come_within_a_hundredth_of_the_optimum(path, size, start):
    n = 500
    x, y = blurred(n)
    cost = Cost() if path == "compiled" else Cost.named("l1")
    random = torch.Generator().manual_seed(1)
    before = {
        "none": None,
        "random": torch.randperm(n, generator=random),
        "not a permutation": torch.randint(-1, n, (n,), generator=random),
    }[start]
    found = refinement.solve(cost, x, y, before, size=size)
    least = optimum(cost, x, y)
    assert sorted(found.permutation.tolist()) == list(range(n))
    assert least * (1 - 1e-6) <= found.cost <= 1.01 * least
    assert not found.exact
    assert found.cost - least <= found.gap_estimate + 3 * found.gap_error
    assert found.compared <= n * n / 5


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 400), dim=st.integers(1, 4), size=st.sampled_from([16, 64, 400]), seed=st.integers(0, 99))
def test_points_are_matched_the_better_the_more_sweeps(n, dim, size, seed):
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((2, n, dim)).astype(np.float32)
    values = []
    for sweeps in (0, 1, 3):
        found = refinement.match_points(a, b, size, sweeps, seed)
        assert sorted(found.tolist()) == list(range(n))
        values.append(float(((a - b[found]) ** 2).sum()))
    assert values[2] <= values[1] * (1 + 1e-5) and values[1] <= values[0] * (1 + 1e-5)
    squares = ((a[:, None].astype(np.float64) - b[None]) ** 2).sum(2)
    least = squares[linear_sum_assignment(squares)].sum()
    if size >= n:
        assert values[2] == pytest.approx(least, rel=1e-4)
    assert least * (1 - 1e-4) <= values[2]


def test_an_optimum_stays_one():
    x, y = blurred(300)
    cost = Cost()
    matrix = cost.matrix(x, y).double().numpy()
    best = torch.from_numpy(linear_sum_assignment(matrix)[1])
    found = refinement.solve(cost, x, y, best, size=64)
    assert found.cost == pytest.approx(matrix[np.arange(300), best].mean(), rel=1e-6)


def test_images_travel_from_block_to_block():
    """On a line, from the reverse order: every image must cross all blocks."""
    n = 400
    x = torch.linspace(0, 1, n)[:, None]
    found = refinement.solve(Cost.named("l2"), x, x.clone(), torch.arange(n).flip(0), size=40, k=4)
    assert found.cost <= 1e-3 * mean_cost(Cost.named("l2"), x, x, torch.arange(n).flip(0))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 300), size=st.integers(2, 100), width=st.integers(1, 4), seed=st.integers(0, 99))
def test_cuts_are_a_partition_into_blocks_of_about_one_size(n, size, width, seed):
    random = np.random.default_rng(seed)
    points = random.standard_normal((n, width)).astype(np.float32)
    blocks = refinement.cut(points, size, random)
    assert sorted(np.concatenate(blocks).tolist()) == list(range(n))
    sizes = [len(block) for block in blocks]
    assert max(sizes) <= size and len(blocks) == math.ceil(n / size)
    assert max(sizes) - min(sizes) <= math.log2(len(blocks)) + 1


def test_blocks_hold_neighbours_and_shift():
    random = np.random.default_rng(0)
    points = random.standard_normal((600, 2)).astype(np.float32)
    first, second = (refinement.cut(points, 50, random) for _ in range(2))
    for blocks in (first, second):
        assert np.mean([points[block].var(0).mean() for block in blocks]) < 0.25 * points.var(0).mean()
    together = [{frozenset(block.tolist()) for block in blocks} for blocks in (first, second)]
    assert not together[0] & together[1]


@pytest.mark.parametrize("shape", [(7,), (2, 12), (1, 6, 6)])
def test_equal_images_and_other_shapes_are_assigned_too(path, shape):
    random = torch.Generator().manual_seed(1)
    x = torch.rand(90, *shape, generator=random)
    cost = Cost.named("l2") if len(shape) == 1 else Cost()
    for y in (torch.rand(90, *shape, generator=random), x[:1].expand_as(x), x.flip(0)):
        found = refinement.solve(cost, x, y, size=30)
        assert sorted(found.permutation.tolist()) == list(range(90))
        assert found.cost <= 1.05 * optimum(cost, x, y) + 1e-6


def test_bad_images_are_refused():
    x = torch.rand(20, 1, 8, 8)
    broken = x.clone()
    broken[2, 0, 3, 3] = math.nan
    for arguments in [dict(y=x[:5]), dict(y=broken), dict(size=1), dict(k=0), dict(x=torch.rand(6), y=torch.rand(6))]:
        with pytest.raises(InputError):
            refinement.solve(**{**dict(cost=Cost(), x=x, y=x, size=8), **arguments})
