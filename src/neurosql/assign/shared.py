"""Assignments that several ranks make together: of all images, or each within its part of a batch.

Every rank knows the lattice and the permutation, and has access to its own images. All call these functions at the same
place, and all get the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neurosql.assign.blocks import Block
from neurosql.assign.solvers import Assignment, Warm
from neurosql.assign.strategies import Dense, Figures, Solution
from neurosql.ranks import here

Solved = tuple[Solution, Figures]
CERTIFIED = ("gap", "relative_gap")
"""What is known about an assignment within a part, besides its cost."""


def by_first(solve: Callable[[], list[Solved]]) -> list[Solved]:
    """What rank 0 finds, for all ranks."""
    tensors: dict[str, Tensor] = {}
    plain: list[tuple[float, Figures]] = []
    if here().first:
        for number, (solution, figures) in enumerate(solve()):
            found = (solution.permutation, solution.row_duals, solution.column_duals)
            tensors |= {f"{number} {name}": value for name, value in zip("puv", found)}
            plain.append((solution.cost, figures))
    tensors, plain = here().tell(tensors, plain)
    results: list[Solved] = []
    for number, (cost, figures) in enumerate(plain):
        permutation, u, v = (tensors[f"{number} {name}"] for name in "puv")
        results.append((Assignment(permutation, cost, u, v, exact=False), figures))
    return results


def by_all(
    strategy: Dense, blocks: Sequence[Block], x: Tensor, decode: Callable[[Tensor], Tensor], warm: Sequence[Warm]
) -> list[Solved]:
    """Each rank makes its part of the generated images and has the rows of the cost matrix that belong to its part of
    the images x (n, ...); rank 0 solves. `decode(columns)` makes the images of lattice rows.
    """
    costs = [_cost(strategy, block, x, decode) for block in blocks]
    return by_first(lambda: strategy.solved([cost for cost in costs if cost is not None], warm))


def _cost(strategy: Dense, block: Block, x: Tensor, decode: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The cost matrix of a block on rank 0, None on the others."""
    ranks = here()
    own = ranks.part(len(block))
    with strategy.clock("generate"):
        made = decode(block.columns[own.rows])
    with strategy.clock("cost"):
        images = x[block.rows[own.rows]]
        rows = images.new_empty(len(images), len(block))
        # One part of the generated images at a time: no rank holds them all.
        for rank in range(ranks.size):
            part = ranks.part(len(block), rank)
            if part.begin == part.end:
                continue
            offered = made if rank == ranks.rank else made.new_empty(part.end - part.begin, *made.shape[1:])
            ranks.spread(offered.contiguous() if rank == ranks.rank else offered, rank)
            if len(images):
                rows[:, part.rows] = strategy.cost.matrix(images, offered, strategy.memory)
        return ranks.collect(rows, len(block))


def within_parts(
    blocks: Sequence[Block], index: Tensor, solve: Callable[[list[Block]], list[Solved]]
) -> tuple[list[Block], list[Solved]]:
    """Divide the blocks of a joint batch of images `index` (m,) among the ranks that have these images.

    Each rank solves its own, and all get the blocks of all ranks and what was found for them.
    """
    ranks = here()
    parts = [_restricted(blocks, index[ranks.part(len(index), rank).rows]) for rank in range(ranks.size)]
    found = solve(parts[ranks.rank])
    rows = [torch.stack([s.permutation.double(), s.row_duals, s.column_duals], 1) for s, _ in found]
    known = [[s.cost, *(figures[name] for name in CERTIFIED)] for s, figures in found]
    everyone = [block for part in parts for block in part]
    rows_of_all = ranks.gather(torch.cat(rows), [sum(map(len, part)) for part in parts])
    known_of_all = ranks.gather(torch.tensor(known, dtype=torch.float64), [len(part) for part in parts])
    results: list[Solved] = []
    for (cost, *certified), columns in zip(known_of_all.tolist(), rows_of_all.split([len(b) for b in everyone])):
        permutation, u, v = columns.unbind(1)
        results.append((Assignment(permutation.long(), cost, u, v, exact=False), dict(zip(CERTIFIED, certified))))
    return everyone, results


def _restricted(blocks: Sequence[Block], index: Tensor) -> list[Block]:
    """The blocks with the images of `index` alone, and the lattice rows beside them."""
    found = []
    for block in blocks:
        here_too = torch.isin(block.rows, index)
        if here_too.any():
            found.append(Block(block.rows[here_too], block.columns[here_too], block.label))
    return found
