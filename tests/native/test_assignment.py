"""The compiled assignment against scipy and against the literal greedy loop, on matrices that are meant to hurt.

    python tests/native/test_assignment.py 10000 [seed]
    NEUROSQL_NATIVE=0 python tests/native/test_assignment.py 10000 [seed]

checks this many random matrices, each with cold, warm and garbage starts. With NEUROSQL_NATIVE=0, it checks all methods
of `neurosql.assign` without the compiled extension.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from neurosql import assign, engine

native = pytest.importorskip("neurosql._native", reason="the compiled extension is not built")

Random = np.random.Generator


def _distances(random: Random, n: int, m: int) -> np.ndarray:
    x, y = random.normal(size=(n, 2)), random.normal(size=(m, 2))
    return ((x[:, None] - y) ** 2).sum(-1)


def _one_huge(random: Random, n: int, m: int) -> np.ndarray:
    matrix = random.random((n, m))
    matrix[random.integers(n), random.integers(m)] = 1e12
    return matrix


KINDS: dict[str, Callable[[Random, int, int], np.ndarray]] = {
    "uniform": lambda r, n, m: r.random((n, m)),
    "negative": lambda r, n, m: -5.0 - r.random((n, m)),
    "signed": lambda r, n, m: 1000.0 * (r.random((n, m)) - 0.5),
    "tenths with ties": lambda r, n, m: 0.1 * r.integers(0, 6, (n, m)),
    "zeros and ones": lambda r, n, m: r.integers(0, 2, (n, m)).astype(float),
    "integers": lambda r, n, m: r.integers(-1000, 1000, (n, m)).astype(float),
    "constant": lambda r, n, m: np.full((n, m), 0.3),
    "constant rows": lambda r, n, m: np.repeat(r.random((n, 1)), m, axis=1),
    "constant columns": lambda r, n, m: np.repeat(r.random((1, m)), n, axis=0),
    "rank one": lambda r, n, m: r.normal(size=(n, 1)) * r.normal(size=(1, m)),
    "sum": lambda r, n, m: r.random((n, 1)) + r.random((1, m)),
    "distances": _distances,
    "far from zero": lambda r, n, m: 1e6 + r.random((n, m)),
    "small differences": lambda r, n, m: r.random((n, 1)) + 1e-6 * r.random((n, m)),
    "wide range": lambda r, n, m: np.exp(4.0 * r.normal(size=(n, m))),
    "huge": lambda r, n, m: 1e30 * (r.random((n, m)) - 0.5),
    "tiny": lambda r, n, m: 1e-30 * r.random((n, m)),
    "one huge entry": _one_huge,
    "forbidden": lambda r, n, m: np.where(r.random((n, m)) < 0.2, r.random((n, m)), 1e12),
    "hubs": lambda r, n, m: r.random((n, m)) + np.where(np.arange(m) < 3, -1.0, 0.0),
}
SIZES = [(1, 1), (2, 2), (3, 3), (7, 7), (40, 40), (49, 49), (64, 64), (130, 130), (200, 200)]
SIZES += [(1, 5), (2, 3), (10, 60), (30, 31), (100, 120), (60, 600)]
DTYPES = (np.float32, np.float64)


def make(kind: str, random: Random, n: int, m: int, dtype: type) -> np.ndarray:
    return np.ascontiguousarray(KINDS[kind](random, n, m), dtype=dtype)


def check(cost: np.ndarray, result: tuple, optimum: float | None = None) -> None:
    """A permutation, feasible duals in the promised form, and scipy's cost or the gap that the duals certify."""
    permutation, u, v, exact, _ = result
    n, m = cost.shape
    assert (permutation.dtype, u.dtype, v.dtype) == (np.int64, np.float64, np.float64)
    assert (permutation.shape, u.shape, v.shape) == ((n,), (n,), (m,))
    assert len(np.unique(permutation)) == n
    assert n == 0 or (permutation.min() >= 0 and permutation.max() < m)
    wide = cost.astype(np.float64)
    matched = wide[np.arange(n), permutation]
    # Rounding is relative to the numbers that are subtracted, whatever is left of them.
    # Zeros do not show that size: if the matching and v are all zero, any rounding would be too much.
    sizes = np.abs(wide[wide != 0.0])
    size = np.abs(matched).sum() + np.abs(v).max(initial=0.0) + (np.quantile(sizes, 0.1) if sizes.size else 0.0)
    assert np.all(v <= 0.0)
    if n < m:
        assert np.all(np.delete(v, permutation) == 0.0)
    if n:
        np.testing.assert_allclose(u, (wide - v).min(axis=1), rtol=1e-12, atol=1e-12 * size)
    gap = matched.sum() - u.sum() - v.sum()
    if optimum is None:
        optimum = wide[linear_sum_assignment(wide)].sum()
    assert matched.sum() - optimum <= gap + 1e-9 * size
    assert gap <= (1e-9 if exact else 1e-6) * size


