"""The settings of quantile assignment: how codes are assigned, and what goes beyond the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neurosql.errors import InputError
from neurosql.settings.checks import MOST_COMPONENTS, at_least, at_most, check_choices

# A cost matrix of this many images takes 0.6 GB.
MANY = 12_000


@dataclass(frozen=True)
class QuantileSettings:
    """Quantile assignment: how codes are assigned."""

    start: Literal["pca", "scores", "random"] = "pca"
    """First codes. pca: the lattice, optimally matched to rank-normalised PCA scores; scores: the PCA scores
    themselves, for a law that is learnt; random: the lattice in random order."""
    algorithm: Literal["full", "mini-batch"] = "full"
    """Assign all images at once every few epochs (Algorithm 1) or each mini-batch after its step (Algorithm 2)."""
    subset: Literal["owned", "partition", "random"] = "owned"
    """Mini-batch only: which lattice points are offered to a batch. owned: those that its images hold; partition: one
    part of the lattice, which is split anew each epoch; random: a random draw, as in the paper (not a permutation)."""
    reuse: bool = False
    """Mini-batch with owned codes only: assign a batch by the images that its step has made anyway, from the codes of
    the batch and before the update. Otherwise the images of the offered lattice points are made anew after the step,
    which takes another quarter of the time of a step."""
    assignment: Literal["exact", "greedy", "greedy-cheapest", "greedy-regret"] = "exact"
    """Solver of the assignment."""
    every: int = 2
    """K: epochs between two assignments (full batch); 0 never assigns again after the start."""
    momentum: float = 0.7
    """rho in (0, 1]: weight of the newly assigned code against the old one."""
    anneal: bool = True
    """Raise rho linearly to 1 over the run, so that the final codes are lattice points."""
    snap: int = 0
    """Epochs of fitting after a final snap of the codes to the lattice; 0 leaves the snap out."""
    components: int = 1
    """Components of the lattice. Above 1, images are clustered and each cluster gets a sublattice of its own, so that
    unlike images need no bridge between them; per class if the model is class-conditional. 0 chooses the number by how
    well clusters describe held-out images."""
    exchange: int = 4
    """Components only: every how many assignments images may change their component. In all others each image stays in
    its own, which takes much less time. 0 never lets them change."""
    code_rate: float = 0.0
    """Learning rate of the codes, which then also move by gradient between assignments; 0 moves them by assignment
    alone. The final codes are lattice points if `anneal` is on."""
    shared_rate: float = 0.0
    """Learning rate of gradient steps that all codes take together: codes of images that look alike move alike. An
    image's own step comes once per epoch, these come with every batch; 0 leaves them out."""
    law: Literal["fixed", "learnt"] = "fixed"
    """Components only: the law of the codes. fixed: as it was laid out; learnt: before each assignment it is estimated
    anew from codes that have moved, and the lattice follows."""
    final_components: int = 0
    """A law that is learnt only: largest number of components of the mixture that is fitted to the codes at the end and
    then sampled; few images get fewer. 0 keeps the law as it was learnt."""
    match: Literal["cost", "codes"] = "cost"
    """What an assignment compares. cost: images with the generated images of the lattice; codes: codes that have moved
    with the lattice points themselves, which takes next to no time, whatever the size of the images."""
    fresh: float = 0.0
    """Weight of the sliced Wasserstein distance between fresh samples and the training data, so that the generator also
    learns between its codes; 0 leaves it out."""
    fresh_batch: int = 128
    """Fresh samples that are compared with the training data at a time."""
    fresh_every: int = 6
    """Steps between two such comparisons."""
    apart: float = 1.0
    """Share of draws that become samples unless a sampler is named: those whose images are most like a copy of one
    training image are left out (see the sampler apart). 1 leaves none out."""
    penalty: float = 0.0
    """lambda: weight of the explicit penalty R(theta), the sum of squared generator weights."""
    strategy: Literal["auto", "dense", "candidates", "blocks"] = "auto"
    """Full batch only: which costs an assignment computes. dense: all of them; candidates: those that a cheap search
    proposes, which is nearly as good and takes far less time and memory; blocks: the same search among neighbours only,
    whose time grows in proportion to the number of images; auto: blocks above 12,000 images if the assignment is exact,
    otherwise dense."""
    candidates: int = 64
    """Candidates only: costs that each search (there are usually two) proposes per image and per code."""
    block_size: int = 1024
    """Blocks only: images among which neighbours are searched; so many or fewer images are assigned with all costs."""
    memory: int = 256
    """MiB that the cost matrix may use for its temporaries."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 0, "every", "snap", "penalty", "exchange", "code_rate", "shared_rate", "fresh")
        at_least(self, 0, "components", "final_components")
        at_least(self, 1, "memory", "candidates", "fresh_every")
        at_least(self, 2, "fresh_batch", "block_size")
        at_most(self, MOST_COMPONENTS, "components", "final_components")
        at_most(self, 2**16, "fresh_batch", "block_size")
        if not 0 < self.momentum <= 1:
            raise InputError(f"momentum must be in (0, 1], got {self.momentum}: 0 would never learn")
        if not 0 < self.apart <= 1:
            raise InputError(f"apart must be in (0, 1], got {self.apart}")
        if self.match == "codes" and not self.moves:
            raise InputError("match codes needs codes that move: give code_rate, 0.15 say")
        if self.reuse and (self.algorithm, self.subset, self.match) != ("mini-batch", "owned", "cost"):
            raise InputError(
                "reuse is for algorithm mini-batch, subset owned and match cost: "
                f"got {self.algorithm}, {self.subset} and {self.match}"
            )
        if self.law == "learnt" and (self.components == 1 or not self.moves):
            raise InputError("law learnt needs components and codes that move: give components and shared_rate")
        if self.start == "scores" and self.law != "learnt":
            raise InputError("start scores needs law learnt: codes of a fixed law begin on its lattice")
        if self.law == "learnt" and self.algorithm != "full":
            raise InputError("law learnt needs algorithm full: with mini-batches there is no moment to learn it")
        if self.strategy in ("candidates", "blocks") and self.assignment != "exact":
            raise InputError(
                f"strategy {self.strategy} needs assignment exact, got {self.assignment!r}: "
                "use exact, or strategy dense"
            )

    @property
    def moves(self) -> bool:
        """Whether codes move by gradient."""
        return bool(self.code_rate or self.shared_rate)

    @property
    def streams(self) -> bool:
        """Whether training looks at a few images at a time only: they may stay bytes, mapped from a file."""
        whole = self.components != 1 or self.fresh or self.shared_rate
        return self.algorithm == "mini-batch" and self.start != "scores" and not whole

    def strategy_for(self, n: int) -> str:
        """How n images are assigned: dense, candidates or blocks."""
        if self.strategy == "auto":
            return "blocks" if self.assignment == "exact" and n > max(MANY, self.block_size) else "dense"
        return "dense" if self.strategy == "blocks" and n <= self.block_size else self.strategy
