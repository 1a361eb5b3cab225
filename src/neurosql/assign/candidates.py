r"""The assignment of so many images that a matrix of all n² costs would not fit: only promising pairs are compared.

1. Each image proposes the k lattice rows whose images are nearest, and each lattice row the k nearest images, by the
   squared distance d² of a few principal components of what the cost sees (`Cost.seen`). The union of the proposals is
   a sparse graph.
2. The cost l is computed for the pairs of the graph only.
3. An auction assigns the rows along the graph, with dual variables u and v (see solvers.py). A row may stay without a
   column, at the cost of the most expensive pair so far.
4. In an optimum, each row has the column with the smallest l(x_i, y_j) - v_j. With l ≈ a_i + b d², where the slope b is
   fitted to the costs so far, the search of step 1 is repeated with the scores

       b d²_ij - u_i - v_j

   and finds pairs that the prices make attractive. They join the graph, which is assigned again from the beginning.
5. Rows that have no column yet share the free columns by dense assignments.

Time is O(n² dims) for the searches, with a small constant; memory is O(n (k + dims)) besides the images. Nothing
certifies the result, because most costs are never computed. But all costs of a sample of rows are computed, and the
distance from the optimum is estimated from them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurosql import engine
from neurosql.assign import solvers
from neurosql.assign.components import Axes
from neurosql.assign.matching import Graph, Matching, match
from neurosql.cost import Cost
from neurosql.errors import InputError, NotFinite

DEFAULT_K = 64
DEFAULT_DIMS = 64
DEFAULT_SAMPLE = 128

# With more than this share of rows without a column, the neighbours are taken to be hubs: a few images near all others.
HUBS = 0.2
# Rounds of search after the first: usually one, more while more than this share of the rows has no column.
FEW = 0.01
MOST_SEARCHES = 3

# A block of scores: small enough for the outer cache, large enough for the matrix product.
_HEIGHT, _WIDTH = 1024, 4096
_FIT_ROWS = 8192
_DENSE_ROWS = 2000


@dataclass(frozen=True, eq=False)
class CandidateAssignment:
    """A permutation π that is good but not certified, and an estimate of how good."""

    permutation: Tensor
    """(n,) int64 on the CPU: entry i is π(i), the lattice row of image i."""

    cost: float
    """1/n Σ_i l(x_i, y_π(i)), summed in float64."""

    row_duals: Tensor
    """(n,) float64, u: u_i + v_j <= l(x_i, y_j) for the pairs of the graph only."""

    column_duals: Tensor
    """(n,) float64, v: never positive."""

    compared: int
    """Pairs of the graph: costs computed, besides those of completed rows and of the sample."""

    completed: int
    """Rows that found no column in the graph and were assigned among the columns left over."""

    searches: int
    """Searches for pairs, the first one included."""

    hubs: bool
    """Whether more than a fifth of the rows had no column after the first search: a few images were near all others, as
    those of an untrained generator are. The result is then much less certain."""

    gap_estimate: float
    """Estimated upper bound on the distance of `cost` from the optimal mean cost. For any v,

        1/n Σ_i min_j (l(x_i, y_j) - v_j) + 1/n Σ_j v_j

    is at most the optimum. The minima over the graph are known. How far they fall with all columns is known for a
    sample of rows and estimated by its mean. This is not a certificate."""

    gap_error: float
    """Standard error of `gap_estimate`; nan if the sample has fewer than two rows."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Where the time went: sample, components, search, costs, match and complete."""

    exact: bool = False
    """Always False: see `gap_estimate`."""

    @property
    def relative_gap_estimate(self) -> float:
        """gap_estimate / |cost - gap_estimate|: relative to the estimated lower bound."""
        if self.gap_estimate == 0.0:
            return 0.0
        bound = abs(self.cost - self.gap_estimate)
        return self.gap_estimate / bound if bound else math.inf


