"""Only the pairs that matter: a cost matrix of which most passes compute a small part anew.

Late in training the costs change slowly, and an image will not jump to a code that was far too dear a moment ago. A
partial pass computes the pairs with the smallest reduced costs C_ik - u_i - v_k of the last pass, the k best of every
row and of every column, and leaves the others as they were. Every r-th pass is full. It certifies its own gap by its
duals as always; and it measures what a partial pass would have missed there: the permutation that the partial pass
leads to is set against the optimum of the full matrix. In between, that measurement is all that is known, and it is
called an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from neurosql import assign
from neurosql.cost import Cost

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

    def __init__(self, method: str, best: int, every: int, bound: float, calm: float = 0.5) -> None:
        self.method, self.best, self.every, self.bound, self.calm = method, best, every, bound, calm
        self.costs: Tensor | None = None
        self.since_full = 0
        self.measured: float | None = None
        self.changed = 1.0

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
        tensors = {"passes": torch.tensor([self.since_full, measured, self.changed], dtype=torch.float64)}
        return tensors if self.costs is None else tensors | {"costs": self.costs}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
        since, measured, self.changed = tensors["passes"].tolist()
        self.since_full, self.measured = int(since), None if math.isnan(measured) else measured
        self.costs = tensors["costs"].clone() if "costs" in tensors else None

    def _full(
        self, cost: Cost, x: Tensor, y: Tensor, warm: assign.Start, memory: int, clock: Clock, measure: bool
    ) -> Pass:
        with clock("cost"):
            costs = cost.matrix(x, y, memory).cpu()
        with clock("assignment"):
            solution = assign.solve(costs, self.method, warm)
        missed = missing = None
        if measure and self.costs is not None:
            chosen = self._chosen(self.costs, warm)
            self.costs[chosen] = costs[chosen]
            would_be = assign.solve(self.costs, self.method, warm).permutation
            rows = torch.arange(len(costs))
            excess = float(costs[rows, would_be].double().mean()) - solution.cost
            missed = max(0.0, excess) / max(abs(solution.cost), 1e-12)
            absent = ~chosen[rows, solution.permutation]
            missing = torch.stack([rows[absent], solution.permutation[absent]], 1)
            self.measured = missed
        self.costs = costs
        return Pass(solution, True, 1.0, missed, missing)

    def _partial(self, cost: Cost, x: Tensor, y: Tensor, warm: assign.Start, memory: int, clock: Clock) -> Pass:
        assert self.costs is not None
        with clock("cost"):
            chosen = self._chosen(self.costs, warm)
            rows, columns = chosen.nonzero(as_tuple=True)
            self.costs[rows, columns] = cost.pairs(x, y, rows.to(x.device), columns.to(x.device), memory).cpu()
        with clock("assignment"):
            solution = assign.solve(self.costs, self.method, warm)
        return Pass(solution, False, len(rows) / chosen.numel(), None, None)

    def _chosen(self, costs: Tensor, warm: assign.Start) -> Tensor:
        """The pairs to compute, as a mask: the best of each row and column by reduced cost, and the current ones."""
        n, m = costs.shape
        chosen = torch.zeros(n, m, dtype=torch.bool)
        best = min(self.best, n, m)
        # Within a row the row's own dual does not change the order, and within a column the column's does not.
        reduced = costs if warm.column_duals is None else costs - warm.column_duals.to(costs.dtype)
        chosen.scatter_(1, reduced.topk(best, dim=1, largest=False, sorted=False).indices, True)
        reduced = reduced - reduced.amin(1, keepdim=True)
        chosen.T.scatter_(1, reduced.T.contiguous().topk(best, dim=1, largest=False, sorted=False).indices, True)
        if warm.permutation is not None:
            chosen[torch.arange(n), warm.permutation] = True
        return chosen
