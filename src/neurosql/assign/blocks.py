"""Blocks: images, and the lattice rows that are theirs to take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurosql.assign.clusters import COUNTS, centres, choose, clusters
from neurosql.density import Mixture
from neurosql.prior import Prior


@dataclass(eq=False)
class Block:
    """Images and as many lattice rows: image i may take row k only if both are in one block."""

    rows: Tensor
    """(m,) int64 on the CPU: places of the images in the training set."""
    columns: Tensor
    """(m,) int64 on the CPU: rows of the lattice."""
    label: int | None = None
    """The class of the images, in the class-conditional case."""

    def __len__(self) -> int:
        return len(self.rows)


def lay_out(prior: Prior, n: int, labels: Tensor | None, seed: int) -> tuple[Tensor, list[Block]]:
    """The lattice (n, d) of n images, and their blocks: one of all images, or one per class.

    Each class has a sublattice of its own; they are stacked in the order of the classes.
    """
    blocks = _blocks(n, labels)
    if labels is None:
        return prior.lattice(n, seed), blocks
    # Seeded from seed and class: one class's codes do not depend on which other classes there are.
    pieces = [prior.lattice(len(block), child(seed, block.label or 0)) for block in blocks]
    return torch.cat(pieces), blocks


@dataclass(eq=False)
class Layout:
    """A mixture lattice: its points, the images that each component begins with, and its law."""

    lattice: Tensor
    """(n, d) float64."""
    blocks: list[Block]
    """One of all images, or one per class."""
    parts: list[Block]
    """One per component."""
    law: Mixture
    """The mixture, of each class in the class-conditional case."""


def lay_out_components(
    prior: Prior, x: Tensor, labels: Tensor | None, classes: int | None, count: int, random: torch.Generator, seed: int
) -> Layout:
    """A lattice for images x (n, ...) with `count` components, of each class in the class-conditional case.

    A count of 0 chooses the number for each class.
    """
    dim, most = prior.dim, count or COUNTS[-1]
    blocks = _blocks(len(x), labels)
    weights = torch.zeros(classes or 1, most, dtype=torch.float64)
    means = torch.zeros(classes or 1, most, dim, dtype=torch.float64)
    factors = torch.eye(dim, dtype=torch.float64).repeat(classes or 1, most, 1, 1)
    pieces, parts = [], []
    for block in blocks:
        label = block.label or 0
        images = x[block.rows.to(x.device)]
        found = clusters(images, count or choose(images, random, seed), random, seed)
        sizes = torch.bincount(found)
        average = torch.stack([images[found.to(x.device) == c].mean(0) for c in range(len(sizes))])
        places, spread = centres(average, sizes, dim, random, child(seed, label))
        begin = int(block.columns[0])
        for c, size in enumerate(sizes.tolist()):
            sub = prior.lattice(size, child(seed, label, c)) / prior.scale
            pieces.append(prior.scale * (places[c] + spread * sub))
            columns = torch.arange(begin, begin + size)
            parts.append(Block(block.rows[found == c], columns, block.label))
            begin += size
        used = slice(len(sizes))
        weights[label, used] = sizes / len(block)
        means[label, used] = prior.scale * places
        factors[label, used] *= prior.scale * spread
    return Layout(torch.cat(pieces), blocks, parts, Mixture(weights, means, factors))


def _blocks(n: int, labels: Tensor | None) -> list[Block]:
    """One block of all n images, or one per class, in the order of the classes."""
    if labels is None:
        return [Block(torch.arange(n), torch.arange(n))]
    labels = labels.cpu()
    blocks: list[Block] = []
    filled = 0
    for label in labels.unique().tolist():
        rows = torch.nonzero(labels == label).flatten()
        blocks.append(Block(rows, torch.arange(filled, filled + len(rows)), label))
        filled += len(rows)
    return blocks


def child(seed: int, *path: int) -> int:
    """A seed that belongs to a seed and a path of numbers."""
    return int(np.random.SeedSequence([seed, *path]).generate_state(1)[0])