def starts(random: Random, cost: np.ndarray) -> list[dict]:
    """Cold, warm from a disturbed problem, and garbage."""
    n, m = cost.shape
    size = float(np.abs(cost).max())
    disturbed = (cost * (1 + 0.01 * random.random(cost.shape))).astype(cost.dtype)
    permutation, _, v, *_ = native.assign(disturbed)
    hostile = random.integers(-2, m + 2, n)
    hostile[::3] = hostile[0]
    return [
        {},
        {"column_duals": v, "permutation": permutation},
        {"column_duals": v},
        {"permutation": permutation},
        {"column_duals": size * random.normal(size=m), "permutation": hostile},
        {"column_duals": 1e30 * random.normal(size=m), "permutation": np.zeros(n, dtype=np.int64)},
        {"column_duals": np.full(m, -np.inf), "permutation": np.full(n, np.iinfo(np.int64).max)},
    ]


def check_all_starts(random: Random, cost: np.ndarray) -> None:
    wide = cost.astype(np.float64)
    optimum = wide[linear_sum_assignment(wide)].sum()
    for start in starts(random, cost):
        check(cost, native.assign(cost, **start), optimum)


def check_plain(random: Random, cost: np.ndarray) -> None:
    """Every method of `assign.solve`; without the extension, starts are ignored."""
    wide = cost.astype(np.float64)
    optimum = wide[linear_sum_assignment(wide)].sum()
    last = None
    for method in ("exact", *assign.METHODS):
        result = assign.solve(cost, method, last)
        last = last or assign.Warm(result.column_duals, result.permutation.flip(0))
        values = (result.permutation, result.row_duals, result.column_duals)
        permutation, u, v = (value.numpy() for value in values)
        if result.exact:
            check(cost, (permutation, u, v, True, None), optimum)
            continue
        size = np.abs(wide[np.arange(len(cost)), permutation]).sum() + np.abs(v).max(initial=0.0)
        assert len(np.unique(permutation)) == len(cost) and np.all(v <= 0.0)
        assert np.all(u[:, None] + v <= wide + 1e-14 * (np.abs(u)[:, None] + np.abs(v)))
        assert u.sum() + v.sum() <= optimum + 1e-9 * size


