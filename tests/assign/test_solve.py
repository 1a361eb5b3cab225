"""The assignment and its certificate: properties of the optimum, its dual and the greedy methods."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linear_sum_assignment

from neurosql import assign
from neurosql.assign import METHODS, Assignment, solve
from neurosql.errors import InputError

GREEDY = [m for m in METHODS if m.startswith("greedy")]

# Few distinct values make ties; floats over a wide range make cancellation.
ENTRIES = st.one_of(
    st.integers(-3, 3).map(float), st.floats(-1e3, 1e3, width=32), st.sampled_from([0.1, 0.2, 0.3, 1e-9])
)


def matrices(largest: int, square: bool = False) -> st.SearchStrategy[np.ndarray]:
    sizes = st.integers(1, largest)
    shapes = sizes.map(lambda n: (n, n)) if square else st.tuples(sizes, sizes).map(sorted).map(tuple)
    return shapes.flatmap(lambda shape: hnp.arrays(np.float64, shape, elements=ENTRIES))


def squared_distances(rng: np.random.Generator, n: int, m: int, d: int) -> np.ndarray:
    x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    return (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T


def kinds(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    uniform = rng.random((n, n))
    outlier = uniform.copy()
    outlier[0, n - 1] = 1e12
    return {
        "uniform": uniform,
        "float32": uniform.astype(np.float32),
        "integers with ties": rng.integers(0, 10, (n, n)),
        "tenths with ties": rng.integers(0, 10, (n, n)) * 0.1,
        "constant": np.full((n, n), 0.1),
        "negative": -uniform - 5.0,
        "huge": 1e290 * (uniform - 0.5),
        "tiny": 1e-290 * uniform,
        "subnormal": 1e-320 * uniform,
        "wide range": np.exp(10 * rng.normal(size=(n, n))),
        "one huge entry": outlier,
        "far from zero": 1e6 + uniform,
        "rank one": rng.normal(size=(n, 1)) * rng.normal(size=(1, n)),
        "distances in 1 dimension": squared_distances(rng, n, n, 1),
        "distances in 16 dimensions": squared_distances(rng, n, n, 16),
        "wide": rng.random((n, n + 7)),
        "wide distances": squared_distances(rng, n, 2 * n, 2),
    }


KINDS = list(kinds(2))


def scale(cost: np.ndarray, result: Assignment) -> float:
    """The size of the terms whose rounding the duals carry."""
    matched = cost[np.arange(len(cost)), result.permutation.numpy()].astype(np.float64)
    return float(np.abs(matched).max() + result.column_duals.abs().max())


def assert_valid(cost: np.ndarray, result: Assignment) -> None:
    """π is injective, the mean cost is that of π, and the duals are feasible."""
    n, m = cost.shape
    pi, u, v = result.permutation, result.row_duals, result.column_duals
    assert pi.dtype == torch.int64 and u.dtype == v.dtype == torch.float64
    assert pi.shape == (n,) and u.shape == (n,) and v.shape == (m,)
    assert len(set(pi.tolist())) == n and set(pi.tolist()) <= set(range(m))
    matched = cost[np.arange(n), pi.numpy()].astype(np.float64)
    np.testing.assert_allclose(result.cost, matched.mean(), rtol=1e-14, atol=1e-15 * np.abs(matched).max())
    excess = (u.numpy()[:, None] + v.numpy()) - cost
    assert (excess <= 4e-16 * (np.abs(u.numpy())[:, None] + np.abs(v.numpy()))).all()
    assert (v <= 0).all()
    assert math.isclose(result.dual_value, (u.sum() + v.sum()).item() / n)
    assert result.gap == max(0.0, result.cost - result.dual_value)


def assert_optimal(cost: np.ndarray, result: Assignment) -> None:
    """Complementary slackness and a vanishing gap: a proof of optimality that needs no other solver."""
    n, m = cost.shape
    pi, u, v = result.permutation.numpy(), result.row_duals.numpy(), result.column_duals.numpy()
    size = scale(cost, result)
    slack = cost[np.arange(n), pi] - u - v[pi]
    assert np.abs(slack).max() <= 1e-14 * size
    assert (v[np.setdiff1d(np.arange(m), pi)] == 0).all()
    assert result.gap <= 1e-14 * size
    assert result.exact


@given(matrices(5))
@settings(max_examples=150, deadline=None)
def test_exact_is_the_minimum_over_all_assignments(cost):
    n, m = cost.shape
    best = min(cost[np.arange(n), list(p)].mean() for p in itertools.permutations(range(m), n))
    result = solve(cost)
    assert_valid(cost, result)
    assert_optimal(cost, result)
    assert result.cost == pytest.approx(best, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_exact_is_the_minimum_over_all_permutations_of_seven(seed):
    cost = np.random.default_rng(seed).integers(-20, 20, (7, 7))
    every = np.array(list(itertools.permutations(range(7))))
    assert solve(cost).cost == pytest.approx(cost[np.arange(7), every].mean(axis=1).min(), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 30, 500])
def test_exact_has_the_oracles_cost_and_a_proof_of_it(kind, n):
    cost = kinds(n)[kind]
    result = solve(cost)
    assert_valid(cost, result)
    assert_optimal(cost, result)
    rows, columns = linear_sum_assignment(cost)
    assert result.cost == pytest.approx(cost[rows, columns].mean(dtype=np.float64), rel=1e-12, abs=1e-300)


@given(matrices(12, square=True), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_optimum_ignores_the_order_of_rows_and_columns(cost, random):
    n = len(cost)
    rows, columns = random.sample(range(n), n), random.sample(range(n), n)
    assert solve(cost[rows][:, columns]).cost == pytest.approx(solve(cost).cost, rel=1e-9, abs=1e-9)


@given(matrices(12), st.floats(-1e3, 1e3), st.data())
@settings(max_examples=60, deadline=None)
def test_shifting_a_row_moves_the_optimum_by_the_shift(cost, shift, data):
    row = data.draw(st.integers(0, len(cost) - 1))
    shifted = cost.copy()
    shifted[row] += shift
    assert solve(shifted).cost == pytest.approx(solve(cost).cost + shift / len(cost), rel=1e-9, abs=1e-9)


@given(matrices(12, square=True), st.floats(-1e3, 1e3), st.data())
@settings(max_examples=60, deadline=None)
def test_shifting_a_column_of_a_square_moves_the_optimum_by_the_shift(cost, shift, data):
    column = data.draw(st.integers(0, len(cost) - 1))
    shifted = cost.copy()
    shifted[:, column] += shift
    assert solve(shifted).cost == pytest.approx(solve(cost).cost + shift / len(cost), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_equal_costs_still_give_a_permutation(method):
    result = solve(np.full((40, 40), 0.3), method)
    assert sorted(result.permutation.tolist()) == list(range(40))
    assert result.cost == pytest.approx(0.3) and result.gap <= 1e-15


@pytest.mark.parametrize("method", GREEDY)
@given(cost=matrices(10))
@settings(max_examples=100, deadline=None)
def test_greedy_is_never_cheaper_than_exact_and_its_gap_covers_the_distance(method, cost):
    greedy, exact = solve(cost, method), solve(cost)
    assert_valid(cost, greedy)
    assert not greedy.exact
    rounding = 1e-14 * max(scale(cost, greedy), np.abs(cost).max())
    assert greedy.cost >= exact.cost - rounding
    assert greedy.gap >= greedy.cost - exact.cost - rounding


@pytest.mark.parametrize("method", GREEDY)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_valid_on_every_kind_of_cost(method, kind):
    cost = kinds(60)[kind]
    greedy, exact = solve(cost, method), solve(cost)
    assert_valid(cost, greedy)
    rounding = 1e-14 * max(scale(cost, greedy), scale(cost, exact))
    assert greedy.gap >= greedy.cost - exact.cost - rounding >= -2 * rounding


def algorithm_3(cost: np.ndarray, order: list[int]) -> list[int]:
    """The paper's Algorithm 3, line by line; S holds the assigned columns."""
    n, m = cost.shape
    assigned: set[int] = set()
    permutation = [-1] * n
    for i in order:
        c_min, j_star = math.inf, -1
        for j in range(m):
            if j not in assigned and cost[i, j] < c_min:
                c_min, j_star = cost[i, j], j
        permutation[i] = j_star
        assigned.add(j_star)
    return permutation


