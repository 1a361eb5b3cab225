"""The linear assignment between images and lattice rows, with a certificate of how good it is.

Given costs C of shape (n, m), n <= m, an assignment is an injective map π from rows to columns (a permutation
when n = m). The problem and its linear programming dual are

    primal   min over π             1/n Σ_i C[i, π(i)]
    dual     max over u, v          1/n (Σ_i u_i + Σ_j v_j)
             subject to             u_i + v_j <= C[i, j]  for all i, j;    v_j <= 0  where n < m

Any feasible (u, v) bounds the cost of every assignment from below, so the difference between the two values,
the gap, bounds the distance of π from the optimum. At an optimal pair both values agree, which is
complementary slackness: u_i + v_π(i) = C[i, π(i)] for every row, and v_j = 0 for every column without a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from neurosql import engine
from neurosql.errors import InputError, NotFinite

METHODS = ("exact", "greedy", "greedy-cheapest", "greedy-regret")

# Sums over rows and paths of larger costs could overflow float64.
_LARGEST_COST = 1e300
_WORTH_A_THREAD = 100


@dataclass(frozen=True, eq=False)
class Assignment:
    """An assignment π of n rows to m columns, and dual variables that certify its quality."""

    permutation: torch.Tensor
    """(n,) int64 on the CPU: entry i is π(i), the lattice row of image i."""

    cost: float
    """1/n Σ_i C[i, π(i)], summed in float64; 0 when there are no rows."""

    row_duals: torch.Tensor
    """(n,) float64, u: u_i = min_j (C[i, j] - v_j), so that (u, v) is feasible up to rounding."""

    column_duals: torch.Tensor
    """(m,) float64, v: never positive; where n < m, zero for the columns without a row."""

    exact: bool
    """Whether π is an optimum. The gap is then zero up to rounding."""

    def __repr__(self) -> str:
        size = f"{len(self.permutation):,} rows to {len(self.column_duals):,} columns"
        quality = "exact" if self.exact else f"at most {self.relative_gap:.2%} above the optimum"
        return f"Assignment({size}, mean cost {self.cost:.6g}, {quality})"

    @property
    def dual_value(self) -> float:
        """1/n (Σ_i u_i + Σ_j v_j), at most the mean cost of any assignment; 0 when there are no rows."""
        n = len(self.permutation)
        return float(self.row_duals.sum() + self.column_duals.sum()) / n if n else 0.0

    @property
    def gap(self) -> float:
        """Mean cost minus dual value: at least the distance of `cost` from the optimal mean cost."""
        # Weak duality: anything below zero is rounding.
        return max(0.0, self.cost - self.dual_value)

    @property
    def relative_gap(self) -> float:
        """gap / |dual value|; for a dual value of zero, 0 if the gap is zero too, else infinity."""
        if self.gap == 0.0:
            return 0.0
        return self.gap / abs(self.dual_value) if self.dual_value else math.inf


class Start(Protocol):
    """Where a solve may begin: an earlier `Assignment`, or anything with these two attributes, right or wrong."""

    @property
    def column_duals(self) -> torch.Tensor | None:
        """Column duals (m,), or None."""

    @property
    def permutation(self) -> torch.Tensor | None:
        """Columns (n,) of the rows, or None."""


class Warm(NamedTuple):
    """A start put together by hand: column duals (m,), and columns (n,) of the rows, -1 where there is none.

    `turn` counts the assignments before: what is drawn at random is drawn anew each time (see refinement.py).
    """

    column_duals: torch.Tensor | None
    permutation: torch.Tensor | None = None
    turn: int = 0


class Assigner:
    """Solves again and again on slowly changing costs of one shape: each solve begins where the last one ended.

    >>> assigner = Assigner()
    >>> assigner([[1.0, 2.0], [2.0, 4.0]]).permutation.tolist()
    [1, 0]
    """

    def __init__(self, method: str = "exact") -> None:
        self.method = method
        self.last: Assignment | None = None

    def __call__(self, cost: np.ndarray | torch.Tensor) -> Assignment:
        same = self.last is not None and tuple(np.shape(cost)) == (
            len(self.last.row_duals),
            len(self.last.column_duals),
        )
        self.last = solve(cost, self.method, self.last if same else None)
        return self.last


def solve(cost: np.ndarray | torch.Tensor, method: str = "exact", warm: Start | None = None) -> Assignment:
    """Assign every row of `cost` to a column of its own, as cheaply as `method` can.

        min over π   1/n Σ_i C[i, π(i)]

    `cost` is C, (n, m) with n <= m: a numpy array or a torch tensor on any device, real and finite.

    - ``exact``: an optimum, in O(n² m) at worst.
    - ``greedy``: row after row takes its cheapest free column (the paper's Algorithm 3), in O(n m).
    - ``greedy-cheapest``: the same, rows in ascending order of their smallest cost.
    - ``greedy-regret``: the same, rows in descending order of regret, the second smallest cost minus the
      smallest: a row that loses much by coming late comes early.

    The greedy methods give ties to the lower row and the lower column. Every method returns feasible duals,
    hence a valid gap; the greedy ones take them from row minima and then column minima alone, in O(n m), so
    their gap may be several times the true distance from the optimum.

    `warm`, the result of an earlier solve on similar costs, makes the compiled exact solver faster. A wrong or stale
    one costs time, never optimality. If rows or columns are alike to within rounding (a collapsed generator), the
    compiled solver stops at a gap of about 1e-7 of the costs; `exact` is then False.
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    matrix = _as_matrix(cost)
    n, m = matrix.shape
    native = engine.native()
    exact = method == "exact"
    if n == 0:
        columns, u, v, mean = np.empty(0, dtype=np.int64), np.empty(0), np.zeros(m), 0.0
    elif native is not None:
        columns, u, v, exact = _compiled(native, matrix, method, warm)
        mean = native.mean_cost(matrix, columns)
    else:
        _check_size(matrix)
        if exact:
            columns = linear_sum_assignment(matrix)[1].astype(np.int64)
            v = _column_duals_of_optimum(matrix, columns)
        else:
            columns = _greedy(matrix, _row_order(matrix, method))
            v = _column_duals_from_minima(matrix)
        u = _row_duals(matrix, v)
        mean = float(_matched(matrix, columns).mean())
    return Assignment(
        permutation=torch.from_numpy(columns),
        cost=mean,
        row_duals=torch.from_numpy(u),
        column_duals=torch.from_numpy(v),
        exact=exact,
    )


def solve_all(
    costs: Sequence[np.ndarray | torch.Tensor], method: str = "exact", warm: Sequence[Start | None] | None = None
) -> list[Assignment]:
    """`solve` for independent problems, side by side where there are threads to spare; results in their order."""
    starts = [None] * len(costs) if warm is None else list(warm)
    if len(starts) != len(costs):
        raise InputError(
            f"there must be a warm start, or None, for each of the {len(costs)} matrices, got {len(starts)}"
        )
    threads = min(torch.get_num_threads(), len(costs))
    # Handing a problem to a thread costs about as much as solving one of a hundred rows.
    if threads < 2 or max(map(len, costs)) < _WORTH_A_THREAD:
        return [solve(cost, method, start) for cost, start in zip(costs, starts)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda pair: solve(pair[0], method, pair[1]), zip(costs, starts)))