def fuzz(
    count: int, seed: int = 0, largest: int = 200, large: float = 0.0, checked: Callable = check_all_starts
) -> int:
    """Check `count` random matrices of all kinds, shapes and types, a share of them `large`; returns their number."""
    for number in range(count):
        random = np.random.default_rng([seed, number])
        kind = str(random.choice(list(KINDS)))
        m = int(largest ** random.random()) + 1
        n = m if random.random() < 0.7 else int(random.integers(1, m + 1))
        dtype = DTYPES[random.integers(2)]
        if random.random() < large:
            n = m = int(random.integers(1024, 1300))
        try:
            checked(random, make(kind, random, n, m, dtype))
        except AssertionError as error:
            raise AssertionError(f"matrix {number} of seed {seed}: {kind}, {n} x {m}, {dtype.__name__}") from error
    return count


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_start_gives_scipys_cost_and_a_certificate(kind, dtype):
    for n, m in SIZES:
        random = np.random.default_rng([n, m])
        check_all_starts(random, make(kind, random, n, m, dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_on_both_sides_of_the_sizes_where_the_method_changes(kind):
    for n, m in ((160, 161), (320, 320), (321, 321), (300, 511), (512, 512), (513, 513)):
        random = np.random.default_rng([n, m])
        cost = make(kind, random, n, m, DTYPES[n % 2])
        check(cost, native.assign(cost))


def test_random_matrices():
    fuzz(300)


def test_random_matrices_on_the_plain_path(monkeypatch):
    monkeypatch.setenv("NEUROSQL_NATIVE", "0")
    fuzz(100, largest=60, checked=check_plain)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kind", ["uniform", "integers", "distances", "negative", "one huge entry", "small differences"]
)
def test_a_start_from_a_part_of_the_problem(kind, dtype):
    random = np.random.default_rng(7)
    cost = make(kind, random, 1024, 1024, dtype)
    check(cost, native.assign(cost))
    cost[1000, 1001] = np.nan
    with pytest.raises(ValueError, match="finite"):
        native.assign(cost)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_rows(dtype):
    for m in (0, 3):
        permutation, u, v, exact, _ = native.assign(np.empty((0, m), dtype))
        assert permutation.shape == u.shape == (0,)
        assert exact and np.array_equal(v, np.zeros(m))
        permutation, u, v = native.greedy(np.empty((0, m), dtype), np.empty(0, np.int64))
        assert permutation.shape == u.shape == (0,) and v.shape == (m,)
        assert native.row_order(np.empty((0, m), dtype), "regret").shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mean_cost(dtype):
    cost = make("uniform", np.random.default_rng(0), 50, 70, dtype)
    cost[0, 3] = 1e16
    permutation = np.random.default_rng(1).permutation(70)[:50]
    permutation[0] = 3
    expected = math.fsum(cost[np.arange(50), permutation].tolist()) / 50
    assert native.mean_cost(cost, permutation) == pytest.approx(expected, rel=1e-15)
    assert native.mean_cost(cost[:0], permutation[:0]) == 0.0
    for column in (-1, 70):
        permutation[9] = column
        with pytest.raises(ValueError, match=f"got {column} at 9"):
            native.mean_cost(cost, permutation)
    with pytest.raises(ValueError, match="length 50, got 49"):
        native.mean_cost(cost, permutation[:49])


def test_rows_may_be_apart():
    wide = np.random.default_rng(0).random((90, 200))
    part = wide[::2, 30:150]
    whole = np.ascontiguousarray(part)
    assert np.array_equal(native.assign(part)[0], native.assign(whole)[0])
    order = np.arange(45)
    assert np.array_equal(native.greedy(part, order)[0], native.greedy(whole)[0])
    with pytest.raises(ValueError, match="contiguous"):
        native.assign(wide.T[:90])


def test_result_does_not_depend_on_threads_or_repetition():
    cost = np.random.default_rng(1).random((1500, 1500)).astype(np.float32)
    first = native.assign(cost)
    for threads in (1, 2, 3):
        again = native.assign(cost, threads=threads)
        for a, b in zip(first, again):
            assert np.array_equal(a, b)


def test_a_solved_problem_is_recognised():
    cost = _distances(np.random.default_rng(2), 300, 300)
    permutation, u, v, *_ = native.assign(cost)
    again = native.assign(cost, v, permutation)
    assert np.array_equal(again[0], permutation)
    assert again[4]["kept"] == 300 and again[4]["row_reads"] == 0
    np.testing.assert_allclose(again[1], u, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_is_refused(dtype):
    random = np.random.default_rng(3)
    for value in (np.nan, np.inf, -np.inf):
        for n, m in ((1, 1), (5, 5), (80, 80), (80, 100)):
            for share in (0.1, 0.9, 1.0):
                cost = make("uniform", random, n, m, dtype)
                cost[random.random((n, m)) < share] = value
                cost[random.integers(n), random.integers(m)] = value
                for start in ({}, {"column_duals": random.random(m)}):
                    with pytest.raises(ValueError, match="finite"):
                        native.assign(cost, **start)
                with pytest.raises(ValueError, match="finite"):
                    native.greedy(cost)
                for kind in ("cheapest", "regret"):
                    assert len(np.unique(native.row_order(cost, kind))) == n


def test_bad_arguments():
    cost = np.random.default_rng(4).random((4, 4))
    with pytest.raises(ValueError, match="4 rows and 3 columns"):
        native.assign(np.ascontiguousarray(cost[:, :3]))
    with pytest.raises(TypeError):
        native.assign(cost.astype(np.int64))
    with pytest.raises(TypeError):
        native.assign(cost[0])
    with pytest.raises(ValueError, match="column_duals must have length 4, got 3"):
        native.assign(cost, column_duals=np.zeros(3))
    with pytest.raises(ValueError, match="permutation must have length 4, got 5"):
        native.assign(cost, permutation=np.zeros(5, np.int64))
    with pytest.raises(ValueError, match="tolerance"):
        native.assign(cost, tolerance=np.nan)
    with pytest.raises(ValueError, match="order must have length 4, got 3"):
        native.greedy(cost, np.arange(3))
    for order in ([0, 1, 1, 2], [0, 1, 2, 4], [-1, 0, 1, 2]):
        with pytest.raises(ValueError, match="each row once"):
            native.greedy(cost, np.array(order))
    with pytest.raises(ValueError, match="dearest"):
        native.row_order(cost, "dearest")


def literal_greedy(cost: np.ndarray, order: np.ndarray) -> np.ndarray:
    n, m = cost.shape
    columns, free = np.empty(n, np.int64), set(range(m))
    for i in order:
        columns[i] = min(free, key=lambda j: (cost[i, j], j))
        free.remove(columns[i])
    return columns


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_is_the_literal_loop(kind, dtype):
    for n, m in ((1, 1), (3, 3), (40, 40), (30, 600), (70, 70)):
        random = np.random.default_rng([n, m])
        cost = make(kind, random, n, m, dtype)
        two = np.sort(cost.astype(np.float64), axis=1)[:, :2]
        cheapest = np.argsort(two[:, 0], kind="stable")
        regret = np.argsort(two[:, 0] - two[:, -1], kind="stable") if m > 1 else np.arange(n)
        assert np.array_equal(native.row_order(cost, "cheapest"), cheapest)
        assert np.array_equal(native.row_order(cost, "regret"), regret)
        for order in (np.arange(n), cheapest, regret, random.permutation(n)):
            permutation, u, v = native.greedy(cost, order)
            assert np.array_equal(permutation, literal_greedy(cost, order))
            wide = cost.astype(np.float64)
            np.testing.assert_allclose(u, (wide - v).min(axis=1), rtol=1e-12, atol=1e-12 * np.abs(v).max())


def seconds(function: Callable, *arguments) -> float:
    best = np.inf
    for _ in range(3):
        begin = time.process_time()
        function(*arguments)
        best = min(best, time.process_time() - begin)
    return best


@pytest.mark.parametrize("tolerance", [1e-7, 1e-6])
def test_a_collapsed_generator_costs_little_more_time(tolerance):
    random = np.random.default_rng(5)
    n = 1000
    x, y = random.random((n, 1, 4)), random.random((1, n, 4))
    usual = ((x - y) ** 2).sum(-1).astype(np.float32)
    level = 0.3 + 0.3 * random.random((n, 1))
    collapsed = {
        "rows alike, noise": level.T + 1e-7 * random.random((n, n)),
        "columns alike, noise": level + 1e-7 * random.random((n, n)),
        "columns alike, tiny differences": level + 1e-6 * usual,
        "columns alike": np.repeat(level, n, axis=1),
        "rank one": level + 1e-7 * random.random((n, 1)) * random.random((1, n)),
    }
    limit = 40 * seconds(native.assign, usual)
    for name, cost in collapsed.items():
        for dtype in DTYPES:
            cost = np.ascontiguousarray(cost, dtype)
            assert seconds(lambda c: native.assign(c, tolerance=tolerance), cost) < limit, name
            permutation, u, v, exact, _ = native.assign(cost, tolerance=tolerance)
            wide = cost.astype(np.float64)
            assert len(np.unique(permutation)) == n
            assert np.all(u[:, None] + v <= wide + 1e-12)
            gap = (wide[np.arange(n), permutation].sum() - u.sum() - v.sum()) / wide.min(axis=1).sum()
            assert gap <= (1e-12 if exact else 2 * tolerance), name


def test_without_tolerance_the_result_is_exact():
    random = np.random.default_rng(6)
    n = 400
    cost = random.random((n, 1)) + 1e-7 * random.random((n, 1)) * random.random((1, n))
    result = native.assign(cost, tolerance=0.0)
    assert result[3]
    check(cost, result)


if __name__ == "__main__":
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if engine.native() is None:
        print(fuzz(int(sys.argv[1]), chosen, largest=100, checked=check_plain), "matrices, plain path")
    else:
        print(fuzz(int(sys.argv[1]), chosen, large=0.003), "matrices, compiled")
