"""Assignment along candidate pairs: bounds against scipy and the dense optimum, with and without the extension."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from neurosql import assign, data, engine
from neurosql.assign import candidates, proposals
from neurosql.assign.matching import Graph, Matching, match
from neurosql.cost import Cost
from neurosql.errors import InputError


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    """Runs a test with the compiled extension and without it."""
    if request.param == "plain":
        monkeypatch.setenv("NEUROSQL_NATIVE", "0")
    else:
        compiled()
    return request.param


def compiled():
    native = engine.native()
    if native is None or not hasattr(native, "assign_sparse"):
        pytest.skip("the compiled extension is not built")
    return native


def graph_of(matrix: np.ndarray, mask: np.ndarray) -> tuple[Graph, np.ndarray]:
    """The pairs where `mask` holds, and their costs."""
    keys = np.flatnonzero(mask.ravel())
    return Graph.from_keys(keys, *matrix.shape), matrix.ravel()[keys].astype(np.float32)


def random_graph(seed: int, n: int, m: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Costs (n, m) and a mask with about `degree` pairs per row, among them a perfect matching of the rows."""
    random = np.random.default_rng(seed)
    mask = random.random((n, m)) < degree / m
    mask[np.arange(n), random.permutation(m)[:n]] = True
    return random.random((n, m)).astype(np.float32), mask


@cache
def sample(n: int) -> torch.Tensor:
    return torch.from_numpy(data.load("mnist-sample", n).x)