def _compiled(
    native: Any, matrix: np.ndarray, method: str, warm: Start | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Columns, u, v, and whether they are an optimum. The compiled methods check the costs as they read them."""
    start = _start(warm, *matrix.shape) if method == "exact" else (None, None)
    try:
        if method == "exact":
            columns, u, v, exact, _ = native.assign(matrix, *start, threads=torch.get_num_threads())
            return columns, u, v, exact
        order = None if method == "greedy" else native.row_order(matrix, method.removeprefix("greedy-"))
        return *native.greedy(matrix, order), False
    except ValueError:
        _check_size(matrix)
        raise


def _start(warm: Start | None, n: int, m: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Column duals and permutation of a start, as the compiled solver takes them."""
    if warm is None:
        return None, None
    parts: list[np.ndarray | None] = []
    for name, kind, length in (("column_duals", np.float64, m), ("permutation", np.int64, n)):
        value = getattr(warm, name)
        if value is not None:
            value = np.ascontiguousarray(value, dtype=kind)
            if value.shape != (length,):
                raise InputError(f"the warm start's {name} must have shape ({length},), got {value.shape}")
        parts.append(value)
    return parts[0], parts[1]


def _as_matrix(cost: np.ndarray | torch.Tensor) -> np.ndarray:
    """`cost` as a row-contiguous numpy array of real numbers, float32 if it was float32 and float64 otherwise."""
    if isinstance(cost, torch.Tensor):
        # numpy has no bfloat16.
        matrix = (cost.float() if cost.dtype == torch.bfloat16 else cost).numpy(force=True)
    else:
        matrix = np.asarray(cost)
    if matrix.ndim != 2:
        raise InputError(f"cost must be a matrix (rows, columns), got shape {matrix.shape}")
    n, m = matrix.shape
    if m < n:
        raise InputError(f"cost must have at least as many columns as rows, got {n} rows and {m} columns")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"cost must hold real numbers, got {matrix.dtype}")
    return np.ascontiguousarray(matrix, dtype=np.float32 if matrix.dtype == np.float32 else np.float64)


def _check_size(matrix: np.ndarray) -> None:
    """Refuse costs that are not finite or too large; the message says where."""
    # NaN passes through min and max, so two reductions are enough, without a mask as large as the matrix.
    largest = min(_LARGEST_COST, float(np.finfo(matrix.dtype).max))
    if not max(-float(matrix.min()), float(matrix.max())) <= largest:
        i, j = np.argwhere(~(np.abs(matrix) <= largest))[0]
        limit = f"at most {_LARGEST_COST:g} in size" if np.isfinite(matrix[i, j]) else "finite"
        raise NotFinite(f"every cost must be {limit}, got {matrix[i, j]} at row {i}, column {j}")


