"""Pairs worth comparing, when there are too many images to compare all: how they are found, and what they cost.

Images are close in the cost if they are close in a few principal components of what the cost sees. The dual variables
of an assignment so far (see solvers.py) say which pairs would improve it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurosql import engine
from neurosql.assign import solvers
from neurosql.assign.components import Axes
from neurosql.assign.matching import Graph, Matching
from neurosql.cost import Cost
from neurosql.errors import NotFinite

# A block of scores: small enough for the outer cache, large enough for the matrix product.
_HEIGHT, _WIDTH = 1024, 4096
_FIT_ROWS = 8192
_DENSE_ROWS = 2000


def finite(costs: Tensor) -> np.ndarray:
    """Costs as float32 on the CPU; refuses those that are not finite."""
    values = costs.float().cpu().numpy()
    if not np.isfinite(values).all():
        raise NotFinite("every cost must be finite: the images hold nan, infinite or huge values")
    return values


def costs_of(cost: Cost, x: Tensor, y: Tensor, graph: Graph) -> np.ndarray:
    """l of the pairs, (number of pairs,) float32."""
    rows, columns = torch.from_numpy(graph.rows), torch.from_numpy(graph.indices.astype(np.int64))
    return finite(cost.entries(x, y, rows.to(x.device), columns.to(x.device)))


def join(graph: Graph, costs: np.ndarray, found: Graph, cost: Cost, x: Tensor, y: Tensor) -> tuple[Graph, np.ndarray]:
    """`graph` with those pairs of `found` that it lacks, and the costs of all its pairs."""
    n, m = len(graph.indptr) - 1, graph.columns
    old = graph.keys
    fresh = np.setdiff1d(found.keys, old, assume_unique=True)
    keys = np.concatenate([old, fresh])
    order = np.argsort(keys, kind="stable")
    values = np.concatenate([costs, costs_of(cost, x, y, Graph.from_keys(fresh, n, m))])
    return Graph.from_keys(keys[order], n, m), values[order]


@torch.no_grad()
def components(x: Tensor, y: Tensor, dims: int, fitted: int = _FIT_ROWS) -> tuple[Tensor, Tensor]:
    """The first principal components of both sets together, `fitted` of them: (n, dims) and (m, dims) float32."""
    if not all(bool(part.isfinite().all()) for part in (x, y)):
        raise NotFinite("images must be finite")
    some = torch.cat([part[:: max(1, 2 * len(part) // fitted)].float() for part in (x, y)])
    axes = Axes.of(some, dims)
    return axes.project(x), axes.project(y)


def search(
    a: Tensor, b: Tensor, k: int, slope: float = 1.0, u: np.ndarray | None = None, v: np.ndarray | None = None
) -> Graph:
    """Pairs with one of the k smallest slope |a_i - b_j|² - u_i - v_j of their row or of their column."""
    n, m = len(a), len(b)
    if n == 0 or m == 0:
        return Graph(np.zeros(n + 1, np.int64), np.empty(0, np.int32), m)

    def terms(points: Tensor, duals: np.ndarray | None) -> Tensor:
        squares = slope * points.square().sum(1, keepdim=True)
        return squares if duals is None else squares - torch.from_numpy(duals).to(points).unsqueeze(1)

    # The score is one inner product: <(a, |a|² - u, 1), (-2 b, 1, |b|² - v)>, with the slope where it belongs.
    left = torch.cat([a, terms(a, u), a.new_ones(n, 1)], 1)
    right = torch.cat([-2 * slope * b, b.new_ones(m, 1), terms(b, v)], 1)
    native = engine.native()
    if native is not None and a.device.type == "cpu":
        of_rows, of_columns = _smallest_compiled(native, left, right, k)
    else:
        of_rows, of_columns = _smallest(left, right, k), _smallest(right, left, k)
    by_rows = np.arange(n)[:, None] * m + of_rows
    by_columns = of_columns.astype(np.int64) * m + np.arange(m)[:, None]
    keys = np.concatenate([by_rows[of_rows >= 0], by_columns[of_columns >= 0]])
    keys.sort()
    fresh = np.ones(len(keys), dtype=bool)
    fresh[1:] = keys[1:] != keys[:-1]
    return Graph.from_keys(keys[fresh], n, m)


def _smallest_compiled(native: Any, left: Tensor, right: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the k smallest entries of each row of left right^T, (n, k), and rows of those of each column, (m, k).

    If there are fewer than k, the rest is -1. Each block of the product is read once, for its rows and its columns.
    """
    n, m = len(left), len(right)
    # Lists for more than all entries would only take memory.
    smallest = native.SmallestPairs(n, m, min(k, max(n, m)))
    buffer = left.new_empty(_HEIGHT * _WIDTH)
    for i in range(0, n, _HEIGHT):
        for j in range(0, m, _WIDTH):
            height, width = min(_HEIGHT, n - i), min(_WIDTH, m - j)
            scores = buffer[: height * width].view(height, width)
            torch.mm(left[i : i + height], right[j : j + width].T, out=scores)
            smallest.offer(scores.numpy(), i, j, torch.get_num_threads())
    return smallest.rows().reshape(n, -1), smallest.columns().reshape(m, -1)


