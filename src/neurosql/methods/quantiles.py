"""Codes that are quantiles: the lattice, the row that each image holds, and the law that samples are drawn from.

This is what a model of quantile assignment (see neurosql.py) is before, while and after it is trained: how its lattice
is laid out, how codes are drawn, what a run folder keeps, and what the user is told. A mixture lattice can be replaced
by that of a law which follows the codes (see assign/learnt.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from neurosql.assign import Warm
from neurosql.assign.blocks import Block, Layout, lay_out, lay_out_components
from neurosql.assign.learnt import follow, laid_out, parts_of, whitened
from neurosql.assign.strategies import Strategy
from neurosql.cost import Cost
from neurosql.density import Mixture
from neurosql.encode import Law
from neurosql.errors import InputError
from neurosql.generators.base import Generator
from neurosql.methods.search import Searched
from neurosql.prior import Normal, Prior
from neurosql.settings import QuantileSettings, Sampling, samplers

LARGE = 8000
"""Images in one assignment with all pairs, from which on the user is told that it may take long."""
FAR = 0.6
"""Distance of prior draws to the codes, from which on the user is told that samples may be poor."""
MANY = 2**16
"""Codes that are compared with draws at a time."""
RARE = 0.01
"""Share of the lattice that is less likely than any place that a map shows."""


class QuantileCodes(Searched):
    """A generator whose codes are quantiles of a prior, or of a mixture.

    In the class-conditional case every class has a sublattice of its own.
    """

    together = (*Searched.together, "density.")

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
    blocks: list[Block]
    """One block of all images and all lattice rows, or one per class."""
    parts: list[Block]
    """One per component, with the images that it had when it was laid out; without components, the blocks."""

    def __init__(self, generator: Generator, prior: Prior, cost: Cost, settings: QuantileSettings) -> None:
        super().__init__({"generator": generator}, generator.classes)
        self.generator = generator
        self.prior = prior
        self.cost = cost
        self.settings = settings
        self.memory = settings.memory * 2**20
        if settings.components != 1 and not isinstance(prior, Normal):
            raise InputError(f"components are for the normal prior, got {settings.components} and {prior.name}")

    def attach(self, x: Tensor, labels: Tensor | None, seed: int) -> None:
        """Take the training images (n, ...) and lay out the lattice that belongs to their number and classes."""
        super().attach(x, labels, seed)
        self.seed = seed
        if self.settings.components != 1:
            # A generator of its own: what is drawn here is drawn again when a run is resumed.
            random = torch.Generator().manual_seed(seed)
            seen, count = self.cost.seen(x), self.settings.components
            laid = lay_out_components(self.prior, seen, self.labels, self.classes, count, random, seed)
            lattice, self.blocks, self.parts, self.law = laid.lattice, laid.blocks, laid.parts, laid.law
        else:
            lattice, self.blocks = lay_out(self.prior, len(x), self.labels, seed)
            self.parts = self.blocks
        self.lattice = lattice.to(x.device, x.dtype)
        if self.labels is not None:
            self.lattice_labels = self.labels[torch.cat([block.rows for block in self.blocks])]

    def _parts(self) -> list[Block]:
        """One block per component, with the images that it has now; without components, one per class or of all."""
        if self.law is None:
            return self.blocks
        holder = torch.empty_like(self.permutation)
        holder[self.permutation] = torch.arange(len(holder))
        return [Block(holder[part.columns], part.columns, part.label) for part in self.parts]

    def _follow(self, strategies: dict[str, Strategy]) -> None:
        """Estimate the law of the codes anew; its lattice replaces the one before, matched to the codes."""
        assert self.law is not None
        self._lay_out(follow(self.law, self.codes, self.blocks, self.prior, self.seed), strategies)

    def _fit_density(self, count: int, strategies: dict[str, Strategy]) -> None:
        """Fit a law of at most `count` components per class to the codes where they are, and lay out its lattice."""
        law = Mixture.fit(self.codes, self.labels, self.classes, count, self.seed)
        self._lay_out(laid_out(law, self.codes, self.blocks, self.prior, self.seed), strategies)

    def _lay_out(self, laid: Layout, strategies: dict[str, Strategy]) -> None:
        """Take over a lattice and its law, and match them to the codes."""
        self.lattice, self.parts, self.law = laid.lattice.to(self.codes), laid.parts, laid.law
        self._match(*whitened(laid, self.codes), strategies)

    def _match(self, codes: Tensor, quantiles: Tensor, strategies: dict[str, Strategy]) -> None:
        """The permutation that matches quantiles (n, d) to codes (n, d), least squares, part by part."""
        for block in self.parts:
            strategy = strategies[self.settings.strategy_for(len(block))]
            nothing = Warm(torch.zeros(len(block), dtype=torch.float64), torch.full((len(block),), -1))
            found = strategy.solve(block, codes, quantiles[block.columns], nothing)[0]
            self.permutation[block.rows] = block.columns[found.permutation]

    def _begin_near(self, law: Mixture | None, codes: Tensor, strategies: dict[str, Strategy]) -> None:
        """Take codes (n, d) that an earlier model gave the images, and match the lattice to them.

        `law` is the mixture that they had; its lattice is laid out anew, with as many points as there are codes.
        """
        self.codes = codes.to(self.lattice)
        if self.law is None:
            self._match(self.codes, self.lattice, strategies)
        else:
            self._lay_out(laid_out(law or self.law, self.codes, self.blocks, self.prior, self.seed), strategies)

    def _standardise(self) -> None:
        """Give the codes the mean and the mean variance of the prior; the generator makes the same images of them.

        A law that follows the codes also follows them when they all grow or drift.
        """
        assert self.law is not None
        if len(self.codes) < 2:
            # One code has no variance, and may be where it is.
            return
        shift = self.codes.cpu().double().mean(0)
        factor = float(self.codes.cpu().double().var(0).mean().sqrt()) / self.prior.scale or 1.0
        self.generator.take_codes(shift, factor)
        self.codes, self.lattice = ((z - shift.to(z)) / factor for z in (self.codes, self.lattice))
        self.law = self.law.in_units(shift, factor)

    def drift(self) -> float:
        """Variance of the codes over variance of the lattice: 1 when the codes follow the prior that is sampled."""
        if len(self.codes) < 2:
            return 1.0
        return float(self.codes.var(0).sum() / self.lattice.var(0).sum())

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

    def tensors(self) -> dict[str, Tensor]:
        tensors = {"lattice": self.lattice, "permutation": self.permutation, "codes": self.codes}
        tensors |= {} if self.law is None else self.law.tensors()
        return tensors if self.lattice_labels is None else tensors | {"lattice_labels": self.lattice_labels}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self._take(tensors)
        # Early runs keep no law that is fixed: it is the one that was laid out.
        if self.law is not None and "density.weights" in tensors:
            self.law = Mixture.from_tensors(tensors)
            self.parts = parts_of(self.law, self.blocks)

    def kept(self) -> dict[str, Tensor]:
        return super().kept() | QuantileCodes.tensors(self)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        self._take(tensors)
        if self.settings.components != 1:
            self.law = Mixture.from_tensors(tensors)

    def _take(self, tensors: dict[str, Tensor]) -> None:
        """Lattice, permutation and codes of a checkpoint or of a fitted model."""
        self.permutation = tensors["permutation"]
        self.lattice, self.codes = tensors["lattice"].to(self.device), tensors["codes"].to(self.device)
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
        dense = self.settings.strategy_for(largest) == "dense"
        if self.settings.algorithm == "full" and largest > LARGE and dense:
            notes.append(
                f"one assignment of {largest:,} images compares {largest**2:,} pairs: if that takes too long, use "
                "--strategy blocks, or the mini-batch algorithm"
            )
        # A law that is learnt goes where the codes are.
        far = self.distance_to_codes() if self.settings.law == "fixed" else 0.0
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
        # In parts: all distances of a million codes would take gigabytes.
        parts = [torch.cdist(first, part.cpu().double()).amin(1) for part in self.lattice.split(MANY)]
        return float(torch.stack(parts).amin(0).mean() / torch.cdist(first, second).mean())