def blurred(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """n real digits, and n images like those of a generator: other digits, mixed in pairs."""
    images = sample(3 * n)
    order = torch.randperm(3 * n, generator=torch.Generator().manual_seed(seed))
    x, one, other = images[order].split(n)
    return x, 0.75 * one + 0.25 * other


def check_duals(pairs: Graph, costs: np.ndarray, outside: float, found: Matching, epsilon: float) -> None:
    """Feasible on the graph, in the promised form, and within epsilon per row of the matching's total."""
    columns, u, v = found
    assert np.all(u <= outside)
    assert np.all(v <= 0)
    assert np.all(u[pairs.rows] + v[pairs.indices] <= costs.astype(np.float64) + 1e-9)
    taken = columns[columns >= 0]
    assert len(np.unique(taken)) == len(taken)
    assert np.all(np.delete(v, taken) == 0)
    matched = pairs.indices == columns[pairs.rows]
    assert matched.sum() == len(taken), "each row's column is one of its pairs"
    total = costs[matched].sum(dtype=np.float64) + outside * (columns < 0).sum()
    assert -1e-6 <= total - (u.sum() + v.sum()) <= len(columns) * (epsilon + 1e-9) + 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_a_matching_is_within_its_epsilon_of_the_optimum(path, seed):
    n = 60
    matrix, mask = random_graph(seed, n, n, degree=4)
    pairs, costs = graph_of(matrix, mask)
    full = csr_array((costs.astype(np.float64) + 1, pairs.indices, pairs.indptr), shape=(n, n))
    rows, columns = min_weight_full_bipartite_matching(full)
    optimum = matrix[rows, columns].sum(dtype=np.float64)
    # More expensive than any detour: no row stays without a column.
    found = match(pairs, costs, outside=2.0 * n, epsilon=1e-4)
    assert np.all(found.columns >= 0)
    assert mask[np.arange(n), found.columns].all()
    assert optimum - 1e-4 <= matrix[np.arange(n), found.columns].sum(dtype=np.float64) <= optimum + n * 1e-4
    check_duals(pairs, costs, 2.0 * n, found, 1e-4)


@pytest.mark.parametrize("outside", [0.05, 0.4, 1.0, 5.0])
@pytest.mark.parametrize("shape", [(50, 50), (50, 80), (80, 50)])
def test_rows_stay_out_where_that_is_cheaper_or_necessary(path, outside, shape):
    random = np.random.default_rng(int(10 * outside) + shape[1])
    matrix = random.random(shape).astype(np.float32)
    pairs, costs = graph_of(matrix, random.random(shape) < 0.05)
    found = match(pairs, costs, outside, epsilon=1e-4)
    check_duals(pairs, costs, outside, found, 1e-4)
    with_dummies = np.hstack([np.full(shape, 1e3), np.full((shape[0], shape[0]), outside)])
    with_dummies[pairs.rows, pairs.indices] = costs
    optimum = assign.solve(with_dummies).cost * shape[0]
    total = matrix[np.arange(shape[0]), found.columns][found.columns >= 0].sum(dtype=np.float64)
    total += outside * (found.columns < 0).sum()
    assert optimum - 1e-5 <= total <= optimum + shape[0] * 1e-4


def test_a_matching_along_all_pairs_is_the_dense_optimum(path):
    matrix = np.random.default_rng(0).random((40, 40)).astype(np.float32)
    pairs, costs = graph_of(matrix, np.ones((40, 40), bool))
    found = match(pairs, costs, outside=2.0, epsilon=1e-5)
    cost = matrix[np.arange(40), found.columns].mean(dtype=np.float64)
    assert cost == pytest.approx(assign.solve(matrix).cost, abs=1.1e-5)


def test_ties_constant_costs_and_empty_rows_are_handled(path):
    mask = np.ones((30, 30), bool)
    mask[[3, 7]] = False
    for matrix in (np.zeros((30, 30)), np.full((30, 30), 0.3), np.full((30, 30), -2.0)):
        pairs, costs = graph_of(matrix, mask)
        found = match(pairs, costs, outside=1.0, epsilon=1e-3)
        assert sorted(np.flatnonzero(found.columns < 0)) == [3, 7]
        check_duals(pairs, costs, 1.0, found, 1e-3)
    nothing = match(Graph.from_keys(np.empty(0, np.int64), 3, 2), np.empty(0, np.float32), outside=1.0)
    assert nothing.columns.tolist() == [-1, -1, -1]
    none = match(Graph.from_keys(np.empty(0, np.int64), 0, 2), np.empty(0, np.float32), outside=1.0)
    assert none.columns.shape == (0,)
    assert none.column_duals.tolist() == [0.0, 0.0]


def test_many_rows_on_few_columns_fill_these_columns(path):
    """Hubs: 200 rows have only the same three columns, and the three cheapest rows get them."""
    matrix = np.random.default_rng(0).random((200, 200)).astype(np.float32)
    mask = np.zeros((200, 200), bool)
    mask[:, :3] = True
    pairs, costs = graph_of(matrix, mask)
    found = match(pairs, costs, outside=1.0, epsilon=1e-4)
    assert (found.columns >= 0).sum() == 3
    check_duals(pairs, costs, 1.0, found, 1e-4)


def test_the_auction_is_deterministic_and_stops_after_its_bids():
    native = compiled()
    matrix, mask = random_graph(0, 100, 100, degree=6)
    pairs, costs = graph_of(matrix, mask)
    arguments = pairs.indptr, pairs.indices, costs, 100, np.array([1e-6]), 50.0
    first, second = (native.assign_sparse(*arguments, 10**6) for _ in range(2))
    for one, other in zip(first[:3], second[:3]):
        np.testing.assert_array_equal(one, other)
    assert not first[3]["gave_up"]
    columns, u, v, counters = native.assign_sparse(*arguments, 50)
    assert counters["gave_up"]
    assert counters["bids"] + counters["reverse_bids"] <= 50
    assert len(np.unique(columns[columns >= 0])) == (columns >= 0).sum() > 0
    assert np.all(u[pairs.rows] + v[pairs.indices] <= costs.astype(np.float64) + 1e-9)


def test_bad_graphs_are_refused(path):
    pairs = Graph(np.array([0, 1, 2]), np.array([0, 1], np.int32), 2)
    costs = np.array([0.5, 0.5], np.float32)
    for bad, value, outside, epsilon in [
        (pairs, costs[:1], 1.0, None),
        (pairs, np.array([0.5, np.nan], np.float32), 1.0, None),
        (pairs, np.array([np.inf, 0.5], np.float32), 1.0, None),
        (pairs, costs, math.inf, None),
        (pairs, costs, math.nan, None),
        (pairs, costs, 1.0, 0.0),
        (pairs, costs, 1.0, math.nan),
        (pairs._replace(indices=np.array([0, 2], np.int32)), costs, 1.0, None),
        (pairs._replace(indices=np.array([-1, 1], np.int32)), costs, 1.0, None),
        (pairs._replace(indptr=np.array([0, 2, 1])), costs, 1.0, None),
        (pairs._replace(indptr=np.array([0, 1, 3])), costs, 1.0, None),
        (pairs._replace(indptr=np.array([1, 1, 2])), costs, 1.0, None),
    ]:
        with pytest.raises(InputError):
            match(bad, value, outside, epsilon)


def test_the_extension_itself_refuses_bad_arguments():
    native = compiled()
    good = dict(
        indptr=np.array([0, 1]),
        indices=np.array([0], np.int32),
        costs=np.array([0.5], np.float32),
        columns=1,
        epsilons=np.array([0.1]),
        outside=1.0,
        most_bids=10,
    )
    assert native.assign_sparse(**good)[0].tolist() == [0]
    for name, value in [
        ("indptr", np.empty(0, np.int64)),
        ("indices", np.array([5], np.int32)),
        ("costs", np.array([np.nan], np.float32)),
        ("costs", np.empty(0, np.float32)),
        ("columns", -1),
        ("epsilons", np.empty(0)),
        ("epsilons", np.array([-1.0])),
        ("epsilons", np.array([np.nan])),
        ("outside", math.nan),
        ("most_bids", -1),
    ]:
        with pytest.raises(ValueError):
            native.assign_sparse(**{**good, name: value})
    for name, value in [("indptr", np.array([0.0, 1.0])), ("indices", np.array([0])), ("costs", None)]:
        with pytest.raises(TypeError):
            native.assign_sparse(**{**good, name: value})
    for arguments in [(-1, 2, 1), (2, 2, 0), (2, 2**31, 1)]:
        with pytest.raises(ValueError):
            native.SmallestPairs(*arguments)
    smallest = native.SmallestPairs(2, 2, 1)
    for place in [(1, 0), (0, 1), (-1, 0), (0, -1)]:
        with pytest.raises(ValueError):
            smallest.offer(np.zeros((2, 2), np.float32), *place)
    with pytest.raises(TypeError):
        smallest.offer(np.zeros((2, 2)), 0, 0)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_smallest_scores_of_rows_and_columns_are_those_of_a_sort(threads, k):
    native = compiled()
    random = np.random.default_rng(k)
    scores = random.permutation(150 * 700).reshape(150, 700).astype(np.float32)
    scores[3, 5] = np.nan
    smallest = native.SmallestPairs(150, 700, k)
    for i in range(0, 150, 64):
        for j in range(0, 700, 300):
            smallest.offer(np.ascontiguousarray(scores[i : i + 64, j : j + 300]), i, j, threads)
    expected = np.sort(np.argsort(scores, axis=1)[:, :k], axis=1)
    np.testing.assert_array_equal(smallest.rows().reshape(150, k), expected)
    expected = np.sort(np.argsort(scores, axis=0)[:k].T, axis=1)
    np.testing.assert_array_equal(smallest.columns().reshape(700, k), expected)


def test_neighbours_are_the_nearest_of_rows_and_of_columns(path):
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(70, 6, generator=random), torch.randn(50, 6, generator=random)
    pairs = candidates.neighbours(x, y, k=4)
    distances = torch.cdist(x, y).numpy()
    mask = np.zeros((70, 50), bool)
    np.put_along_axis(mask, np.argsort(distances, axis=1)[:, :4], True, axis=1)
    np.put_along_axis(mask, np.argsort(distances, axis=0)[:4], True, axis=0)
    np.testing.assert_array_equal(pairs.keys, np.flatnonzero(mask))
    assert (pairs.indptr.dtype, pairs.indices.dtype, pairs.columns) == (np.int64, np.int32, 50)


def test_neighbours_keep_the_first_principal_components_only(path):
    """Noise of small variance in 300 other directions does not change who is near."""
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 3, generator=random), torch.randn(80, 3, generator=random)
    turn = torch.linalg.qr(torch.randn(300, 300, generator=random)).Q
    noisy = [torch.cat([z, 1e-3 * torch.randn(80, 297, generator=random)], 1) @ turn for z in (x, y)]
    keys = candidates.neighbours(x, y, k=5).keys
    assert len(np.intersect1d(keys, candidates.neighbours(*noisy, k=5, dims=3).keys)) >= 0.97 * len(keys)