def _blocks(rows: np.ndarray, m: int) -> Iterator[np.ndarray]:
    """`rows` in pieces whose float64 temporaries of m columns fit the cache, or are thin where m is large."""
    size = max(16, 2**16 // max(m, 1))
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _matched(cost: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """C[i, π(i)], (n,) float64."""
    return cost[np.arange(len(columns)), columns].astype(np.float64)


def _row_duals(cost: np.ndarray, v: np.ndarray) -> np.ndarray:
    """u_i = min_j (C[i, j] - v_j), the largest that are feasible with v."""
    u = np.empty(len(cost))
    for rows in _blocks(np.arange(len(cost)), cost.shape[1]):
        u[rows] = (cost[rows] - v).min(axis=1)
    return u


def _row_order(cost: np.ndarray, method: str) -> np.ndarray:
    n, m = cost.shape
    if method == "greedy" or m < 2:
        return np.arange(n)
    if method == "greedy-cheapest":
        return np.argsort(cost.min(axis=1), kind="stable")
    regret = np.empty(n)
    for rows in _blocks(np.arange(n), m):
        two = np.partition(cost[rows], 1, axis=1)[:, :2].astype(np.float64)
        regret[rows] = two[:, 1] - two[:, 0]
    return np.argsort(-regret, kind="stable")


def _greedy(cost: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Each row in `order` takes its cheapest free column.

    The paper's set S, introduced there as the unassigned columns, starts empty and grows: it holds the
    assigned ones.
    """
    n, m = cost.shape
    columns = np.empty(n, dtype=np.int64)
    assigned = np.zeros(m, dtype=cost.dtype)  # infinity in the columns of S: added to a row, it rules them out
    row = np.empty(m, dtype=cost.dtype)
    for i in order:
        np.add(cost[i], assigned, out=row)
        columns[i] = j = row.argmin()
        assigned[j] = np.inf
    return columns


def _column_duals_from_minima(cost: np.ndarray) -> np.ndarray:
    """Feasible v, (m,), from minima: of the rows, then of the columns of what is left."""
    n, m = cost.shape
    if m > n:
        return np.zeros(m)
    v = np.full(m, np.inf)
    for rows in _blocks(np.arange(n), m):
        least = cost[rows].min(axis=1, keepdims=True).astype(np.float64)
        np.minimum(v, (cost[rows] - least).min(axis=0), out=v)
    # With n = m a constant may move from v to u; this one makes v <= 0 hold for every method and shape.
    return v - v.max()


def _column_duals_of_optimum(cost: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """v of an optimal dual pair, (m,), by shortest paths from an optimal assignment.

    With u_i = C[i, π(i)] - v_π(i), as complementary slackness asks, feasibility reads

        v_j <= v_k + (C[i, j] - C[i, k])    for k = π(i) and all j:

    no edge k -> j of the residual graph shortens a path. The largest solution with v <= 0 is v_j = the length
    of the shortest path that ends in j and starts anywhere. It exists because an optimal π has no negative
    cycle, and it is zero in columns without a row, because a negative path to one of them would be a cheaper
    assignment.

    Bellman-Ford finds it: only columns that fell pass on their fall. A long path would need as many rounds as
    it has edges, so after each round the tree of predecessors is summed up to its roots by pointer doubling.
    This carries a fall to everything below it at once: tens of rounds instead of thousands.
    """
    n, m = cost.shape
    matched = _matched(cost, columns)
    owner = np.full(m, -1)
    owner[columns] = np.arange(n)
    v = np.zeros(m)
    predecessor, length = np.arange(m), np.zeros(m)
    fallen = owner >= 0
    for _ in range(n):  # Bellman-Ford's own bound; reached only if rounding makes a cycle look negative
        if not fallen.any():
            break
        # A fall smaller than the rounding of its terms may go round a cycle of zero length for ever. Terms
        # that win a minimum are of the size of these two, whatever the largest cost in the matrix.
        tolerance = 8 * np.finfo(np.float64).eps * (np.abs(matched).max() - v.min())
        sources = np.flatnonzero(fallen)
        fallen[:] = False
        for k in _blocks(sources, m):
            # A source that fell earlier in this round is read after its fall.
            fallen[k] = False
            i = owner[k]
            paths = cost[i] + (v[k] - matched[i])[:, None]
            shortest = paths.min(axis=0)
            better = np.flatnonzero(shortest < v - tolerance)
            v[better] = shortest[better]
            fallen[better] = True
            via = paths[:, better].argmin(axis=0)
            predecessor[better] = k[via]
            length[better] = cost[i[via], better] - matched[i[via]]
        to_root, ancestor = length.copy(), predecessor.copy()
        for _ in range(m.bit_length()):
            to_root += to_root[ancestor]
            ancestor = ancestor[ancestor]
        below = to_root < v - tolerance
        v[below] = to_root[below]
        fallen |= below
        fallen &= owner >= 0
    v[owner < 0] = 0.0
    return v
