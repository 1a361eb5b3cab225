"""Blocks: images, and the lattice rows that are theirs to take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurosql.prior import Prior


@dataclass(eq=False)
class Block:
    """Images and as many lattice rows: image i may take row k only where both are of one block."""

    rows: Tensor
    """(m,) int64 on the CPU: places of the images in the training set."""
    columns: Tensor
    """(m,) int64 on the CPU: rows of the lattice."""
    label: int | None = None
    """The class of the images, in the class-conditional case."""

    def __len__(self) -> int:
        return len(self.rows)


def lay_out(prior: Prior, n: int, labels: Tensor | None, seed: int) -> tuple[Tensor, list[Block]]:
    """The lattice (n, d) of n images, and their blocks: one of all, or one per class.

    Each class has a sublattice of its own; they are stacked in the order of the classes.
    """
    if labels is None:
        return prior.lattice(n, seed), [Block(torch.arange(n), torch.arange(n))]
    labels = labels.cpu()
    blocks: list[Block] = []
    pieces = []
    filled = 0
    for label in labels.unique().tolist():
        rows = torch.nonzero(labels == label).flatten()
        # Seeded from seed and class: one class's codes do not depend on which other classes there are.
        child = int(np.random.SeedSequence([seed, label]).generate_state(1)[0])
        pieces.append(prior.lattice(len(rows), child))
        blocks.append(Block(rows, torch.arange(filled, filled + len(rows)), label))
        filled += len(rows)
    return torch.cat(pieces), blocks