def test_all_pairs_give_the_dense_optimum(path):
    x, y = blurred(40)
    cost = Cost()
    result = candidates.solve(cost, x, y, k=40)
    optimum = assign.solve(cost.matrix(x, y))
    assert sorted(result.permutation.tolist()) == list(range(40))
    assert result.compared == 40 * 40
    assert result.cost == pytest.approx(optimum.cost, rel=2e-4)
    assert result.cost == pytest.approx(float(cost.paired(x, y[result.permutation]).double().mean()), rel=1e-5)
    # All rows are in the sample, and all pairs in the graph: the estimate is a bound.
    assert result.gap_estimate >= result.cost - optimum.cost - 1e-6
    assert result.gap_estimate <= 2e-4 * result.cost
    assert not result.exact


def test_real_digits_come_within_a_hundredth_of_the_optimum(path):
    x, y = blurred(500)
    cost = Cost() if path == "compiled" else Cost.named("l1")
    result = candidates.solve(cost, x, y, k=32)
    optimum = assign.solve(cost.matrix(x, y)).cost
    assert sorted(result.permutation.tolist()) == list(range(500))
    assert optimum * (1 - 1e-6) <= result.cost <= 1.01 * optimum
    assert result.compared < 500 * 500 / 3
    assert result.cost - optimum <= result.gap_estimate + 3 * result.gap_error
    assert not result.hubs
    again = candidates.solve(cost, x, y, k=32)
    assert torch.equal(again.permutation, result.permutation)


