r"""Generative modelling by quantile assignment: Algorithms 1 and 2 of the paper.

The latent codes of n images are a permutation of the n quantiles Q of the prior. Learning alternates between

    decoder step     theta <- argmin (1/n) sum_i l(X_i, G_theta(Z_i)) + lambda R(theta)
    cost matrix      C_ik  <- l(X_i, G_theta(Q_k))
    assignment       pi    <- argmin over permutations of sum_i C_{i, pi(i)}
    momentum         Z_i   <- rho Q_{pi(i)} + (1 - rho) Z_i

The decoder step is the training loop's; `training_step` takes one gradient step of it. The other three lines are
`reassign` for all images every K epochs (Algorithm 1), or for the images of one batch after each step (Algorithm 2).
The lattice Q, the codes Z and how they are drawn, saved and described are in quantiles.py.

Three settings go beyond the paper. The lattice may be that of a mixture (see assign/clusters.py). Codes may also move
by gradient between two assignments (see moving.py). The cost matrix may then be that of |Z_i - Q_k|^2 / d, whose price
does not depend on the size of an image, and the mixture may follow the codes (see assign/learnt.py). And the decoder
step may add

    fresh            + w D(G_theta(z)),  z from the prior,

the sliced distance of fresh samples to the training images (see fresh.py): the codes are n points, samples come from
everywhere between them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from neurosql.assign import Warm, shared
from neurosql.assign.blocks import Block, child
from neurosql.assign.offers import Offers
from neurosql.assign.start import pca_permutation, random_permutation, standard_scores
from neurosql.assign.strategies import STRATEGIES, Dense, Figures, Solution, Strategy
from neurosql.cost import Cost
from neurosql.encode import decode
from neurosql.generators.base import Generator
from neurosql.methods.base import Batch, Method, Task, Update, must_be_finite
from neurosql.methods.fresh import FreshSamples, even_draws
from neurosql.methods.moving import CodeSteps, Motion, SharedSteps
from neurosql.methods.quantiles import QuantileCodes
from neurosql.pixels import Pixels
from neurosql.prior import Prior
from neurosql.ranks import here
from neurosql.settings import QuantileSettings, methods
from neurosql.sliced import WhitenedScores

FIGURES = ("cost", "gap", "relative_gap", "changed", "compared", "relative_gap_estimate")
"""What is recorded of each assignment, in the order of a checkpoint."""


class QuantileAssignment(QuantileCodes):
    """The learning principle: a generator, a lattice, an assignment.

    In the class-conditional case every class has a sublattice of its own, and the assignment decomposes: image i may
    take lattice row k only where their labels agree. Without classes there is one block of all images and all rows.
    """

    record = methods.NEUROSQL

    row_duals: Tensor
    """(n,) float64: the dual of each image in its last assignment."""
    column_duals: Tensor
    """(n,) float64: the dual of each lattice row, from which the next assignment begins."""
    motion: Motion
    """How codes move by gradient. Steps that they take together are in `codes` only at the end of an epoch."""

    def __init__(self, generator: Generator, prior: Prior, cost: Cost, settings: QuantileSettings) -> None:
        super().__init__(generator, prior, cost, settings)
        self.progress = 0.0
        self.steps = 0
        self.assignments = 0
        self.snapped = False
        self.made: tuple[Tensor, Tensor] | None = None
        """The images of a batch that are to be assigned by what its step has made of their codes, and that."""
        self.figures: list[list[float]] = []

    @classmethod
    def build(cls, task: Task) -> QuantileAssignment:
        return cls(task.generator(), task.prior, task.cost, task.settings.quantile)

    def attach(self, x: Tensor, labels: Tensor | None, seed: int) -> None:
        """Take the training images (n, ...), lay out their lattice, and prepare the losses and the assignment."""
        super().attach(x, labels, seed)
        self.offers = Offers(self.blocks, self.settings.subset)
        self.codes_strategies = self._strategies(Cost.named("l2"))
        self.strategies = self.codes_strategies if self.by_codes else self._strategies(self.cost)
        self.dense = self.strategies["dense"]
        if self.settings.fresh:
            self.fresh = FreshSamples(x, self.settings.fresh_batch, seed)
        self.motion = Motion(CodeSteps(self.lattice) if self.settings.code_rate else None, self._shared_steps())

    def _shared_steps(self) -> SharedSteps | None:
        """How codes move together, if they do."""
        if not self.settings.shared_rate:
            return None
        if self.settings.fresh:
            scores = self.fresh.distance.scores
        else:
            scores = WhitenedScores(self.x, torch.Generator().manual_seed(self.seed))
        return SharedSteps(scores.of_all(self.x), self.prior.dim, child(self.seed, 1))

    def _strategies(self, cost: Cost) -> dict[str, Strategy]:
        return {name: kind(cost, self.settings, self.clock) for name, kind in STRATEGIES.items()}

    @property
    def by_codes(self) -> bool:
        """Whether codes that have moved are matched to the lattice, in place of images to generated images."""
        return self.settings.match == "codes"

    def start(self) -> None:
        """The first permutation pi^(0), and the codes Z^(0): Q_pi, or the PCA scores that the lattice then follows."""
        self.permutation = torch.empty(len(self.x), dtype=torch.int64)
        if self.settings.start == "scores":
            self._begin_at_scores()
        else:
            self._begin_on_lattice()
        self._begin_duals()

    def start_from(self, before: Method, codes: Tensor) -> None:
        """The generator of a trained model, and its lattice laid out for these images and matched to their codes.

        Codes begin where they are. They are put on the lattice at once where no assignment of all images would do it.
        """
        assert isinstance(before, QuantileAssignment)
        self.generator.load_state_dict(before.generator.state_dict())
        self.permutation = torch.empty(len(self.x), dtype=torch.int64)
        self._begin_near(before.law, codes, self.codes_strategies)
        if self.settings.law == "fixed" and (self.settings.algorithm != "full" or not self.settings.every):
            self.codes = self.lattice[self.permutation]
        self._begin_duals()

    def _begin_duals(self) -> None:
        n = len(self.x)
        self.row_duals = torch.zeros(n, dtype=torch.float64)
        self.column_duals = torch.zeros(n, dtype=torch.float64)
        self.offers.begin_epoch(self.random)

    def _begin_on_lattice(self) -> None:
        """Match the images to the lattice, by their PCA scores or at random."""
        for block in self.parts:
            if self.settings.start == "pca":
                strategy = self.settings.strategy_for(len(block))
                images = self.x.only(block.rows) if isinstance(self.x, Pixels) else self.x[block.rows]
                match = pca_permutation(images, self.lattice[block.columns], self.random, strategy, self.cost.seen)
            else:
                match = random_permutation(len(block), self.random)
            self.permutation[block.rows] = block.columns[match]
        self.codes = self.lattice[self.permutation]

    def _begin_at_scores(self) -> None:
        """Put the codes to the PCA scores of their images, with variance 1 in each dimension and class.

        In many dimensions the lattice is far from any set of scores, however they are matched.
        """
        assert self.law is not None
        self.codes = torch.zeros_like(self.lattice)
        for block in self.blocks:
            if len(block) > 1:
                scores = standard_scores(self.cost.seen(self.x[block.rows]), self.prior.dim, self.random)
                self.codes[block.rows] = self.prior.scale * scores.to(self.codes)
        self._fit_density(int((self.law.weights > 0).sum(1).max()), self.codes_strategies)

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One gradient step of the decoder; in mini-batch mode the batch is then assigned anew (Algorithm 2)."""
        with self.clock("decoder"):
            self.generator.train()
            codes = self.motion.places(self.codes, batch.index)
            if self.settings.moves and not self.snapped:
                codes.requires_grad_()
            label = None if self.labels is None else self.labels[batch.index]
            loss, fresh = self._losses(batch, codes, label)
            total = loss + self.settings.penalty * self.regulariser() if self.settings.penalty else loss
            self.consists_of(reconstruction=loss, penalised_loss=total)
            update("generator", total if fresh is None else total + self.settings.fresh * fresh)
            if codes.grad is not None:
                # The gradient of each image's own loss, however many images there are in the batch.
                whole, counts = batch.part.whole, here().counts(batch.part.whole)
                self._move(batch.joint, *(here().gather(g, counts) for g in (codes.detach(), codes.grad * whole)))
        if self.settings.algorithm == "mini-batch" and not self.snapped:
            self._assign(self.offers.of(batch.joint.cpu(), self.permutation, self.random), self.dense, batch)
            self.made = None
        return {"loss": loss.item()} | ({} if fresh is None else {"fresh": fresh.item()})

    def _losses(self, batch: Batch, codes: Tensor, label: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The mean of l(x_i, G(z_i)) and, in every few steps, the distance of fresh samples to the training images."""
        self.steps += 1
        made = self.generator(codes, label)
        loss = self.cost.paired(batch.x, made).mean()
        if self.settings.reuse:
            self.made = batch.index.cpu(), made.detach()
        if not self.settings.fresh or self.steps % self.settings.fresh_every:
            return loss, None
        return loss, self.fresh.loss(self.generator, self._draw_evenly, batch.part.whole, self.random)

    def _draw_evenly(self, n: int) -> tuple[Tensor, Tensor | None]:
        """Codes from the law that is sampled, with each component as often as expected."""
        if self.law is None:
            return self.draw_usual(n, None, self.random)
        codes, labels = even_draws(self.law, self.class_counts if self.classes else None, n, self.random)
        return codes.to(self.lattice), None if labels is None else labels.to(self.device)

    def regulariser(self) -> Tensor:
        """R(theta), the sum of squared parameters."""
        return torch.stack([p.square().sum() for p in self.generator.parameters()]).sum()

    def _move(self, index: Tensor, places: Tensor, gradient: Tensor) -> None:
        """One step of the codes of a batch, from where they are (m, d), down their gradients (m, d)."""
        must_be_finite("the gradient of the codes", gradient)
        rate = self.prior.scale * self.pace
        own, shared = self.settings.code_rate * rate, self.settings.shared_rate * rate
        self.motion.step(self.codes, index, places, gradient, own, shared)

    def _collect(self) -> None:
        """Add the steps that codes have taken together to the codes."""
        self.codes = self.motion.collected(self.codes)

    def end_epoch(self, epoch: int, epochs: int) -> dict[str, float]:
        """Every K epochs all images are assigned anew (Algorithm 1)."""
        self._collect()
        if self.settings.algorithm == "full" and self.settings.every:
            every = min(self.settings.every, epochs)
            self.progress = min(1.0, (epoch + 1) / (epochs - epochs % every))
            if (epoch + 1) % every == 0:
                self.reassign()
        else:
            self.progress = min(1.0, (epoch + 1) / max(1, epochs - 1))
        figures = self._mean_figures()
        self.offers.begin_epoch(self.random)
        return figures | {"drift": self.drift()}

    def reassign(self) -> None:
        """Cost matrix, assignment and momentum for all images, block by block; dense blocks together."""
        self.assignments += 1
        exchange = self.settings.exchange and self.assignments % self.settings.exchange == 0
        if self.settings.law == "learnt":
            self._follow(self.codes_strategies)
            self.row_duals.zero_()
            self.column_duals.zero_()
            exchange = False
        blocks = self.blocks if exchange else self._parts()
        dense = [block for block in blocks if self._strategy(block) is self.dense]
        if dense:
            self._assign(dense, self.dense)
        for block in blocks:
            if self._strategy(block) is not self.dense:
                self._assign([block], self._strategy(block))

    def _strategy(self, block: Block) -> Strategy:
        """How a block of all images of a class, or of all images, is assigned."""
        return self.strategies[self.settings.strategy_for(len(block))]

    def _assign(self, blocks: list[Block], strategy: Strategy, batch: Batch | None = None) -> None:
        """Assign the images of blocks to their lattice rows: their costs, their optima and their new codes.

        If ranks share a batch, each assigns the images that it has among themselves; they share the work of assigning
        all images.
        """
        if not here().several:
            found = self._solve(blocks, strategy)
        elif batch is not None:
            blocks, found = shared.within_parts(blocks, batch.joint.cpu(), lambda own: self._solve(own, strategy))
        elif isinstance(strategy, Dense) and not self.by_codes:
            warm = [self._warm(block) for block in blocks]
            found = shared.by_all(strategy, blocks, self.x, self._decode_lattice, warm)
        else:
            found = shared.by_first(lambda: self._solve(blocks, strategy))
        for block, (solution, figures) in zip(blocks, found):
            self._take_over(block, solution, figures)

    def _solve(self, blocks: list[Block], strategy: Strategy) -> list[tuple[Solution, Figures]]:
        """The optima of blocks."""
        columns = torch.cat([block.columns for block in blocks])
        if self.by_codes:
            rows = torch.cat([block.rows for block in blocks])
            given, offered = self.codes.clone(), self.lattice[columns]
            given[rows] = self.motion.places(self.codes, rows)
        else:
            with self.clock("generate"):
                given, offered = self.x, self._decode_lattice(columns) if self.made is None else self._made_of(blocks)
        parts = offered.split([len(block) for block in blocks])
        return strategy.solve_all(blocks, given, parts, [self._warm(block) for block in blocks])

    def _made_of(self, blocks: list[Block]) -> Tensor:
        """What the step under way has made of the codes of the blocks' images: (m, *shape)."""
        assert self.made is not None
        rows, order = self.made[0].sort()
        return self.made[1][order[torch.searchsorted(rows, torch.cat([block.rows for block in blocks]))]]

    def _decode_lattice(self, columns: Tensor) -> Tensor:
        """G(Q_k) for these lattice rows: (m, *shape)."""
        labels = None if self.lattice_labels is None else self.lattice_labels[columns]
        return decode(self.generator, self.lattice[columns], labels)

    def _warm(self, block: Block) -> Warm:
        """Where the solver may begin: the lattice-wide duals, and the columns that the images hold now."""
        held = self.permutation[block.rows]
        # The time of a batch must not depend on the size of the lattice.
        columns, order = block.columns.sort()
        places = torch.searchsorted(columns, held).clamp(max=len(block) - 1)
        places = torch.where(columns[places] == held, order[places], -1)
        return Warm(self.column_duals[block.columns], places, self.assignments)

    def _take_over(self, block: Block, solution: Solution, figures: Figures) -> None:
        """The new permutation, its duals, and the codes that follow it with momentum."""
        rows, columns = block.rows, block.columns
        taken = columns[solution.permutation]
        changed = float((taken != self.permutation[rows]).double().mean())
        self.permutation[rows] = taken
        before = self.motion.places(self.codes, rows)
        self.motion.put(self.codes, rows, self.rho * self.lattice[taken] + (1 - self.rho) * before)
        self.row_duals[rows] = solution.row_duals
        self.column_duals[columns] = solution.column_duals
        figures |= {"cost": solution.cost, "changed": changed}
        self.figures.append([float(len(rows))] + [figures.get(name, math.nan) for name in FIGURES])

    @property
    def rho(self) -> float:
        """The momentum in force: constant, or annealed linearly to 1 at the last assignment."""
        rho = self.settings.momentum
        return rho + (1 - rho) * self.progress if self.settings.anneal else rho

    def closing(self) -> int:
        """Snap the codes to the lattice, Z = Q_pi, to be fitted for a few more epochs without assignment."""
        if self.settings.law == "learnt":
            if self.settings.final_components:
                self._fit_density(self.settings.final_components, self.codes_strategies)
            self._standardise()
        if self.settings.snap:
            # A random subset leaves pi short of a permutation: solve once more for all images.
            if self.settings.algorithm == "mini-batch" and self.settings.subset == "random":
                self.reassign()
                self.figures.clear()
            self.codes = self.lattice[self.permutation]
            self.snapped = True
        return self.settings.snap

    def _mean_figures(self) -> dict[str, float]:
        """The assignments since the last call, averaged over images."""
        done, self.figures = self.figures, []
        if not done:
            return {}
        # A figure that one assignment lacks (not a number), or that JSON can't say (infinity), is left out.
        means = np.average([figures[1:] for figures in done], axis=0, weights=[figures[0] for figures in done])
        figures = dict(zip(FIGURES, means.tolist())) | {"rho": self.rho}
        return {name: value for name, value in figures.items() if math.isfinite(value)}

    def tensors(self) -> dict[str, Tensor]:
        tensors = super().tensors() | self.offers.tensors() | self.motion.tensors()
        tensors |= {"row_duals": self.row_duals, "column_duals": self.column_duals}
        tensors["counts"] = torch.tensor([self.steps, self.assignments])
        tensors["progress"] = torch.tensor(self.progress, dtype=torch.float64)
        tensors["snapped"] = torch.tensor(self.snapped)
        tensors["figures"] = torch.tensor(self.figures, dtype=torch.float64)
        return tensors

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        super().load_tensors(tensors)
        self.offers.load(tensors)
        self.motion.load(tensors, self.device)
        self.row_duals, self.column_duals = tensors["row_duals"], tensors["column_duals"]
        # Runs of version 0.1.0 do not count: nothing in them depends on it.
        self.steps, self.assignments = tensors["counts"].tolist() if "counts" in tensors else (0, 0)
        self.progress = float(tensors["progress"])
        self.snapped = bool(tensors["snapped"])
        self.figures = tensors["figures"].tolist()
