r"""Implicit maximum likelihood (IMLE), and IMLE with rejection sampling (RS-IMLE).

Every few epochs m = pool * n codes are drawn from the prior, and each training image takes the nearest sample:

    choice       k(i)  <- argmin over k of l(X_i, G_theta(z_k)),  z_1..z_m from the prior
    decoder      theta <- argmin (1/n) sum_i l(X_i, G_theta(z_k(i) + noise))

Every image is served, so no mode is dropped. But this is not an assignment: one sample may serve several images, and
most samples serve none (Li and Malik, 2018). The small noise makes a neighbourhood of each chosen code learn its image.

With many samples, the nearest one is already close to its image, and the chosen codes are no longer spread like draws
from the prior: most of the latent space is never trained. RS-IMLE (Vashist, Peng and Li, 2024) offers no sample that
is closer than epsilon to any image, so that images choose samples that are still far away, and pull them near. The
paper's epsilon is a number in units of the distance, found by trial for each data set: the setting `epsilon`. By
default, a share `reject` of the pool is rejected instead: at each choice, epsilon is the quantile of that order of the
samples' distances to their nearest images. It shrinks as the samples come closer, and does not depend on the scale
of l. In the class-conditional case, all of this happens class by class.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neurosql.assign.blocks import lay_out
from neurosql.cost import Cost
from neurosql.encode import Law, decode
from neurosql.generators.base import Generator
from neurosql.methods.base import Batch, Task, Update, must_be_finite
from neurosql.methods.search import Searched
from neurosql.prior import Prior
from neurosql.ranks import here
from neurosql.settings import methods
from neurosql.settings.methods import IMLESettings, RSIMLESettings

CHUNK = 1024
DEPTH = 16
LEAST = 0.1
FIGURES = ("cost", "distinct", "rejected")


class IMLE(Searched):
    """Each image learns from the nearest of many samples."""

    record = methods.IMLE

    codes: Tensor
    """Z, (n, d): the code that image i took at the last choice."""
    labels_of_codes: Tensor | None = None
    """The class of each code, (n,), in the class-conditional case."""
    lattice: Tensor
    """(n, d): quantiles of the prior. The search for the code of a new image starts from these or from `codes`."""
    lattice_labels: Tensor | None = None

    def __init__(self, generator: Generator, prior: Prior, cost: Cost, settings: IMLESettings) -> None:
        super().__init__({"generator": generator}, generator.classes)
        self.generator = generator
        self.prior = prior
        self.cost = cost
        self.settings = settings
        self.due = False
        self.figures = [math.nan for _ in FIGURES]

    @classmethod
    def build(cls, task: Task) -> IMLE:
        assert isinstance(task.settings.own, IMLESettings)
        return cls(task.generator(), task.prior, task.cost, task.settings.own)

    def attach(self, x: Tensor, labels: Tensor | None, seed: int) -> None:
        """Take the training images (n, ...), in blocks that choose among the same samples."""
        super().attach(x, labels, seed)
        lattice, self.blocks = lay_out(self.prior, len(x), self.labels, seed)
        self.lattice = lattice.to(x)
        self.labels_of_codes = self.labels
        if self.labels is not None:
            self.lattice_labels = self.labels[torch.cat([block.rows for block in self.blocks])]

    def start(self) -> None:
        self.codes = self.x.new_empty(len(self.x), self.prior.dim)
        self.choose()

    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """One gradient step of the generator at the chosen codes, after a new choice if one is due."""
        # Not at the end of the previous epoch: a run then ends with codes that it was trained on.
        if self.due:
            self.choose()
        with self.clock("decoder"):
            self.generator.train()
            codes = self.codes[batch.index]
            if self.settings.jitter:
                size = codes.shape[1:]
                noise = batch.part.of(lambda n: torch.randn(n, *size, generator=self.random, dtype=torch.float64)).to(
                    codes
                )
                codes = codes + self.settings.jitter * self.prior.scale * noise
            label = None if self.labels is None else self.labels[batch.index]
            loss = self.cost.paired(batch.x, self.generator(codes, label)).mean()
            update("generator", loss)
        return {"loss": loss.item()}

    def end_epoch(self, epoch: int, epochs: int) -> dict[str, float]:
        self.due = (epoch + 1) % self.settings.renew == 0
        figures, self.figures = self.figures, [math.nan for _ in FIGURES]
        return {name: value for name, value in zip(FIGURES, figures) if math.isfinite(value)}

    def choose(self) -> None:
        """Draw new samples, and let each image take the nearest one of its own class.

        Ranks share the images of each class, and the work of making samples.
        """
        self.due = False
        total = torch.zeros(len(FIGURES), dtype=torch.float64)
        for block in self.blocks:
            rows = block.rows
            codes = self.prior.sample(self.settings.pool * len(rows), self.random).to(self.lattice)
            mine, counts = rows[here().part(len(rows)).rows], here().counts(len(rows))
            places, costs, rejected = self.nearest(self.x[mine], codes, block.label)
            places, costs = here().gather(places, counts), here().gather(costs, counts)
            self.codes[rows] = codes[places]
            distinct = len(places.unique()) / len(rows)
            figures = [float(costs.cpu().double().mean()), distinct, float(rejected.cpu().double().mean())]
            total += len(rows) / len(self.x) * torch.tensor(figures, dtype=torch.float64)
        self.figures = total.tolist()

    def nearest(self, x: Tensor, codes: Tensor, label: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The index (n,) and cost (n,) of the nearest sample of each image, and which samples (m,) are rejected."""
        costs, places, closest = self.candidates(x, codes, label, 1)
        return places[:, 0], costs[:, 0], torch.zeros(len(closest), dtype=torch.bool, device=x.device)

    def candidates(self, x: Tensor, codes: Tensor, label: int | None, best: int) -> tuple[Tensor, Tensor, Tensor]:
        """Costs and indices of the nearest samples of each image, both (n, best) and in ascending order of cost, and
        the cost (m,) between each sample and its nearest image.

        Samples are made and compared in chunks, so that memory never holds all samples or all pairs. If ranks share the
        images, each makes its part of a chunk, and the nearest image is that of all.
        """
        most = int(here().most(len(x)))
        costs = x.new_full((len(x), best), math.inf)
        places = torch.zeros(len(x), best, dtype=torch.int64, device=x.device)
        closest = x.new_empty(len(codes))
        # The largest part of the images: ranks must make chunks of one size.
        largest = 4 * max(most, math.prod(x.shape[1:]))
        chunk = max(1, min(CHUNK, self.memory // largest))
        for i in range(0, len(codes), chunk):
            with self.clock("generate"):
                some = codes[i : i + chunk]
                labels = None if label is None else torch.full((len(some),), label, device=x.device)
                rows = here().part(len(some)).rows
                samples = decode(self.generator, some[rows], None if labels is None else labels[rows])
                samples = here().gather(samples, here().counts(len(some)))
            with self.clock("cost"):
                block = self.cost.matrix(x, samples, self.memory)
                must_be_finite("the cost of a sample", block)
                closest[i : i + chunk] = block.amin(0) if len(x) else math.inf
                costs, at = torch.cat([costs, block], 1).topk(best, dim=1, largest=False, sorted=True)
                new = torch.arange(i, i + len(some), device=x.device).expand(len(x), -1)
                places = torch.cat([places, new], 1).gather(1, at)
        return costs, places, here().least(closest)

    def starts(self) -> tuple[Tensor, Tensor | None]:
        """The lattice, and the training images' codes."""
        starts = torch.cat([self.lattice, self.codes])
        if self.lattice_labels is None or self.labels_of_codes is None:
            return starts, None
        return starts, torch.cat([self.lattice_labels, self.labels_of_codes])

    def law_of(self, label: Tensor | None) -> Law:
        """The prior, whatever the class."""
        return self.prior

    def draw_usual(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Codes drawn from the prior, with labels drawn as in the training set, or with the given one."""
        codes = self.prior.sample(n, random).to(self.lattice)
        return codes, self.draw_labels(n, label, random)

    def code_labels(self) -> Tensor | None:
        return self.labels_of_codes

    def kept(self) -> dict[str, Tensor]:
        kept = super().kept() | {"lattice": self.lattice}
        if self.lattice_labels is None or self.labels_of_codes is None:
            return kept
        return kept | {"lattice_labels": self.lattice_labels, "code_labels": self.labels_of_codes}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        self.lattice = tensors["lattice"].to(self.device)
        if "lattice_labels" in tensors:
            self.lattice_labels = tensors["lattice_labels"].to(self.device)
            self.labels_of_codes = tensors["code_labels"].to(self.device)

    def tensors(self) -> dict[str, Tensor]:
        figures = torch.tensor(self.figures, dtype=torch.float64)
        return {"codes": self.codes, "due": torch.tensor(self.due), "figures": figures}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.codes = tensors["codes"].to(self.device)
        self.due = bool(tensors["due"])
        self.figures = tensors["figures"].tolist()


class RSIMLE(IMLE):
    """IMLE without the samples that are already close to some image."""

    record = methods.RS_IMLE
    settings: RSIMLESettings

    def nearest(self, x: Tensor, codes: Tensor, label: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        costs, places, closest = self.candidates(x, codes, label, DEPTH)
        rejected = self.rejected(closest)
        admitted = ~rejected[places] & costs.isfinite()
        first = admitted.to(torch.int8).argmax(1, keepdim=True)
        cost, place = costs.gather(1, first)[:, 0], places.gather(1, first)[:, 0]
        stuck = torch.nonzero(~admitted.any(1)).flatten()
        if here().any(len(stuck) > 0):
            # All of the nearest samples were rejected: these images look further.
            rest = torch.nonzero(~rejected).flatten()
            costs, places, _ = self.candidates(x[stuck], codes[rest], label, 1)
            cost[stuck], place[stuck] = costs[:, 0], rest[places[:, 0]]
        return place, cost, rejected

    def rejected(self, closest: Tensor) -> Tensor:
        """Which samples (m,) are too close, from their costs (m,) to their nearest images."""
        limit, m = self.settings.epsilon, len(closest)
        if limit is None:
            count = int(self.settings.reject * m)
        else:
            # If nearly all would be rejected, the farthest stay: each image needs something to choose from.
            count = min(int((closest < limit).sum()), m - math.ceil(LEAST * m))
        rejected = torch.zeros(m, dtype=torch.bool, device=closest.device)
        rejected[closest.argsort(stable=True)[:count]] = True
        return rejected
