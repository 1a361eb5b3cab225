r"""Generative modelling by quantile assignment: Algorithms 1 and 2 of the paper.

The latent codes of n images are a permutation of the n quantiles Q of the prior. Learning alternates between

    decoder step     theta <- argmin (1/n) sum_i l(X_i, G_theta(Z_i)) + lambda R(theta)
    cost matrix      C_ik  <- l(X_i, G_theta(Q_k))
    assignment       pi    <- argmin over permutations of sum_i C_{i, pi(i)}
    momentum         Z_i   <- rho Q_{pi(i)} + (1 - rho) Z_i

The decoder step is the training loop's; `training_step` takes one gradient step of it. The other three lines are
`reassign` for all images every K epochs (Algorithm 1), or for the images of one batch after each step (Algorithm 2).

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

from neurosql.assign import Warm
from neurosql.assign.blocks import Block, child, lay_out, lay_out_components
from neurosql.assign.learnt import follow, parts_of, whitened
from neurosql.assign.offers import Offers
from neurosql.assign.start import pca_permutation, random_permutation
from neurosql.assign.strategies import STRATEGIES, Figures, Solution, Strategy
from neurosql.cost import Cost
from neurosql.density import Mixture
from neurosql.encode import Law, decode
from neurosql.errors import InputError
from neurosql.generators.base import Generator
from neurosql.methods.base import Batch, Task, Update
from neurosql.methods.fresh import FreshSamples, even_draws
from neurosql.methods.moving import CodeSteps, SharedSteps
from neurosql.methods.search import Searched
from neurosql.prior import Normal, Prior
from neurosql.settings import QuantileSettings, Sampling, methods, samplers
from neurosql.sliced import WhitenedScores

LARGE = 8000
FAR = 0.6
RARE = 0.01
FIGURES = ("cost", "gap", "relative_gap", "changed", "compared", "relative_gap_estimate")


class QuantileAssignment(Searched):
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
    law: Mixture | None = None
    """The law of the codes if the lattice has components."""
    moving: CodeSteps | None = None
    """How codes move by gradient, each on its own, if they do."""
    shared: SharedSteps | None = None
    """How codes move by gradient together, if they do: their `offsets` are not yet in `codes`."""

    def __init__(self, generator: Generator, prior: Prior, cost: Cost, settings: QuantileSettings) -> None:
        super().__init__({"generator": generator}, generator.classes)
        self.generator = generator
        self.prior = prior
        self.cost = cost
        self.settings = settings
        self.memory = settings.memory * 2**20
        if settings.components != 1 and not isinstance(prior, Normal):
            raise InputError(f"components are for the normal prior, got {settings.components} and {prior.name}")
        self.progress = 0.0
        self.steps = 0
        self.assignments = 0
        self.snapped = False
        self.figures: list[list[float]] = []

    @classmethod
    def build(cls, task: Task) -> QuantileAssignment:
        return cls(task.generator(), task.prior, task.cost, task.settings.quantile)

    def attach(self, x: Tensor, labels: Tensor | None, seed: int) -> None:
        """Take the training images (n, ...) and lay out the lattice that belongs to their number and classes."""
        super().attach(x, labels, seed)
        self.seed = seed
        if self.settings.components != 1:
            # A generator of its own: what is drawn here is drawn again when a run is resumed.
            random = _seeded(seed)
            seen, count = self.cost.seen(x), self.settings.components
            laid = lay_out_components(self.prior, seen, self.labels, self.classes, count, random, seed)
            lattice, self.blocks, self.parts, self.law = laid.lattice, laid.blocks, laid.parts, laid.law
        else:
            lattice, self.blocks = lay_out(self.prior, len(x), self.labels, seed)
            self.parts = self.blocks
        self.lattice = lattice.to(x)
        self.offers = Offers(self.blocks, self.settings.subset)
        if self.labels is not None:
            self.lattice_labels = self.labels[torch.cat([block.rows for block in self.blocks])]
        self.codes_strategies = self._strategies(Cost.named("l2"))
        self.strategies = self.codes_strategies if self.by_codes else self._strategies(self.cost)
        self.dense = self.strategies["dense"]
        if self.settings.fresh:
            self.fresh = FreshSamples(x, self.settings.fresh_batch, seed)
        if self.settings.shared_rate:
            whitened = self.fresh.distance.scores if self.settings.fresh else WhitenedScores(x, _seeded(seed))
            self.shared = SharedSteps(whitened.of_all(x), self.prior.dim, child(seed, 1))

    def start(self) -> None:
        """The first permutation pi^(0), and the codes Z^(0) = Q_pi."""
        n = len(self.x)
        self.permutation = torch.empty(n, dtype=torch.int64)
        for block in self.parts:
            if self.settings.start == "pca":
                sparse = self.settings.strategy_for(len(block)) == "candidates"
                seen = self.cost.seen(self.x[block.rows])
                match = pca_permutation(seen, self.lattice[block.columns], self.random, sparse)
            else:
                match = random_permutation(len(block), self.random)
            self.permutation[block.rows] = block.columns[match]
        self.codes = self.lattice[self.permutation]
        self.moving = CodeSteps(self.codes) if self.settings.code_rate else None
        self.row_duals = torch.zeros(n, dtype=torch.float64)
        self.column_duals = torch.zeros(n, dtype=torch.float64)
        self.offers.begin_epoch(self.random)

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One gradient step of the decoder; in mini-batch mode the batch is then assigned anew (Algorithm 2)."""
        with self.clock("decoder"):
            self.generator.train()
            codes = self._codes_of(batch.index)
            if self.settings.moves and not self.snapped:
                codes.requires_grad_()
            label = None if self.labels is None else self.labels[batch.index]
            loss, fresh = self._losses(batch.x, codes, label)
            total = loss + self.settings.penalty * self.regulariser() if self.settings.penalty else loss
            update("generator", total if fresh is None else total + self.settings.fresh * fresh)
            if codes.grad is not None:
                # The gradient of each image's own loss, however many images there are in the batch.
                self._move(batch.index, codes.detach(), codes.grad * len(codes))
        if self.settings.algorithm == "mini-batch" and not self.snapped:
            self._assign(self.offers.of(batch.index.cpu(), self.permutation, self.random), self.dense)
        return {"loss": loss.item()} | ({} if fresh is None else {"fresh": fresh.item()})

    def _losses(self, x: Tensor, codes: Tensor, label: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The mean of l(x_i, G(z_i)) and, in every few steps, the distance of fresh samples to the training images."""
        self.steps += 1
        loss = self.cost.paired(x, self.generator(codes, label)).mean()
        if not self.settings.fresh or self.steps % self.settings.fresh_every:
            return loss, None
        return loss, self.fresh.loss(self.generator, self._draw_evenly, len(x), self.random)

    def _draw_evenly(self, n: int) -> tuple[Tensor, Tensor | None]:
        """Codes from the law that is sampled, with each component as often as expected."""
        if self.law is None:
            return self.draw_usual(n, None, self.random)
        codes, labels = even_draws(self.law, self.class_counts if self.classes else None, n, self.random)
        return codes.to(self.lattice), None if labels is None else labels.to(self.device)

    def _move(self, index: Tensor, codes: Tensor, gradient: Tensor) -> None:
        """One step of the codes (m, d) of a batch down their gradients, each on its own and all together."""
        rate = self.prior.scale * self.pace
        if self.moving is not None:
            self._set_codes(index, self.moving.moved(index, codes, gradient, self.settings.code_rate * rate))
        if self.shared is not None:
            self.shared.step(index, gradient, self.settings.shared_rate * rate)

    def _codes_of(self, index: Tensor) -> Tensor:
        """Where the codes of these images are now, (m, d)."""
        return self.codes[index] if self.shared is None else self.codes[index] + self.shared.offsets(index)

    def _set_codes(self, index: Tensor, codes: Tensor) -> None:
        """Put the codes of these images to these places, (m, d)."""
        self.codes[index] = codes if self.shared is None else codes - self.shared.offsets(index)

    def _collect(self) -> None:
        """Add the steps that codes have taken together to the codes."""
        if self.shared is not None:
            self.codes = self.codes + self.shared.collected()

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
            self._follow()
            exchange = False
        blocks = self.blocks if exchange else self._parts()
        dense = [block for block in blocks if self._strategy(block) is self.dense]
        if dense:
            self._assign(dense, self.dense)
        for block in blocks:
            if self._strategy(block) is not self.dense:
                self._assign([block], self._strategy(block))

    def _follow(self) -> None:
        """Estimate the law of the codes anew; its lattice replaces the one before, matched to the codes."""
        assert self.law is not None
        laid = follow(self.law, self.codes, self.blocks, self.prior, self.seed)
        self.lattice, self.parts, self.law = laid.lattice.to(self.codes), laid.parts, laid.law
        codes, quantiles = whitened(laid, self.codes)
        for block in self.parts:
            strategy = self.codes_strategies[self.settings.strategy_for(len(block))]
            nothing = Warm(torch.zeros(len(block), dtype=torch.float64), torch.full((len(block),), -1))
            found = strategy.solve(block, codes, quantiles[block.columns], nothing)[0]
            self.permutation[block.rows] = block.columns[found.permutation]
        self.row_duals.zero_()
        self.column_duals.zero_()

    def _standardise(self) -> None:
        """Give the codes the mean and the mean variance of the prior; the generator makes the same images of them.

        A law that follows the codes also follows them when they all grow or drift.
        """
        assert self.law is not None
        shift = self.codes.double().mean(0).cpu()
        factor = float(self.codes.double().var(0).mean().sqrt()) / self.prior.scale or 1.0
        self.generator.take_codes(shift, factor)
        self.codes, self.lattice = ((z - shift.to(z)) / factor for z in (self.codes, self.lattice))
        self.law = self.law.in_units(shift, factor)

    def _parts(self) -> list[Block]:
        """One block per component, with the images that it has now; without components, one per class or of all."""
        if self.law is None:
            return self.blocks
        holder = torch.empty_like(self.permutation)
        holder[self.permutation] = torch.arange(len(holder))
        return [Block(holder[part.columns], part.columns, part.label) for part in self.parts]

    def _strategies(self, cost: Cost) -> dict[str, Strategy]:
        return {name: kind(cost, self.settings, self.clock) for name, kind in STRATEGIES.items()}

    def _strategy(self, block: Block) -> Strategy:
        """How a block of all images of a class, or of all images, is assigned."""
        return self.strategies[self.settings.strategy_for(len(block))]

    def closing(self) -> int:
        """Snap the codes to the lattice, Z = Q_pi, to be fitted for a few more epochs without assignment."""
        if self.settings.law == "learnt":
            self._standardise()
        if self.settings.snap:
            # A random subset leaves pi short of a permutation: solve once more for all images.
            if self.settings.algorithm == "mini-batch" and self.settings.subset == "random":
                self.reassign()
                self.figures.clear()
            self.codes = self.lattice[self.permutation]
            self.snapped = True
        return self.settings.snap

    @property
    def by_codes(self) -> bool:
        """Whether codes that have moved are matched to the lattice, in place of images to generated images."""
        return self.settings.match == "codes"

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

    def _assign(self, blocks: list[Block], strategy: Strategy) -> None:
        """Assign the images of blocks to their lattice rows: their costs, their optima and their new codes."""
        columns = torch.cat([block.columns for block in blocks])
        if self.by_codes:
            rows = torch.cat([block.rows for block in blocks])
            given, offered = self.codes.clone(), self.lattice[columns]
            given[rows] = self._codes_of(rows)
        else:
            with self.clock("generate"):
                given, offered = self.x, self._decode_lattice(columns)
        parts = offered.split([len(block) for block in blocks])
        found = strategy.solve_all(blocks, given, parts, [self._warm(block) for block in blocks])
        for block, (solution, figures) in zip(blocks, found):
            self._take_over(block, solution, figures)

    def _warm(self, block: Block) -> Warm:
        """Where the solver may begin: the lattice-wide duals, and the columns that the images hold now."""
        place = torch.full((len(self.lattice),), -1)
        place[block.columns] = torch.arange(len(block))
        return Warm(self.column_duals[block.columns], place[self.permutation[block.rows]])

    def _take_over(self, block: Block, solution: Solution, figures: Figures) -> None:
        """The new permutation, its duals, and the codes that follow it with momentum."""
        rows, columns = block.rows, block.columns
        taken = columns[solution.permutation]
        changed = float((taken != self.permutation[rows]).double().mean())
        self.permutation[rows] = taken
        self._set_codes(rows, self.rho * self.lattice[taken] + (1 - self.rho) * self._codes_of(rows))
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

    def _decode_lattice(self, columns: Tensor | None = None) -> Tensor:
        """G(Q_k) for these lattice rows, or for all: (m, *shape)."""
        chosen = slice(None) if columns is None else columns
        labels = None if self.lattice_labels is None else self.lattice_labels[chosen]
        return decode(self.generator, self.lattice[chosen], labels)

    def starts(self) -> tuple[Tensor, Tensor | None]:
        """The lattice."""
        return self.lattice, self.lattice_labels

    def law_of(self, label: Tensor | None) -> Law:
        """The prior, of every class; the mixture of the class if there are components."""
        return self.prior if self.law is None else self.law.of(label)

    def draw_usual(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Codes drawn from the prior, with labels as in the training set, or the given one."""
        if self.law is not None:
            labels = self.draw_labels(n, label, random)
            return self.law.sample(n, labels, random).to(self.lattice), labels
        return self.prior.sample(n, random).to(self.lattice), self.draw_labels(n, label, random)

    def default_sampling(self, chosen: Sampling) -> Sampling:
        """The sampler apart, if the settings leave out some draws."""
        if self.settings.apart == 1 or chosen != Sampling():
            return chosen
        return Sampling(samplers.APART.name, fraction=self.settings.apart)

    def code_labels(self) -> Tensor | None:
        return None if self.lattice_labels is None else self.lattice_labels[self.permutation]

    def kept(self) -> dict[str, Tensor]:
        kept = super().kept() | {"lattice": self.lattice, "permutation": self.permutation}
        kept |= {} if self.law is None else self.law.tensors()
        return kept if self.lattice_labels is None else kept | {"lattice_labels": self.lattice_labels}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        self.lattice, self.permutation = tensors["lattice"].to(self.device), tensors["permutation"]
        if self.settings.components != 1:
            self.law = Mixture.from_tensors(tensors)
        if "lattice_labels" in tensors:
            self.lattice_labels = tensors["lattice_labels"].to(self.device)

    def facts(self) -> dict[str, str]:
        law = f"the {self.prior.name} prior"
        if self.law is not None:
            law = f"a mixture of {int((self.law.weights > 0).sum())} {self.prior.name} components"
        return super().facts() | {"lattice": f"{len(self.lattice)} quantiles of {law}"}

    def spanned(self) -> Tensor:
        return self.lattice

    def reaches(self, codes: Tensor) -> Tensor:
        """Everywhere for one component; for more, where the mixture is denser than at its least likely codes."""
        if self.law is None or self.classes:
            return super().reaches(codes)
        least = self.law.log_prob(self.lattice.cpu().double()).quantile(RARE)
        return self.law.log_prob(codes.cpu().double()) >= least

    def notes(self) -> list[str]:
        notes = []
        largest = max(map(len, self.blocks))
        dense = self.settings.strategy_for(largest) != "candidates"
        if self.settings.algorithm == "full" and largest > LARGE and dense:
            notes.append(
                f"one assignment of {largest:,} images compares {largest**2:,} pairs: if that takes too long, use "
                "--strategy candidates, or the mini-batch algorithm"
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
        first, second = (self.draw_usual(draws, None, random)[0].cpu().double() for _ in range(2))
        lattice = self.lattice.cpu().double()
        return float(torch.cdist(first, lattice).amin(1).mean() / torch.cdist(first, second).mean())

    def tensors(self) -> dict[str, Tensor]:
        tensors = {name: getattr(self, name) for name in _KEPT} | self.offers.tensors()
        if self.lattice_labels is not None:
            tensors["lattice_labels"] = self.lattice_labels
        if self.moving is not None:
            tensors |= {f"moving.{name}": tensor for name, tensor in self.moving.tensors().items()}
        if self.shared is not None:
            tensors |= {f"shared.{name}": tensor for name, tensor in self.shared.tensors().items()}
        if self.law is not None:
            tensors |= self.law.tensors()
        tensors["counts"] = torch.tensor([self.steps, self.assignments])
        tensors["progress"] = torch.tensor(self.progress, dtype=torch.float64)
        tensors["snapped"] = torch.tensor(self.snapped)
        tensors["figures"] = torch.tensor(self.figures, dtype=torch.float64)
        return tensors

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        for name in _KEPT:
            setattr(self, name, tensors[name])
        self.offers.load(tensors)
        self.lattice, self.codes = tensors["lattice"].to(self.device), tensors["codes"].to(self.device)
        if "lattice_labels" in tensors:
            self.lattice_labels = tensors["lattice_labels"].to(self.device)
        if self.settings.code_rate:
            self.moving = CodeSteps(self.codes)
            self.moving.load(_with_prefix("moving.", tensors), self.device)
        if self.shared is not None:
            self.shared.load(_with_prefix("shared.", tensors), self.device)
        if self.law is not None and self.settings.law == "learnt":
            self.law = Mixture.from_tensors(tensors)
            self.parts = parts_of(self.law, self.blocks)
        # Runs of version 0.1.0 do not count: nothing in them depends on it.
        self.steps, self.assignments = tensors["counts"].tolist() if "counts" in tensors else (0, 0)
        self.progress = float(tensors["progress"])
        self.snapped = bool(tensors["snapped"])
        self.figures = tensors["figures"].tolist()


_KEPT = ("lattice", "permutation", "codes", "row_duals", "column_duals")


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
