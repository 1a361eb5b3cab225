r"""Generative modelling by quantile assignment: Algorithms 1 and 2 of the paper.

The latent codes of n images are a permutation of the n quantiles Q of the prior. Learning alternates between

    decoder step     theta <- argmin (1/n) sum_i l(X_i, G_theta(Z_i)) + lambda R(theta)
    cost matrix      C_ik  <- l(X_i, G_theta(Q_k))
    assignment       pi    <- argmin over permutations of sum_i C_{i, pi(i)}
    momentum         Z_i   <- rho Q_{pi(i)} + (1 - rho) Z_i

The decoder step is the training loop's; `training_step` takes one gradient step of it. The other three lines are
`reassign` for all images every K epochs (Algorithm 1), or for the images of one batch after each step (Algorithm 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from neurosql import assign, candidates
from neurosql.cost import Cost
from neurosql.encode import STEPS, decode, nearest_code, refine
from neurosql.errors import InputError
from neurosql.generators.base import Generator
from neurosql.methods.base import Batch, Method, Task, Update
from neurosql.prior import Prior
from neurosql.refresh import PartialRefresh
from neurosql.settings import QuantileSettings, methods
from neurosql.start import pca_permutation, random_permutation

VALIDATION_STEPS = 5
LARGE = 8000
FAR = 0.6
FIGURES = ("cost", "gap", "relative_gap", "changed", "pairs", "missed_gap", "relative_gap_estimate")

Offer = tuple[Tensor, Tensor]
"""Images and the lattice rows that they may take, as many of one as of the other."""


class QuantileAssignment(Method):
    """The learning principle: a generator, a lattice, an assignment.

    In the class-conditional case every class has a sublattice of its own, and the assignment decomposes: image i may
    take lattice row k only where their labels agree. Without classes there is one block of all images and all rows.
    """

    record = methods.NEUROSQL

    lattice: Tensor
    """Q, (n, d)."""
    lattice_labels: Tensor | None = None
    """The class of each lattice row, (n,), in the class-conditional case."""
    permutation: Tensor
    """pi, (n,): entry i is the lattice row of image i."""
    codes: Tensor
    """Z, (n, d): the code of image i."""

    def __init__(self, generator: Generator, prior: Prior, cost: Cost, settings: QuantileSettings) -> None:
        super().__init__({"generator": generator}, generator.classes)
        self.generator = generator
        self.prior = prior
        self.cost = cost
        self.settings = settings
        self.progress = 0.0
        self.snapped = False
        self.figures: list[list[float]] = []

    @classmethod
    def build(cls, task: Task) -> QuantileAssignment:
        return cls(task.generator(), task.prior, task.cost, task.settings.quantile)

    def attach(self, x: Tensor, labels: Tensor | None, seed: int) -> None:
        """Take the training images (n, ...) and lay out the lattice that belongs to their number and classes."""
        super().attach(x, labels, seed)
        n = len(x)
        if self.labels is None:
            self.blocks = [(torch.arange(n), torch.arange(n))]
            self.lattice = self.prior.lattice(n, seed).to(x)
        else:
            self._lay_sublattices(self.labels, seed)
        choice = self.settings
        self.sparse = [choice.by_candidates(len(rows)) for rows, _ in self.blocks]
        self.keepers: list[PartialRefresh | None] = [None for _ in self.blocks]
        if choice.refresh == "partial":
            limits = choice.refresh_best, choice.refresh_every, choice.refresh_gap
            self.keepers = [None if sparse else PartialRefresh(choice.assignment, *limits) for sparse in self.sparse]
        self.block_of = torch.empty(n, dtype=torch.int64)
        for number, (rows, _) in enumerate(self.blocks):
            self.block_of[rows] = number

    def _lay_sublattices(self, labels: Tensor, seed: int) -> None:
        """One sublattice a class, stacked in the order of the classes."""
        self.blocks, pieces, filled = [], [], 0
        for label in labels.unique().tolist():
            rows = torch.nonzero(labels.cpu() == label).flatten()
            # Seeded from seed and class: one class's codes do not depend on which other classes there are.
            child = int(np.random.SeedSequence([seed, label]).generate_state(1)[0])
            pieces.append(self.prior.lattice(len(rows), child))
            self.blocks.append((rows, torch.arange(filled, filled + len(rows))))
            filled += len(rows)
        self.lattice = torch.cat(pieces).to(self.x)
        self.lattice_labels = labels[torch.cat([rows for rows, _ in self.blocks])]

    def start(self) -> None:
        """The first permutation pi^(0), and the codes Z^(0) = Q_pi."""
        n = len(self.x)
        self.permutation = torch.empty(n, dtype=torch.int64)
        for rows, columns in self.blocks:
            if self.settings.start == "pca":
                match = pca_permutation(self.x[rows], self.lattice[columns], self.random, self.settings.by_candidates)
            else:
                match = random_permutation(len(rows), self.random)
            self.permutation[rows] = columns[match]
        self.codes = self.lattice[self.permutation]
        self.row_duals = torch.zeros(n, dtype=torch.float64)
        self.column_duals = torch.zeros(n, dtype=torch.float64)
        self._partition()

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One gradient step of the decoder; in mini-batch mode the batch is then assigned anew (Algorithm 2)."""
        with self.clock("decoder"):
            self.generator.train()
            label = None if self.labels is None else self.labels[batch.index]
            loss = self.cost.paired(batch.x, self.generator(self.codes[batch.index], label)).mean()
            penalised = loss + self.settings.penalty * self.regulariser() if self.settings.penalty else loss
            update("generator", penalised)
        if self.settings.algorithm == "mini-batch" and not self.snapped:
            self._assign(self._offers(batch.index.cpu()))
        return {"loss": loss.item()}

    def end_epoch(self, epoch: int, epochs: int) -> dict[str, float]:
        """Every K epochs all images are assigned anew (Algorithm 1)."""
        if self.settings.algorithm == "full" and self.settings.every:
            every = min(self.settings.every, epochs)
            self.progress = min(1.0, (epoch + 1) / (epochs - epochs % every))
            if (epoch + 1) % every == 0:
                self.reassign()
        else:
            self.progress = min(1.0, (epoch + 1) / max(1, epochs - 1))
        figures = self._mean_figures()
        self._partition()
        return figures | {"drift": self.drift()}

    def reassign(self) -> None:
        """Cost matrix, assignment and momentum for all images, block by block."""
        dense = [offer for offer, sparse, keeper in self._each_block() if not sparse and keeper is None]
        if dense:
            self._assign(dense)
        for offer, sparse, keeper in self._each_block():
            if sparse:
                self._assign_by_candidates(*offer)
            elif keeper is not None:
                self._assign_partly(*offer, keeper)

    def _each_block(self) -> Iterator[tuple[Offer, bool, PartialRefresh | None]]:
        return zip(self.blocks, self.sparse, self.keepers)

    def closing(self) -> int:
        """Snap the codes to the lattice, Z = Q_pi, to be fitted for a few more epochs without assignment."""
        if self.settings.snap:
            # A random subset leaves pi short of a permutation: solve once more for all images.
            if self.settings.algorithm == "mini-batch" and self.settings.subset == "random":
                self.reassign()
                self.figures.clear()
            self.codes = self.lattice[self.permutation]
            self.snapped = True
        return self.settings.snap

    @property
    def rho(self) -> float:
        """The momentum in force: constant, or annealed linearly to 1 at the last assignment."""
        rho = self.settings.momentum
        return rho + (1 - rho) * self.progress if self.settings.anneal else rho

    def drift(self) -> float:
        """Variance of the codes over variance of the lattice: 1 when the codes follow the prior that is sampled."""
        if len(self.codes) < 2:
            return 1.0
        return float(self.codes.var(0).sum() / self.lattice.var(0).sum())

    def regulariser(self) -> Tensor:
        """R(theta), the sum of squared parameters."""
        return torch.stack([p.square().sum() for p in self.generator.parameters()]).sum()

    def _assign(self, offers: list[Offer]) -> None:
        """Assign images to lattice rows, offer by offer: their costs, their optima and their new codes."""
        with self.clock("generate"):
            decoded = self._decode_lattice(torch.cat([columns for _, columns in offers]))
        with self.clock("cost"):
            parts = decoded.split([len(columns) for _, columns in offers])
            memory = self.settings.memory * 2**20
            costs = [self.cost.matrix(self.x[rows], part, memory) for (rows, _), part in zip(offers, parts)]
        with self.clock("assignment"):
            starts = [self._start_of(*offer) for offer in offers]
            solutions = assign.solve_all(costs, self.settings.assignment, starts)
        for (rows, columns), solution in zip(offers, solutions):
            figures = {"gap": solution.gap, "relative_gap": solution.relative_gap}
            self._take_over(rows, columns, solution, figures)

    def _assign_partly(self, rows: Tensor, columns: Tensor, keeper: PartialRefresh) -> None:
        """The same with only a part of the cost matrix computed anew, where that is enough."""
        with self.clock("generate"):
            decoded = self._decode_lattice(columns)
        memory = self.settings.memory * 2**20
        result = keeper.solve(self.cost, self.x[rows], decoded, self._start_of(rows, columns), memory, self.clock)
        figures = {"pairs": result.pairs}
        if result.full:
            figures |= {"gap": result.solution.gap, "relative_gap": result.solution.relative_gap}
        if result.missed is not None:
            figures |= {"missed_gap": result.missed}
        self._take_over(rows, columns, result.solution, figures)

    def _assign_by_candidates(self, rows: Tensor, columns: Tensor) -> None:
        """The same where the matrix of all pairs would be too large: most pairs are never looked at."""
        with self.clock("generate"):
            decoded = self._decode_lattice(columns)
        solution = candidates.solve(self.cost, self.x[rows], decoded, self.settings.candidates)
        for part, seconds in solution.seconds.items():
            self.clock.seconds["assignment" if part in ("match", "complete") else "cost"] += seconds
        figures = {"pairs": solution.pairs / len(rows) ** 2, "relative_gap_estimate": solution.relative_gap_estimate}
        self._take_over(rows, columns, solution, figures)

    def _start_of(self, rows: Tensor, columns: Tensor) -> assign.Warm:
        """Where the solver may begin: the lattice-wide duals, and the columns that the images hold now."""
        place = torch.full((len(self.lattice),), -1)
        place[columns] = torch.arange(len(columns))
        return assign.Warm(self.column_duals[columns], place[self.permutation[rows]])

    def _take_over(self, rows: Tensor, columns: Tensor, solution: Solution, figures: dict[str, float]) -> None:
        """The new permutation, its duals, and the codes that follow it with momentum."""
        taken = columns[solution.permutation]
        changed = float((taken != self.permutation[rows]).double().mean())
        self.permutation[rows] = taken
        self.codes[rows] = self.rho * self.lattice[taken] + (1 - self.rho) * self.codes[rows]
        self.row_duals[rows] = solution.row_duals
        self.column_duals[columns] = solution.column_duals
        figures |= {"cost": solution.cost, "changed": changed}
        self.figures.append([float(len(rows))] + [figures.get(name, math.nan) for name in FIGURES])

    def _mean_figures(self) -> dict[str, float]:
        """The assignments since the last call, averaged over images."""
        done, self.figures = self.figures, []
        if not done:
            return {}
        # A figure that one assignment lacks (not a number), or that JSON can't say (infinity), is left out.
        means = np.average([figures[1:] for figures in done], axis=0, weights=[figures[0] for figures in done])
        figures = dict(zip(FIGURES, means.tolist())) | {"rho": self.rho}
        return {name: value for name, value in figures.items() if math.isfinite(value)}

    def _partition(self) -> None:
        """Split each block's lattice rows anew, for batches that take disjoint parts of it."""
        self.split = torch.cat([columns[_shuffle(columns, self.random)] for _, columns in self.blocks])
        self.taken = torch.zeros(len(self.blocks), dtype=torch.int64)

    def _offers(self, index: Tensor) -> list[Offer]:
        """The batch's images, block by block, each with as many lattice rows as there are images."""
        offers = []
        for number, (_, columns) in enumerate(self.blocks):
            rows = index[self.block_of[index] == number]
            if not len(rows):
                continue
            if self.settings.subset == "owned":
                offered = self.permutation[rows]
            elif self.settings.subset == "partition":
                begin = int(columns[0]) + int(self.taken[number])
                offered = self.split[begin : begin + len(rows)]
                self.taken[number] += len(rows)
            else:
                offered = columns[_shuffle(columns, self.random)[: len(rows)]]
            offers.append((rows, offered))
        return offers

    def _decode_lattice(self, columns: Tensor | None = None) -> Tensor:
        """G(Q_k) for these lattice rows, or for all: (m, *shape)."""
        chosen = slice(None) if columns is None else columns
        labels = None if self.lattice_labels is None else self.lattice_labels[chosen]
        return decode(self.generator, self.lattice[chosen], labels)

    def heldout_loss(self, x: Tensor, label: Tensor | None) -> float:
        """Mean loss of images after a few steps from their nearest lattice codes."""
        return float(self.encode(x, label, steps=VALIDATION_STEPS)[2].mean())

    def encode(
        self, x: Tensor, label: Tensor | None = None, progress: bool = False, steps: int = STEPS
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Codes (m, d), labels (m,) and losses (m,) of images (m, ...) that need not have been trained on.

        A class-conditional model takes the class of the cheapest lattice code where no label is given.
        """
        if self.lattice_labels is None:
            label = None
        elif label is not None and not torch.isin(label, self.lattice_labels).all():
            raise InputError("some of the labels are of classes that the model was not trained on")
        memory = self.settings.memory * 2**20
        nearest = nearest_code(self.cost, x, self._decode_lattice(), label, self.lattice_labels, memory)
        if self.lattice_labels is not None and label is None:
            label = self.lattice_labels[nearest]
        codes, losses = refine(self.generator, self.prior, self.cost, x, self.lattice[nearest], label, steps, progress)
        return codes, label, losses

    def draw_codes(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Codes drawn from the prior, with labels as in the training set, or the given one."""
        return self.prior.sample(n, random).to(self.lattice), self.draw_labels(n, label, random)

    def reconstruct(self) -> Tensor:
        """G(Z_i) for all training images."""
        return self.decode(self.codes, None if self.lattice_labels is None else self.lattice_labels[self.permutation])

    def kept(self) -> dict[str, Tensor]:
        kept = super().kept() | {"lattice": self.lattice, "permutation": self.permutation}
        return kept if self.lattice_labels is None else kept | {"lattice_labels": self.lattice_labels}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        self.lattice, self.permutation = tensors["lattice"].to(self.device), tensors["permutation"]
        if "lattice_labels" in tensors:
            self.lattice_labels = tensors["lattice_labels"].to(self.device)

    def facts(self) -> dict[str, str]:
        return super().facts() | {"lattice": f"{len(self.lattice)} quantiles of the {self.prior.name} prior"}

    def spanned(self) -> Tensor:
        return self.lattice

    def notes(self) -> list[str]:
        notes = []
        largest = max(len(rows) for rows, _ in self.blocks)
        if self.settings.algorithm == "full" and largest > LARGE and not any(self.sparse):
            notes.append(
                f"one assignment of {largest:,} images compares {largest**2:,} pairs: if that takes too long, use "
                "--pairs candidates, or the mini-batch algorithm"
            )
        far = self.distance_to_codes()
        if far > FAR:
            notes.append(
                f"{len(self.lattice)} codes leave dimension {self.prior.dim} nearly empty (a prior draw is {far:.2f} "
                "of the mean distance from its nearest code): samples may be poor, try a smaller latent_dim"
            )
        return notes

    def distance_to_codes(self, draws: int = 256) -> float:
        """Mean distance of a prior draw to the nearest lattice point, in units of that of two prior draws.

        Near 0 the generator is asked for what it was trained on, near 1 for what no training code is close to.
        """
        random = torch.Generator().manual_seed(0)
        first, second = (self.prior.sample(draws, random) for _ in range(2))
        lattice = self.lattice.cpu().double()
        return float(torch.cdist(first, lattice).amin(1).mean() / torch.cdist(first, second).mean())

    def tensors(self) -> dict[str, Tensor]:
        tensors = {name: getattr(self, name) for name in _KEPT}
        if self.lattice_labels is not None:
            tensors["lattice_labels"] = self.lattice_labels
        tensors["progress"] = torch.tensor(self.progress, dtype=torch.float64)
        tensors["snapped"] = torch.tensor(self.snapped)
        tensors["figures"] = torch.tensor(self.figures, dtype=torch.float64)
        for number, keeper in enumerate(self.keepers):
            if keeper is not None:
                tensors |= {f"kept.{number}.{name}": tensor for name, tensor in keeper.state().items()}
        return tensors

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        for name in _KEPT:
            setattr(self, name, tensors[name])
        self.lattice, self.codes = tensors["lattice"].to(self.device), tensors["codes"].to(self.device)
        if "lattice_labels" in tensors:
            self.lattice_labels = tensors["lattice_labels"].to(self.device)
        self.progress = float(tensors["progress"])
        self.snapped = bool(tensors["snapped"])
        self.figures = tensors["figures"].tolist()
        for number, keeper in enumerate(self.keepers):
            prefix = f"kept.{number}."
            if keeper is not None:
                keeper.load_state({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})


_KEPT = ("lattice", "permutation", "codes", "row_duals", "column_duals", "split", "taken")
Solution = assign.Assignment | candidates.CandidateAssignment


def _shuffle(columns: Tensor, random: torch.Generator) -> Tensor:
    return torch.randperm(len(columns), generator=random)
