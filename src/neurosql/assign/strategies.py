"""Ways to assign a block's images to its lattice rows, all with one `solve(block, ...) -> solution, figures`.

- `Dense` computes the whole cost matrix.
- `Candidates` never computes the costs of all pairs (see candidates.py).
- `Blocks` improves the assignment so far, among neighbours (see refinement.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from neurosql.assign import candidates, refinement, solvers
from neurosql.assign.blocks import Block
from neurosql.assign.candidates import CandidateAssignment
from neurosql.assign.solvers import Assignment, Warm
from neurosql.clock import Clock
from neurosql.cost import Cost
from neurosql.settings import QuantileSettings

Solution = Assignment | CandidateAssignment
Figures = dict[str, float]
"""What is known about an assignment besides its cost: its gap, certified or estimated, and the share of pairs used."""


class Strategy(ABC):
    """One way to assign a block; the loss, its memory and the clock are the method's."""

    def __init__(self, cost: Cost, settings: QuantileSettings, clock: Clock) -> None:
        self.cost, self.settings, self.clock = cost, settings, clock
        self.memory = settings.memory * 2**20

    @abstractmethod
    def solve(self, block: Block, x: Tensor, y: Tensor, warm: Warm) -> tuple[Solution, Figures]:
        """Assign the block's images, rows of x (n, ...), to the generated images y (m, ...) of its columns."""

    def solve_all(
        self, blocks: Sequence[Block], x: Tensor, parts: Sequence[Tensor], warm: Sequence[Warm]
    ) -> list[tuple[Solution, Figures]]:
        """`solve` for several independent blocks."""
        return [self.solve(block, x, y, start) for block, y, start in zip(blocks, parts, warm)]


class Dense(Strategy):
    """All pairs, and a certificate."""

    def solve(self, block: Block, x: Tensor, y: Tensor, warm: Warm) -> tuple[Solution, Figures]:
        return self.solve_all([block], x, [y], [warm])[0]

    def solve_all(
        self, blocks: Sequence[Block], x: Tensor, parts: Sequence[Tensor], warm: Sequence[Warm]
    ) -> list[tuple[Solution, Figures]]:
        with self.clock("cost"):
            costs = [self.cost.matrix(x[block.rows], y, self.memory) for block, y in zip(blocks, parts)]
        return self.solved(costs, warm)

    def solved(self, costs: Sequence[Tensor], warm: Sequence[Warm]) -> list[tuple[Solution, Figures]]:
        """The assignments of cost matrices, one for each block."""
        with self.clock("assignment"):
            solutions = solvers.solve_all(costs, self.settings.assignment, warm)
        return [(found, {"gap": found.gap, "relative_gap": found.relative_gap}) for found in solutions]


class Candidates(Strategy):
    """A few promising pairs, and an estimate instead of a certificate."""

    def solve(self, block: Block, x: Tensor, y: Tensor, warm: Warm) -> tuple[Solution, Figures]:
        return self._described(candidates.solve(self.cost, x[block.rows], y, self.settings.candidates))

    def _described(self, solution: CandidateAssignment) -> tuple[Solution, Figures]:
        for part, seconds in solution.seconds.items():
            self.clock.add("assignment" if part in ("match", "complete") else "cost", seconds)
        share = solution.compared / len(solution.permutation) ** 2
        return solution, {"compared": share, "relative_gap_estimate": solution.relative_gap_estimate}


class Blocks(Candidates):
    """A few promising pairs among neighbours, from the assignment so far."""

    def solve(self, block: Block, x: Tensor, y: Tensor, warm: Warm) -> tuple[Solution, Figures]:
        # All images in their order need no copy: they may be mapped from a file.
        images = x if torch.equal(block.rows, torch.arange(len(x))) else x[block.rows]
        size = self.settings.block_size
        found = refinement.solve(self.cost, images, y, warm.permutation, warm.column_duals, size, seed=warm.turn)
        return self._described(found)


STRATEGIES: dict[str, type[Strategy]] = {"dense": Dense, "candidates": Candidates, "blocks": Blocks}
