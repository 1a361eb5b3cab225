r"""Only the pairs that matter: a cost matrix of which most passes compute a small part anew.

Between two passes the generated images y move a little, and so do the costs. A partial pass

1. brings all costs up to date by a guess: the change of a cheap cost, the squared distance of a few principal
   components, times a slope b that was fitted to the changes of the last pass,

       C_ik <- C_ik + b (|x_i - y_k|^2 - |x_i - y_k before|^2);

2. computes the pairs with the smallest guessed reduced costs C_ik - u_i - v_k, the k best of every row and of every
   column, and the current ones;
3. solves the assignment on the matrix of both.

Every r-th pass is full. It certifies its own gap by its duals as always; and it measures what a partial pass would have
missed there: the permutation that the partial pass leads to is set against the optimum of the full matrix. In between,
that measurement is all that is known, and it is called an estimate. While it is above the user's bound all passes are
full, and k grows; where it is far below, k shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurosql import assign
from neurosql.components import Axes
from neurosql.cost import Cost

DIMS = 64
FEWEST = 8
FIT_ROWS = 4096

Clock = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class Pass:
    """One assignment, full or partial."""

    solution: assign.Assignment
    full: bool
    pairs: float
    """Share of all pairs that was computed."""
    missed: float | None
    """At a full pass that could have been partial: the relative gap that the partial pass would have left."""
    missing: Tensor | None
    """At such a pass: the optimal pairs, (count, 2), that a partial pass would not have computed."""


class PartialRefresh:
    """Keeps the matrix from pass to pass and decides what to compute anew.

    Partial passes begin when at most `calm` of the images changed their code in the last pass, and stop, until the
    next full pass says otherwise, when a full pass has measured a gap above `bound`.
    """

    def __init__(self, method: str, best: int, every: int, bound: float, calm: float = 1.0) -> None:
        self.method, self.best, self.every, self.bound, self.calm = method, best, every, bound, calm
        self.costs: Tensor | None = None
        self.places: Tensor | None = None
        """The generated images' components at the last pass."""
        self.slope = 0.0
        self.since_full = 0
        self.measured: float | None = None
        self.changed = 1.0
        self._axes: Axes | None = None
        self._targets: Tensor | None = None

    def solve(
        self,
        cost: Cost,
        x: Tensor,
        y: Tensor,
        warm: assign.Start,
        memory: int,
        clock: Clock = lambda part: nullcontext(),
    ) -> Pass:
        """Assign images x to generated images y (n each); `warm` is the last pass's solution.

        `clock(part)` is a context that times a part: cost or assignment.
        """
        ready = self.costs is not None and self.changed <= self.calm
        trusted = self.measured is not None and self.measured <= self.bound
        if ready and trusted and self.since_full + 1 < self.every:
            result = self._partial(cost, x, y, warm, memory, clock)
            self.since_full += 1
        else:
            result = self._full(cost, x, y, warm, memory, clock, measure=ready)
            self.since_full = 0
        before = warm.permutation
        self.changed = 1.0 if before is None else float((result.solution.permutation != before).double().mean())
        return result

    def state(self) -> dict[str, Tensor]:
        """What decides the next pass, as tensors."""
        measured = float("nan") if self.measured is None else self.measured
        plain = [self.since_full, measured, self.changed, self.slope, self.best]
        tensors = {"passes": torch.tensor(plain, dtype=torch.float64)}
        if self.costs is None or self.places is None:
            return tensors
        return tensors | {"costs": self.costs, "places": self.places}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        since, measured, self.changed, self.slope, best = tensors["passes"].tolist()
        self.since_full, self.best = int(since), int(best)
        self.measured = None if math.isnan(measured) else measured
        self.costs = tensors["costs"].clone() if "costs" in tensors else None
        self.places = tensors["places"].clone() if "places" in tensors else None

    def _full(
        self, cost: Cost, x: Tensor, y: Tensor, warm: assign.Start, memory: int, clock: Clock, measure: bool
    ) -> Pass:
        with clock("cost"):
            costs = cost.matrix(x, y, memory).cpu()
        with clock("assignment"):
            solution = assign.solve(costs, self.method, warm)
        missed = missing = None
        # What follows looks back at the last pass: it is part of the price of partial passes.
        with clock("cost"):
            if self.costs is None:
                self.places = self._place(x, y)
            else:
                moved = self._moved(x, y)
                change = costs - self.costs
                if not self.slope:
                    # The first look back: later ones have the slope of the pass before.
                    near = self._chosen(self.costs, warm)
                    self._fit(change[near], moved[near])
                self.costs.add_(moved, alpha=self.slope)
                chosen = self._chosen(self.costs, warm)
                self._fit(change[chosen], moved[chosen])
                self.costs[chosen] = costs[chosen]
        if measure and self.costs is not None:
            with clock("assignment"):
                would_be = assign.solve(self.costs, self.method, warm).permutation
            rows = torch.arange(len(costs))
            excess = float(costs[rows, would_be].double().mean()) - solution.cost
            missed = max(0.0, excess) / max(abs(solution.cost), 1e-12)
            absent = ~chosen[rows, solution.permutation]
            missing = torch.stack([rows[absent], solution.permutation[absent]], 1)
            self.measured = missed
            if missed > self.bound:
                self.best = min(2 * self.best, max(FEWEST, len(costs) // 8))
            elif missed < self.bound / 10:
                self.best = max(self.best // 2, min(self.best, FEWEST))
        self.costs = costs
        return Pass(solution, True, 1.0, missed, missing)

    def _partial(self, cost: Cost, x: Tensor, y: Tensor, warm: assign.Start, memory: int, clock: Clock) -> Pass:
        assert self.costs is not None
        with clock("cost"):
            moved = self._moved(x, y)
            self.costs.add_(moved, alpha=self.slope)
            chosen = self._chosen(self.costs, warm)
            rows, columns = chosen.nonzero(as_tuple=True)
            fresh = cost.pairs(x, y, rows.to(x.device), columns.to(x.device), memory).cpu()
            there = moved[rows, columns]
            self._fit(fresh - self.costs[rows, columns] + self.slope * there, there)
            self.costs[rows, columns] = fresh
        with clock("assignment"):
            solution = assign.solve(self.costs, self.method, warm)
        return Pass(solution, False, len(rows) / chosen.numel(), None, None)

    def _place(self, x: Tensor, y: Tensor) -> Tensor:
        """The generated images' components, (n, dims); the images' own are found once."""
        if self._axes is None:
            self._axes = Axes.of(x[:: max(1, len(x) // FIT_ROWS)], DIMS)
            self._targets = self._axes.project(x).cpu()
        return self._axes.project(y).cpu()

    def _moved(self, x: Tensor, y: Tensor) -> Tensor:
        """The change of the cheap cost since the last pass, (n, n)."""
        assert self.costs is not None and self.places is not None
        places, before = self._place(x, y), self.places
        assert self._targets is not None
        # |x - y|^2 - |x - y'|^2 = |y|^2 - |y'|^2 - 2 <x, y - y'>: one product for all pairs.
        norms = places.square().sum(1) - before.square().sum(1)
        self.places = places
        return torch.addmm(norms, self._targets, (places - before).T, alpha=-2).to(self.costs.dtype)

    def _fit(self, change: Tensor, moved: Tensor) -> None:
        """The slope of the change of the costs over the change of the cheap cost, by least squares."""
        a, b = moved.double() - moved.double().mean(), change.double() - change.double().mean()
        spread = float(a.square().sum())
        self.slope = max(0.0, float((a * b).sum()) / spread) if spread > 0 else 0.0

    def _chosen(self, costs: Tensor, warm: assign.Start) -> Tensor:
        """The pairs to compute, as a mask: the best of each row and column by reduced cost, and the current ones."""
        n, m = costs.shape
        best = min(self.best, n, m)
        # Within a row the row's own dual does not change the order, and within a column the column's does not.
        reduced = costs.numpy() if warm.column_duals is None else costs.numpy() - warm.column_duals.float().numpy()
        chosen = np.zeros((n, m), dtype=bool)
        np.put_along_axis(chosen, _smallest(reduced, best), True, axis=1)
        reduced = np.ascontiguousarray((reduced - reduced.min(axis=1, keepdims=True)).T)
        np.put_along_axis(chosen.T, _smallest(reduced, best), True, axis=1)
        if warm.permutation is not None:
            chosen[np.arange(n), warm.permutation.numpy()] = True
        return torch.from_numpy(chosen)


def _smallest(values: np.ndarray, k: int) -> np.ndarray:
    """Places of the k smallest of each row, (n, k)."""
    return np.argpartition(values, k - 1, axis=1)[:, :k]