@given(matrices(9), st.booleans())
@settings(max_examples=150, deadline=None)
def test_greedy_is_algorithm_3(cost, single):
    cost = cost.astype(np.float32) if single else cost
    n, m = cost.shape
    by_minimum = sorted(range(n), key=lambda i: cost[i].min())
    ordered = np.sort(cost.astype(np.float64), axis=1)
    by_regret = sorted(range(n), key=lambda i: ordered[i, 0] - ordered[i, 1]) if m > 1 else [0]
    assert solve(cost, "greedy").permutation.tolist() == algorithm_3(cost, list(range(n)))
    assert solve(cost, "greedy-cheapest").permutation.tolist() == algorithm_3(cost, by_minimum)
    assert solve(cost, "greedy-regret").permutation.tolist() == algorithm_3(cost, by_regret)


def test_each_order_of_rows_matters():
    cost = np.array([[2.0, 3.0, 9.0], [1.0, 5.0, 6.0], [0.5, 0.6, 0.7]])
    assert solve(cost, "greedy").permutation.tolist() == [0, 1, 2]
    assert solve(cost, "greedy-cheapest").permutation.tolist() == [2, 1, 0]
    assert solve(cost, "greedy-regret").permutation.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    "cost, bound",
    [
        ([[2, 0, 1], [1, 1, 1], [3, 0, 2]], 1),
        ([[0, 0, 3], [1, 1, 3], [1, 2, 3]], 4),
        ([[-7, -6, 0], [-7, -2, 1], [-9, -1, -8]], -21),
    ],
)
def test_greedy_bound_takes_row_minima_and_then_column_minima(cost, bound):
    result = solve(np.array(cost), "greedy")
    assert result.dual_value == pytest.approx(bound / 3)
    np.testing.assert_allclose(result.row_duals, (np.array(cost) - result.column_duals.numpy()).min(axis=1))


