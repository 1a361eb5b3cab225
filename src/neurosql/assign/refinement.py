r"""Block refinement: an assignment is improved among neighbours, in blocks that overlap and shift. Time is O(n).

The search of candidates.py compares all n² pairs of a few principal components. Here it stays within blocks:

1. An image and the lattice row that it holds are at a_i and b_π(i), in principal components. The midpoints of all are
   cut in two by a random direction, again and again, until no block has more than `size` images.
2. In each block, every image proposes k of the block's lattice rows, and every row k of its images, by the prices of
   the assignment so far: those with the smallest b |a_i - b_j|² - u_i - v_j. Their costs are computed.
3. The proposals of all blocks join one graph, which also has the pairs that the images hold. An auction assigns along
   it. Pairs of earlier cuts stay in the graph, so images travel from block to block.

A sweep is these three steps. The next one cuts along other directions and knows better prices. Sweeps end once the gap
is estimated to be small, by all costs of a few rows, or after eight. The cost never rises. If one block holds all, all
costs are computed and the result is an optimum.

Small blocks whose costs are all computed would need several times as many pairs: in eight dimensions, most of the rows
that suit an image are not in a small block around it, and most of those in the block do not suit it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from neurosql.assign import proposals, solvers
from neurosql.assign.candidates import CandidateAssignment
from neurosql.assign.matching import Graph, Matching, match
from neurosql.clock import Clock
from neurosql.cost import Cost
from neurosql.errors import InputError

DEFAULT_SIZE = 1024
DEFAULT_K = 8

# Principal components, the images that they are fitted to, and rows whose costs are all computed.
DIMS = 32
FITTED = 2048
SAMPLE = 64

MOST_SWEEPS = 8
# Sweeps end at this estimated relative gap. The true one is usually half as large.
ENOUGH = 0.005
# Prices of the first sweep are those of other costs, or none.
_FEWEST_SWEEPS = 2
# Nearest rows to which the slope is fitted, of each row of the sample.
_NEAREST = 64
# Sets that are halved together down to this size are then matched pair by pair.
_LEAF = 64


def solve(
    cost: Cost,
    x: Tensor,
    y: Tensor,
    permutation: Tensor | None = None,
    column_duals: Tensor | None = None,
    size: int = DEFAULT_SIZE,
    k: int = DEFAULT_K,
    seed: int = 0,
) -> CandidateAssignment:
    """Improve an assignment of images x (n, ...) to the generated images y (n, ...) of lattice rows:

        1/n Σ_i l(x_i, y_π(i))

    falls or stays as it is, where l is `cost`. `permutation` is π, (n,). If it is missing or no permutation, both sets
    are first halved together along principal components. `column_duals` (n,) are those of an earlier assignment, right
    or wrong. Blocks have at most `size` images, in which each row and each column proposes `k` pairs per sweep; `seed`
    decides how they are cut.
    """
    _check(x, y, size, k)
    n = len(x)
    if n <= size:
        return _solve_exactly(cost, x, y, permutation, column_duals)
    clock = Clock()
    with clock("sample"):
        chosen = torch.arange(0, n, max(1, n // SAMPLE))[:SAMPLE]
        sampled = proposals.finite(cost.matrix(x[chosen.to(x.device)], y))
    with clock("components"):
        a, b = (part.cpu() for part in proposals.components(cost.seen(x), cost.seen(y), DIMS, FITTED))
        best = _start(permutation, a.numpy(), b.numpy())
    with clock("costs"):
        graph = _pairs(best)
        costs = proposals.costs_of(cost, x, y, graph)
    with clock("search"):
        near = proposals.search(a[chosen], b, _NEAREST)
        slope = proposals.slope(a[chosen], b, near, sampled[near.rows, near.indices])
    v = np.zeros(n) if column_duals is None else column_duals.numpy().astype(np.float64)
    matching = Matching(best, costs - v[best], v)
    least, completed, sweeps, gap, error = float(costs.mean(dtype=np.float64)), 0, 0, math.inf, math.nan
    random = np.random.default_rng(seed)
    while sweeps < _FEWEST_SWEEPS or (sweeps < MOST_SWEEPS and gap > ENOUGH * abs(least - gap)):
        sweeps += 1
        with clock("search"):
            found = _proposed(a, b, best, matching, slope, size, k, random)
        with clock("costs"):
            graph, costs = proposals.join(graph, costs, found, cost, x, y)
        with clock("match"):
            matching = match(graph, costs, max(float(costs.max()), float(sampled.max())))
        with clock("complete"):
            taken, without = proposals.complete(matching.columns, a, b, cost, x, y)
            if without:
                graph, costs = proposals.join(graph, costs, _pairs(taken), cost, x, y)
            mean = float(_held(graph, costs, taken).mean(dtype=np.float64))
            # The auction stops short of the optimum, by next to nothing.
            if mean < least:
                best, least, completed = taken, mean, without
            gap, error = proposals.estimate(least, matching, chosen.numpy(), sampled)
            slope = proposals.slope(a, b, graph, costs)
    return CandidateAssignment(
        permutation=torch.from_numpy(best),
        cost=least,
        row_duals=torch.from_numpy(matching.row_duals),
        column_duals=torch.from_numpy(matching.column_duals),
        compared=len(graph.indices),
        completed=completed,
        searches=sweeps,
        hubs=False,
        gap_estimate=gap,
        gap_error=error,
        seconds=clock.read(),
    )


def match_points(a: np.ndarray, b: np.ndarray, size: int = 256, sweeps: int = 4, seed: int = 0) -> np.ndarray:
    """A permutation π (n,) with a small Σ_i |a_i - b_π(i)|², for points a (n, d) and b (n, d) in a few dimensions.

    Both sets are halved together. In each sweep, blocks of at most `size` neighbours are then assigned exactly, among
    themselves: distances cost next to nothing, and nothing is kept but the permutation, so memory is O(n d).
    """
    permutation = _halved(a, b)
    random = np.random.default_rng(seed)
    for _ in range(sweeps):
        for rows in cut(a + b[permutation], size, random):
            columns = permutation[rows]
            distances = Cost.named("l2").matrix(torch.from_numpy(a[rows]), torch.from_numpy(b[columns]))
            permutation[rows] = columns[solvers.solve(distances).permutation.numpy()]
    return permutation


def _check(x: Tensor, y: Tensor, size: int, k: int) -> None:
    if x.ndim < 2 or x.shape != y.shape:
        raise InputError(f"images and generated images must have one shape (n, ...), got {x.shape} and {y.shape}")
    if size < 2:
        raise InputError(f"size must be at least 2, got {size}")
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")


def _solve_exactly(
    cost: Cost, x: Tensor, y: Tensor, permutation: Tensor | None, column_duals: Tensor | None
) -> CandidateAssignment:
    """One block: all pairs, and a gap that is certified."""
    clock = Clock()
    with clock("costs"):
        matrix = proposals.finite(cost.matrix(x, y))
    with clock("match"):
        found = solvers.solve(matrix, warm=solvers.Warm(column_duals, permutation))
    return CandidateAssignment(
        permutation=found.permutation,
        cost=found.cost,
        row_duals=found.row_duals,
        column_duals=found.column_duals,
        compared=matrix.size,
        completed=0,
        searches=1,
        hubs=False,
        gap_estimate=found.gap,
        gap_error=0.0,
        seconds=clock.read(),
        exact=found.exact,
    )


def _proposed(
    a: Tensor,
    b: Tensor,
    permutation: np.ndarray,
    matching: Matching,
    slope: float,
    size: int,
    k: int,
    random: np.random.Generator,
) -> Graph:
    """The pairs of one sweep: those that its blocks propose."""
    n = len(permutation)
    keys = []
    for rows in cut((a + b[torch.from_numpy(permutation)]).numpy(), size, random):
        columns = permutation[rows]
        prices = matching.row_duals[rows], matching.column_duals[columns]
        pairs = proposals.search(a[torch.from_numpy(rows)], b[torch.from_numpy(columns)], k, slope, *prices)
        keys.append(rows[pairs.rows] * n + columns[pairs.indices])
    together = np.concatenate(keys)
    together.sort()
    return Graph.from_keys(together, n, n)


def cut(points: np.ndarray, size: int, random: np.random.Generator) -> list[np.ndarray]:
    """Cut points (n, q) into blocks of at most `size` neighbours, of about one size: their indices.

    Each cut is across a random direction, in which the points vary: a random sum of them, less their mean.
    """
    blocks, waiting = [], [np.arange(len(points))]
    while waiting:
        block = waiting.pop()
        count = -(-len(block) // size)
        if count <= 1:
            blocks.append(block)
            continue
        own = points[block]
        own -= own.mean(0)
        heights = own @ (random.standard_normal(len(own), dtype=np.float32) @ own)
        first = len(block) * (count // 2) // count
        order = np.argpartition(heights, first)
        waiting += [block[order[:first]], block[order[first:]]]
    return blocks


def _start(permutation: Tensor | None, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The given permutation, or one to begin with."""
    if permutation is not None and torch.equal(permutation.sort().values, torch.arange(len(a))):
        return permutation.numpy()
    return _halved(a, b)


