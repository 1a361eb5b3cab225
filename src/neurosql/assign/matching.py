"""Assignment along the pairs of a sparse graph: an auction, or scipy's matching without the compiled extension."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from neurosql import engine
from neurosql.errors import InputError

# Relative to the mean cost. The last one bounds the distance from the graph's optimum.
_EPSILONS = (0.05, 0.005, 5e-4, 5e-5)
_MOST_BIDS = 2000  # per row


class Graph(NamedTuple):
    """A sparse set of pairs of n rows and m columns, by rows: row i has columns indices[indptr[i] : indptr[i + 1]]."""

    indptr: np.ndarray
    """(n + 1,) int64."""
    indices: np.ndarray
    """(number of pairs,) int32, ascending within a row."""
    columns: int
    """m."""

    @property
    def rows(self) -> np.ndarray:
        """(number of pairs,) int64: the row of each pair."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @property
    def keys(self) -> np.ndarray:
        """(number of pairs,) int64, ascending: row * m + column."""
        return self.rows * self.columns + self.indices

    @classmethod
    def from_keys(cls, keys: np.ndarray, rows: int, columns: int) -> Graph:
        """The pairs with these ascending keys."""
        i, j = np.divmod(keys, max(1, columns))
        indptr = np.searchsorted(i, np.arange(rows + 1)).astype(np.int64)
        return cls(indptr, j.astype(np.int32), columns)


class Matching(NamedTuple):
    """A partial assignment along the pairs of a graph, and its dual variables."""

    columns: np.ndarray
    """(n,) int64: the column of each row, -1 for a row without one."""
    row_duals: np.ndarray
    """(n,) float64, u_i = min(outside, min over the row's pairs of C[i, j] - v_j)."""
    column_duals: np.ndarray
    """(m,) float64, v: never positive, and zero for columns without a row."""


def match(graph: Graph, costs: np.ndarray, outside: float, epsilon: float | None = None) -> Matching:
    """Assign rows to columns along the pairs of `graph`, or leave them without one at the cost `outside`:

        min over partial assignments π   Σ_matched C[i, π(i)] + outside * (number of rows without a column)

    `costs`, (number of pairs,) float32, has C for the pairs of the graph. The total is at most n epsilon above the
    optimum; epsilon is 5e-5 of the mean cost by default. Without the compiled extension, the result is exactly optimal
    and takes much longer. If the auction does not end in reasonable time, more rows stay without a column than need be.
    """
    costs = np.ascontiguousarray(costs, dtype=np.float32)
    n, m = len(graph.indptr) - 1, graph.columns
    if costs.shape != graph.indices.shape:
        raise InputError(f"there must be a cost for each of the {len(graph.indices)} pairs, got {costs.shape}")
    if n < 0 or graph.indptr[0] != 0 or graph.indptr[-1] != len(costs) or (np.diff(graph.indptr) < 0).any():
        raise InputError("indptr must rise from 0 to the number of pairs")
    if len(costs) and not 0 <= graph.indices.min() <= graph.indices.max() < m:
        raise InputError(f"indices must be in [0, {m}), got {graph.indices.min()} to {graph.indices.max()}")
    if not math.isfinite(outside) or not np.isfinite(costs).all():
        raise InputError("costs and outside must be finite")
    scale = float(np.abs(costs).mean(dtype=np.float64)) if len(costs) else 0.0
    epsilons = np.array(_EPSILONS) * (scale or 1.0)
    if epsilon is not None:
        if not (epsilon > 0 and math.isfinite(epsilon)):
            raise InputError(f"epsilon must be positive, got {epsilon}")
        epsilons = np.append(epsilons[epsilons > epsilon], epsilon)
    native = engine.native()
    if native is None:
        return _match_exactly(graph, costs.astype(np.float64), outside)
    indptr, indices = np.ascontiguousarray(graph.indptr, np.int64), np.ascontiguousarray(graph.indices, np.int32)
    columns, u, v, _ = native.assign_sparse(indptr, indices, costs, m, epsilons, outside, _MOST_BIDS * max(n, 1))
    return Matching(columns, u, v)


def _match_exactly(graph: Graph, costs: np.ndarray, outside: float) -> Matching:
    """`match` by scipy: row i gets a column of its own, m + i, that stands for none."""
    n, m = len(graph.indptr) - 1, graph.columns
    rows = graph.rows
    if n == 0:
        return Matching(np.empty(0, np.int64), np.empty(0), np.zeros(m))
    own = np.arange(n)
    weights = np.concatenate([costs, np.full(n, outside)])
    # scipy takes a weight of zero for a missing pair; a constant added to all weights changes nothing.
    weights += 1.0 - weights.min()
    where = (np.concatenate([rows, own]), np.concatenate([graph.indices, m + own]))
    columns = min_weight_full_bipartite_matching(csr_array((weights, where), shape=(n, m + n)))[1].astype(np.int64)
    columns[columns >= m] = -1
    v = _column_duals(graph, rows, costs, columns, outside)
    u = np.full(n, outside)
    np.minimum.at(u, rows, costs - v[graph.indices])
    return Matching(columns, u, v)


def _column_duals(graph: Graph, rows: np.ndarray, costs: np.ndarray, columns: np.ndarray, outside: float) -> np.ndarray:
    """v of an optimal dual pair, (m,): shortest paths in the residual graph, as in solvers.py, by Bellman and Ford."""
    # value_i = C[i, π(i)] - v_π(i), or `outside`: feasibility reads v_j <= C[i, j] - value_i.
    own = columns[rows] == graph.indices
    matched = np.full(len(columns), outside)
    matched[rows[own]] = costs[own]
    v = np.zeros(graph.columns)
    tolerance = 1e-12 * (np.abs(costs).max(initial=0.0) + abs(outside))
    for _ in range(len(columns) + 1):
        value = matched - np.where(columns >= 0, v[columns], 0.0)
        before = v.copy()
        np.minimum.at(v, graph.indices, costs - value[rows])
        if (v >= before - tolerance).all():
            break
    free = np.ones(graph.columns, dtype=bool)
    free[columns[columns >= 0]] = False
    v[free] = 0.0
    return v