@pytest.mark.parametrize("method", GREEDY)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_the_same_with_and_without_the_extension(method, kind, monkeypatch):
    for n in (1, 2, 33, 150):
        cost = kinds(max(n, 2))[kind][:n]
        here = solve(cost, method)
        monkeypatch.setenv("NEUROSQL_NATIVE", "0")
        plain = solve(cost, method)
        monkeypatch.delenv("NEUROSQL_NATIVE")
        assert torch.equal(here.permutation, plain.permutation) and here.cost == pytest.approx(plain.cost, rel=1e-14)
        rounding = 1e-14 * scale(cost, plain)
        torch.testing.assert_close(here.column_duals, plain.column_duals, rtol=0, atol=rounding)
        torch.testing.assert_close(here.row_duals, plain.row_duals, rtol=0, atol=rounding)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.int32, torch.bfloat16])
def test_tensors_and_arrays_agree(method, dtype):
    cost = (100 * torch.rand(20, 23, generator=torch.Generator().manual_seed(0))).to(dtype)
    array = (cost.float() if dtype == torch.bfloat16 else cost).numpy()
    if dtype.is_floating_point:
        cost = cost.clone().requires_grad_()
    from_tensor, from_array = solve(cost, method), solve(array, method)
    assert torch.equal(from_tensor.permutation, from_array.permutation)
    assert torch.equal(from_tensor.row_duals, from_array.row_duals)
    assert torch.equal(from_tensor.column_duals, from_array.column_duals)
    assert from_tensor.cost == from_array.cost


@pytest.mark.parametrize("method", METHODS)
def test_memory_layout_does_not_matter_and_the_input_is_kept(method):
    cost = np.random.default_rng(0).random((30, 30))
    layouts = [cost, np.asfortranarray(cost), cost.astype(">f8"), np.repeat(cost, 2, axis=1)[:, ::2]]
    layouts[0].setflags(write=False)
    results = [solve(layout, method) for layout in layouts]
    assert all(torch.equal(r.permutation, results[0].permutation) for r in results)
    assert all(torch.equal(r.column_duals, results[0].column_duals) for r in results)


def test_costs_are_summed_in_float64():
    cost = np.full((3, 3), 1.0, dtype=np.float32)
    cost[np.arange(3), np.arange(3)] = np.float32(0.1)
    assert solve(cost).cost == pytest.approx(float(np.float32(0.1)), rel=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_assign(method):
    for shape in [(0, 0), (0, 4)]:
        result = solve(np.empty(shape), method)
        assert result.permutation.shape == (0,) and result.permutation.dtype == torch.int64
        assert result.row_duals.shape == (0,) and result.column_duals.tolist() == [0.0] * shape[1]
        assert result.cost == result.dual_value == result.gap == result.relative_gap == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_one_row(method):
    one = solve(torch.tensor([[-2.5]]), method)
    assert one.permutation.tolist() == [0] and one.cost == -2.5 and one.gap == 0.0
    three = solve(torch.tensor([[4.0, 1.0, 1.0]]), method)
    assert three.permutation.tolist() == [1] and three.cost == 1.0 and three.gap == 0.0


def test_relative_gap():
    greedy = solve(np.array([[1.0, 2.0], [1.0, 5.0]]), "greedy")
    # Either bound is optimal: u = (2, 2), v = (-1, 0), value 3 against a cost of 6.
    assert greedy.gap == pytest.approx(1.5) and greedy.relative_gap == pytest.approx(1.0)
    negative = solve(np.array([[-9.0, -8.0], [-9.0, -5.0]]), "greedy")
    assert negative.relative_gap == pytest.approx(1.5 / 8.5)
    assert solve(-np.ones((2, 2))).relative_gap == 0.0
    assert solve(np.zeros((2, 2))).relative_gap == 0.0
    nothing = torch.zeros(1, dtype=torch.float64)
    assert Assignment(torch.zeros(1, dtype=torch.int64), 1.0, nothing, nothing, False).relative_gap == math.inf


@pytest.mark.parametrize("wrap", [np.asarray, torch.tensor])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e305])
@pytest.mark.parametrize("method", METHODS)
def test_costs_that_are_not_finite_are_refused_with_their_place(wrap, value, method):
    cost = np.ones((3, 4))
    cost[1, 2] = cost[2, 0] = value
    with pytest.raises(InputError, match=re.escape(f"got {value} at row 1, column 2")):
        solve(wrap(cost), method)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (60, 60), (60, 90), (300, 300), (600, 600)])