def _halved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A permutation of rows (n, q) and columns (n, q) that are halved together where they vary most."""
    permutation = np.empty(len(a), np.int64)
    waiting = [(np.arange(len(a)), np.arange(len(b)))]
    while waiting:
        rows, columns = waiting.pop()
        p, q = a[rows], b[columns]
        if len(rows) <= _LEAF:
            distances = ((p[:, None] - q[None]) ** 2).sum(2)
            permutation[rows] = columns[solvers.solve(distances).permutation.numpy()]
            continue
        axis = int(np.argmax(p.var(0) + q.var(0)))
        half = len(rows) // 2
        of_rows, of_columns = np.argpartition(p[:, axis], half), np.argpartition(q[:, axis], half)
        waiting += [(rows[of_rows[s]], columns[of_columns[s]]) for s in (slice(half), slice(half, None))]
    return permutation


def _pairs(permutation: np.ndarray) -> Graph:
    n = len(permutation)
    return Graph(np.arange(n + 1), permutation.astype(np.int32), n)


def _held(graph: Graph, costs: np.ndarray, permutation: np.ndarray) -> np.ndarray:
    """The costs of the pairs (i, π(i)), all of which are in the graph."""
    n = len(permutation)
    return costs[np.searchsorted(graph.keys, np.arange(n) * n + permutation)]
