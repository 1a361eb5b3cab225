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

import torch
from torch import Tensor

from neurosql.assign import proposals
from neurosql.assign.matching import Graph, match
from neurosql.cost import Cost
from neurosql.errors import InputError

DEFAULT_K = 64
DEFAULT_DIMS = 64
DEFAULT_SAMPLE = 128

# With more than this share of rows without a column, the neighbours are taken to be hubs: a few images near all others.
HUBS = 0.2
# Rounds of search after the first: usually one, more while more than this share of the rows has no column.
FEW = 0.01
MOST_SEARCHES = 3


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
        sampled = proposals.finite(cost.matrix(x[chosen.to(x.device)], y))
    with _clock(seconds, "components"):
        a, b = proposals.components(cost.seen(x), cost.seen(y), dims)
    with _clock(seconds, "search"):
        graph = proposals.search(a, b, k)
    with _clock(seconds, "costs"):
        costs = proposals.costs_of(cost, x, y, graph)
    outside = max(float(costs.max()), float(sampled.max()))
    with _clock(seconds, "match"):
        matching = match(graph, costs, outside)
    first = without = float((matching.columns < 0).mean())
    searches = 1
    while searches == 1 or (without > FEW and searches <= MOST_SEARCHES):
        with _clock(seconds, "search"):
            slope = proposals.slope(a, b, graph, costs)
            found = proposals.search(a, b, k, slope, matching.row_duals, matching.column_duals)
        with _clock(seconds, "costs"):
            graph, costs = proposals.join(graph, costs, found, cost, x, y)
        with _clock(seconds, "match"):
            matching = match(graph, costs, outside)
        without = float((matching.columns < 0).mean())
        searches += 1
    with _clock(seconds, "complete"):
        permutation, completed = proposals.complete(matching.columns, a, b, cost, x, y)
        matched = cost.entries(x, y, torch.arange(n, device=x.device), torch.from_numpy(permutation).to(x.device))
    mean = float(matched.cpu().double().mean())
    gap, error = proposals.estimate(mean, matching, chosen.numpy(), sampled)
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
    return proposals.search(*proposals.components(x, y, dims), k)


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