def solve(
    cost: Cost, x: Tensor, y: Tensor, k: int = DEFAULT_K, dims: int = DEFAULT_DIMS, sample: int = DEFAULT_SAMPLE
) -> CandidateAssignment:
    """Assign each image to a lattice row of its own, at about the least

        1/n Σ_i l(x_i, y_π(i))

    where l is `cost`, x (n, ...) are the images and y (n, ...), of the same shape, the generated images of the lattice
    rows. The first search proposes `k` neighbours per row and per column, by the distance of `dims` principal
    components. The second proposes as many by the prices of the first assignment; it is repeated, up to three times,
    while more than a hundredth of the rows has no column. `sample` rows, evenly spread, serve to estimate the gap.
    """
    _check(x, y, k, dims)
    if len(x) != len(y):
        raise InputError(f"there must be as many images as lattice rows, got {len(x)} and {len(y)}")
    if sample < 1:
        raise InputError(f"sample must be at least 1, got {sample}")
    n = len(x)
    if n == 0:
        none = torch.empty(0, dtype=torch.float64)
        return CandidateAssignment(none.long(), 0.0, none, none, 0, 0, 0, False, 0.0, 0.0)
    seconds: dict[str, float] = {}
    with _clock(seconds, "sample"):
        chosen = torch.arange(0, n, max(1, n // sample))[:sample]
        sampled = _finite(cost.matrix(x[chosen.to(x.device)], y))
    with _clock(seconds, "components"):
        a, b = _components(cost.seen(x), cost.seen(y), dims)
    with _clock(seconds, "search"):
        graph = _search(a, b, k)
    with _clock(seconds, "costs"):
        costs = _costs(cost, x, y, graph)
    outside = max(float(costs.max()), float(sampled.max()))
    with _clock(seconds, "match"):
        matching = match(graph, costs, outside)
    first = without = float((matching.columns < 0).mean())
    searches = 1
    while searches == 1 or (without > FEW and searches <= MOST_SEARCHES):
        with _clock(seconds, "search"):
            slope = _slope(a, b, graph, costs)
            found = _search(a, b, k, slope, matching.row_duals, matching.column_duals)
        with _clock(seconds, "costs"):
            graph, costs = _join(graph, costs, found, cost, x, y)
        with _clock(seconds, "match"):
            matching = match(graph, costs, outside)
        without = float((matching.columns < 0).mean())
        searches += 1
    with _clock(seconds, "complete"):
        permutation, completed = _complete(matching.columns, a, b, cost, x, y)
        matched = cost.entries(x, y, torch.arange(n, device=x.device), torch.from_numpy(permutation).to(x.device))
    mean = float(matched.cpu().double().mean())
    gap, error = _estimate(mean, matching, chosen.numpy(), sampled)
    return CandidateAssignment(
        permutation=torch.from_numpy(permutation),
        cost=mean,
        row_duals=torch.from_numpy(matching.row_duals),
        column_duals=torch.from_numpy(matching.column_duals),
        compared=len(graph.indices),
        completed=completed,
        searches=searches,
        hubs=first > HUBS,
        gap_estimate=gap,
        gap_error=error,
        seconds=seconds,
    )


def neighbours(x: Tensor, y: Tensor, k: int = DEFAULT_K, dims: int = DEFAULT_DIMS) -> Graph:
    """Pairs (i, j) where y_j is among the k nearest to x_i, or x_i among the k nearest to y_j: at most (n + m) k.

    x is (n, ...) and y is (m, ...), of the same shape. Distance is the squared Euclidean distance of the first `dims`
    principal components of both sets together, or of the flattened images if these have at most `dims` values.
    """
    _check(x, y, k, dims)
    return _search(*_components(x, y, dims), k)


@contextmanager
def _clock(seconds: dict[str, float], part: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - began


def _check(x: Tensor, y: Tensor, k: int, dims: int) -> None:
    if x.ndim < 2 or x.shape[1:] != y.shape[1:]:
        raise InputError(f"images must have one shape (n, ...), got {tuple(x.shape)} and {tuple(y.shape)}")
    if math.prod(x.shape[1:]) == 0:
        raise InputError(f"images must not be empty, got shape {tuple(x.shape[1:])}")
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    if dims < 1:
        raise InputError(f"dims must be at least 1, got {dims}")


def _finite(costs: Tensor) -> np.ndarray:
    values = costs.float().cpu().numpy()
    if not np.isfinite(values).all():
        raise NotFinite("every cost must be finite: the images hold nan, infinite or huge values")
    return values


def _costs(cost: Cost, x: Tensor, y: Tensor, graph: Graph) -> np.ndarray:
    """l of the pairs, (number of pairs,) float32."""
    rows, columns = torch.from_numpy(graph.rows), torch.from_numpy(graph.indices.astype(np.int64))
    return _finite(cost.entries(x, y, rows.to(x.device), columns.to(x.device)))


def _join(graph: Graph, costs: np.ndarray, found: Graph, cost: Cost, x: Tensor, y: Tensor) -> tuple[Graph, np.ndarray]:
    """`graph` with those pairs of `found` that it lacks, and the costs of all its pairs."""
    n, m = len(graph.indptr) - 1, graph.columns
    old = graph.keys
    fresh = np.setdiff1d(found.keys, old, assume_unique=True)
    keys = np.concatenate([old, fresh])
    order = np.argsort(keys, kind="stable")
    values = np.concatenate([costs, _costs(cost, x, y, Graph.from_keys(fresh, n, m))])
    return Graph.from_keys(keys[order], n, m), values[order]


@torch.no_grad()
def _components(x: Tensor, y: Tensor, dims: int) -> tuple[Tensor, Tensor]:
    """The first principal components of both sets together: (n, dims) and (m, dims) float32."""
    if not all(bool(part.isfinite().all()) for part in (x, y)):
        raise NotFinite("images must be finite")
    some = torch.cat([part[:: max(1, 2 * len(part) // _FIT_ROWS)].float() for part in (x, y)])
    axes = Axes.of(some, dims)
    return axes.project(x), axes.project(y)


def _search(
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


def _slope(a: Tensor, b: Tensor, graph: Graph, costs: np.ndarray) -> float:
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


def _complete(columns: np.ndarray, a: Tensor, b: Tensor, cost: Cost, x: Tensor, y: Tensor) -> tuple[np.ndarray, int]:
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
        permutation[some] = offered[solvers.solve(_finite(matrix)).permutation.numpy()]
    return permutation, len(rows)


def _estimate(mean: float, matching: Matching, rows: np.ndarray, costs: np.ndarray) -> tuple[float, float]:
    """The gap estimate and its standard error, from all costs of the sampled rows, (len(rows), m)."""
    u, v = matching.row_duals, matching.column_duals
    falls = u[rows] - np.array([(row - v).min() for row in costs])
    bound = u.mean() + v.mean() - falls.mean()
    error = float(falls.std(ddof=1) / math.sqrt(len(rows))) if len(rows) > 1 else math.nan
    return max(0.0, float(mean - bound)), error
