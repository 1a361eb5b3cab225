"""Which lattice rows are offered to the images of a mini-batch."""

from __future__ import annotations

import torch
from torch import Tensor

from neurosql.assign.blocks import Block


class Offers:
    """The lattice rows that batches take, block by block: each image is offered rows of its own block only.

    - `owned`: those that the images of the batch hold;
    - `partition`: one part of the lattice, which is split anew each epoch;
    - `random`: a random draw.
    """

    def __init__(self, blocks: list[Block], subset: str) -> None:
        self.blocks, self.subset = blocks, subset
        self.block_of = torch.empty(sum(map(len, blocks)), dtype=torch.int64)
        for number, block in enumerate(blocks):
            self.block_of[block.rows] = number

    def begin_epoch(self, random: torch.Generator) -> None:
        """Split each block's lattice rows anew, for batches that take disjoint parts of it."""
        self.split = torch.cat([block.columns[_shuffle(block.columns, random)] for block in self.blocks])
        self.taken = torch.zeros(len(self.blocks), dtype=torch.int64)

    def of(self, index: Tensor, permutation: Tensor, random: torch.Generator) -> list[Block]:
        """The images `index` (m,), block by block, each block with as many lattice rows as it has images."""
        offers = []
        for number, block in enumerate(self.blocks):
            rows = index[self.block_of[index] == number]
            if not len(rows):
                continue
            if self.subset == "owned":
                offered = permutation[rows]
            elif self.subset == "partition":
                begin = int(block.columns[0]) + int(self.taken[number])
                offered = self.split[begin : begin + len(rows)]
                self.taken[number] += len(rows)
            else:
                offered = block.columns[_shuffle(block.columns, random)[: len(rows)]]
            offers.append(Block(rows, offered, block.label))
        return offers

    def tensors(self) -> dict[str, Tensor]:
        """What changes within an epoch."""
        return {"split": self.split, "taken": self.taken}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` gave."""
        self.split, self.taken = tensors["split"], tensors["taken"]


def _shuffle(columns: Tensor, random: torch.Generator) -> Tensor:
    return torch.randperm(len(columns), generator=random)