def _smallest(left: Tensor, right: Tensor, k: int) -> np.ndarray:
    """Columns of the k smallest entries of each row of left right^T, (n, min(k, m))."""
    k = min(k, len(right))
    block = max(1, _HEIGHT * _WIDTH // len(right))
    parts = [(rows @ right.T).topk(k, 1, largest=False, sorted=False).indices for rows in left.split(block)]
    return torch.cat(parts).cpu().numpy()


def slope(a: Tensor, b: Tensor, graph: Graph, costs: np.ndarray) -> float:
    """b of l(x_i, y_j) ≈ a_i + b |a_i - b_j|², by least squares over the pairs of evenly spread rows."""
    n = len(graph.indptr) - 1
    step = max(1, n // 2048)
    degrees = np.diff(graph.indptr)[::step]
    starts = graph.indptr[:-1][::step]
    own = np.repeat(np.arange(len(degrees)), degrees)
    at = np.arange(len(own)) - np.repeat(np.cumsum(degrees) - degrees, degrees) + np.repeat(starts, degrees)
    rows = torch.from_numpy(own * step).to(a.device)
    columns = torch.from_numpy(graph.indices[at].astype(np.int64)).to(a.device)
    distances = (a[rows] - b[columns]).square().sum(1).cpu().double().numpy()
    values = costs[at].astype(np.float64)

    def centred(z: np.ndarray) -> np.ndarray:
        return z - (np.bincount(own, z) / np.maximum(np.bincount(own), 1))[own]

    spread = float((centred(distances) ** 2).sum())
    slope = float((centred(distances) * centred(values)).sum()) / spread if spread > 0 else 0.0
    # If costs do not grow with the distance, any slope is as good as another, but prices alone would propose the
    # same few columns to all rows.
    return slope if slope > 0 else float(np.abs(values).mean() / max(distances.mean(), 1e-30))


def complete(columns: np.ndarray, a: Tensor, b: Tensor, cost: Cost, x: Tensor, y: Tensor) -> tuple[np.ndarray, int]:
    """Columns of all rows, and the number of rows that had none.

    These rows share the free columns by dense assignments: one, or several of bounded size, each with rows and columns
    from the same range along the first principal component.
    """
    permutation = columns.copy()
    rows = np.flatnonzero(columns < 0)
    free = np.setdiff1d(np.arange(len(b)), columns[columns >= 0])
    if len(rows) > _DENSE_ROWS:
        rows = rows[np.argsort(a[rows, 0].cpu().numpy(), kind="stable")]
        free = free[np.argsort(b[free, 0].cpu().numpy(), kind="stable")]
    for first in range(0, len(rows), _DENSE_ROWS):
        some, offered = rows[first : first + _DENSE_ROWS], free[first : first + _DENSE_ROWS]
        matrix = cost.matrix(x[torch.from_numpy(some).to(x.device)], y[torch.from_numpy(offered).to(y.device)])
        permutation[some] = offered[solvers.solve(finite(matrix)).permutation.numpy()]
    return permutation, len(rows)


def estimate(mean: float, matching: Matching, rows: np.ndarray, costs: np.ndarray) -> tuple[float, float]:
    """The gap estimate and its standard error, from all costs of the sampled rows, (len(rows), m)."""
    u, v = matching.row_duals, matching.column_duals
    falls = u[rows] - np.array([(row - v).min() for row in costs])
    bound = u.mean() + v.mean() - falls.mean()
    error = float(falls.std(ddof=1) / math.sqrt(len(rows))) if len(rows) > 1 else math.nan
    return max(0.0, float(mean - bound)), error