@pytest.mark.parametrize("shape", [(7,), (2, 12), (1, 6, 6), (2, 11, 11)])
def test_vectors_signals_and_small_images_are_assigned_too(path, shape):
    random = torch.Generator().manual_seed(1)
    x, y = torch.rand(90, *shape, generator=random), torch.rand(90, *shape, generator=random)
    cost = Cost.named("l2") if len(shape) == 1 else Cost()
    result = candidates.solve(cost, x, y, k=12, dims=5)
    assert sorted(result.permutation.tolist()) == list(range(90))
    assert result.cost <= 1.1 * assign.solve(cost.matrix(x, y)).cost


def test_hubs_are_reported_and_survived(path):
    """Images that hardly differ are near the mean of all digits: every digit proposes the same few."""
    x, y = blurred(300)
    mean = y.mean(0, keepdim=True)
    y = mean + 0.02 * (y - mean)
    cost = Cost.named("l1")
    result = candidates.solve(cost, x, y, k=2)
    assert result.hubs
    assert result.searches > 2
    assert sorted(result.permutation.tolist()) == list(range(300))
    assert result.cost <= 1.01 * assign.solve(cost.matrix(x, y)).cost


def test_a_collapsed_generator_is_survived(path, monkeypatch):
    """All generated images are equal: no permutation is better than another, and most rows are completed in pieces."""
    monkeypatch.setattr(proposals, "_DENSE_ROWS", 32)
    x, _ = blurred(150)
    result = candidates.solve(Cost.named("l1"), x, x[:1].expand_as(x), k=4)
    assert sorted(result.permutation.tolist()) == list(range(150))
    assert result.hubs
    assert result.completed > 32


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_images_are_assigned(path, n):
    result = candidates.solve(Cost.named("l2"), torch.rand(n, 3), torch.rand(n, 3))
    assert sorted(result.permutation.tolist()) == list(range(n))
    assert math.isfinite(result.gap_estimate)


def test_bad_images_are_refused(path):
    x, y = torch.rand(6, 1, 8, 8), torch.rand(6, 1, 8, 8)
    broken = y.clone()
    broken[2, 0, 3, 3] = math.nan
    for arguments in [
        dict(y=y[:5]),
        dict(y=torch.rand(6, 1, 8, 9)),
        dict(y=broken),
        dict(k=0),
        dict(dims=0),
        dict(sample=0),
        dict(x=torch.rand(6), y=torch.rand(6)),
    ]:
        with pytest.raises(InputError):
            candidates.solve(**{**dict(cost=Cost(), x=x, y=y), **arguments})