def test_one_bad_cost_is_refused_whatever_the_start(shape, value, dtype):
    rng = np.random.default_rng(0)
    n, m = shape
    for cost in (rng.random(shape).astype(dtype), np.full(shape, 0.3, dtype), np.zeros(shape, dtype)):
        last = solve(cost)
        starts = [None, last, assign.Warm(None, last.permutation), assign.Warm(last.column_duals)]
        starts.append(assign.Warm(torch.full((m,), -math.inf), torch.full((n,), 7)))
        for place in {(0, 0), (n - 1, m - 1), (n // 3, m // 2)}:
            bad = cost.copy()
            bad[place] = value
            for start in starts:
                with pytest.raises(InputError, match=f"got {value} at row {place[0]}, column {place[1]}"):
                    solve(bad, warm=start)
            for method in GREEDY:
                with pytest.raises(InputError, match=f"got {value} at row {place[0]}, column {place[1]}"):
                    solve(bad, method)


@pytest.mark.parametrize(
    "cost, message",
    [
        (np.ones(3), r"\(3,\)"),
        (torch.ones(2, 2, 2), r"\(2, 2, 2\)"),
        (np.ones((3, 2)), "3 rows and 2 columns"),
        (np.ones((1, 0)), "1 rows and 0 columns"),
        (np.ones((2, 2), dtype=complex), "complex128"),
        (torch.ones(2, 2, dtype=torch.complex64), "complex64"),
        (np.array([["a"]]), "U1"),
    ],
)
def test_what_is_not_a_real_matrix_is_refused(cost, message):
    with pytest.raises(InputError, match=message):
        solve(cost)


def test_an_unknown_method_is_refused_by_name():
    with pytest.raises(InputError, match=r"exact, greedy, .*got 'hungarian'"):
        solve(np.ones((2, 2)), "hungarian")


def test_long_paths_do_not_make_the_duals_slow(monkeypatch):
    # On a line, the shortest paths run through many points; with one round per edge of a path, every row
    # would be read hundreds of times.
    read = 0

    def counted(rows: np.ndarray, m: int, blocks=assign.solvers._blocks):
        nonlocal read
        read += len(rows)
        return blocks(rows, m)

    monkeypatch.setattr(assign.solvers, "_blocks", counted)
    monkeypatch.setenv("NEUROSQL_NATIVE", "0")
    cost = squared_distances(np.random.default_rng(0), 1000, 1000, 1)
    assert_optimal(cost, solve(cost))
    assert 1000 <= read <= 50 * 1000


def test_many_problems_at_once_are_solved_as_one_by_one():
    random = np.random.default_rng(0)
    costs = [random.random((n, n + 3)).astype(np.float32) for n in (1, 120, 7, 130)]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for cost, result in zip(costs, assign.solve_all(costs)):
                assert result.cost == pytest.approx(assign.solve(cost).cost, abs=1e-12)
    finally:
        torch.set_num_threads(before)
    assert assign.solve_all([]) == []
    with pytest.raises(InputError, match="warm start"):
        assign.solve_all(costs, warm=[None])


def test_an_assignment_says_on_one_line_how_good_it_is():
    cost = np.random.default_rng(0).random((30, 40))
    exact, greedy = (assign.solve(cost, method=method) for method in ("exact", "greedy"))
    assert repr(exact) == f"Assignment(30 rows to 40 columns, mean cost {exact.cost:.6g}, exact)"
    assert f"at most {greedy.relative_gap:.2%} above the optimum" in repr(greedy) and "\n" not in repr(greedy)
