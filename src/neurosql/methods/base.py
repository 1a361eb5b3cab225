"""What the training loop needs from a learning principle, and what a fitted one can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from neurosql import generators, networks, prior
from neurosql.clock import Clock
from neurosql.cost import Cost
from neurosql.encode import decode
from neurosql.errors import InputError, NotFinite
from neurosql.generators.base import Generator
from neurosql.modality import Modality, of_shape
from neurosql.ranks import Part
from neurosql.registry import imported
from neurosql.samplers import SAMPLERS, Known
from neurosql.settings import BACKBONES, MethodRecord, Sampling, Settings

USUAL = Sampling()
"""The method's usual way to draw samples."""

Update = Callable[[str, Tensor], None]
"""`update(name, loss)`: one clipped step of the optimiser of that name down the gradient of that loss."""

PROBED = 8
"""Codes or images with which a model is tried before it is saved."""


def must_be_finite(what: str, *values: Tensor) -> None:
    """Raise `NotFinite` if any of these numbers is NaN or infinite."""
    if not all(bool(value.isfinite().all()) for value in values if value.is_floating_point()):
        raise NotFinite(f"{what} is not finite")


@dataclass(frozen=True)
class Batch:
    """Some training images: their indices in the training set (m,), pixels (m, ...) and labels (m,), if any.

    If several ranks train together, these are this rank's part of a joint batch.
    """

    index: Tensor
    x: Tensor
    label: Tensor | None
    of: tuple[Tensor, Part] | None = None
    """The indices of the joint batch, and which of them are here; by default, all are."""

    @property
    def joint(self) -> Tensor:
        """The indices of all images of the step, those of other ranks included."""
        return self.index if self.of is None else self.of[0]

    @property
    def part(self) -> Part:
        """Which rows of the joint batch are here."""
        return Part.all(len(self.index)) if self.of is None else self.of[1]


@dataclass(frozen=True)
class Task:
    """What a method is made for: the resolved settings, the shape of a sample, and the number of classes.

    Generator, prior and cost come from here, so they are the same for every method: the generator down to the bits
    of its initial weights.
    """

    settings: Settings
    shape: tuple[int, ...]
    classes: int | None = None
    """Number of classes of a class-conditional model."""
    law: prior.Prior | None = None
    """A prior of the caller's own."""
    trained: bool = False
    """Whether weights will be loaded; the backbone's `begin` is then not called."""

    @property
    def modality(self) -> Modality:
        """What kind of samples these are."""
        return of_shape(self.shape)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.settings.training.seed

    @property
    def latent_dim(self) -> int:
        """d, the length of a code."""
        return self.settings.generator.dim

    def generator(self) -> Generator:
        """The generator with its initial weights, on the CPU."""
        network = generators.make(**self._generator())
        if not self.trained:
            network.begin(self.settings.backbone)
        return network

    def generator_parameters(self) -> int:
        """How many parameters the generator has, without making it."""
        return generators.parameters(**self._generator())

    def _generator(self) -> dict[str, Any]:
        chosen = self.settings.generator
        kind: type[Generator] = imported(BACKBONES[chosen.generator].implementation)
        return {
            "name": chosen.generator,
            "shape": self.shape,
            "latent_dim": chosen.dim,
            "size": chosen.size,
            "width": chosen.width,
            "classes": self.classes,
            "seed": self.seed,
            "bounded": self.modality.bounded,
            "mapping": chosen.mapping,
            "mapping_width": chosen.mapping_width,
            **kind.own_options(self.settings.backbone),
        }

    @cached_property
    def prior(self) -> prior.Prior:
        """The law of the codes."""
        latent, dim = self.settings.latent, self.latent_dim
        if self.law is not None:
            if self.law.dim != dim:
                raise InputError(f"latent_dim is {dim}, but the prior has dimension {self.law.dim}")
            return self.law
        if latent.prior == "custom":
            raise InputError("the model was trained with a custom prior: load it in Python and give prior=")
        return prior.make(latent.prior, dim, latent.lattice, latent.scale)

    @property
    def cost(self) -> Cost:
        """The loss l between samples."""
        return Cost.named(self.settings.latent.cost)


class Method(ABC):
    """A learning principle. All methods run in the same loop on the same budget.

    `build` makes one for a task. Its networks are in `networks`, by name. `tensors` returns whatever else changes in
    training, and `load_tensors` restores it. `attach` and `start` are called before the first step. A fitted model that
    only samples, decodes and encodes is made by `restore`, from what `kept` returned.
    """

    record: ClassVar[MethodRecord]
    """What is known about the method without torch: its name, its title, what it has."""
    validates: ClassVar[bool] = True
    """Whether there is a held-out loss that says when to stop."""
    sampling: ClassVar[tuple[str, ...]] = ("generator",)
    """Names of the networks that sampling needs."""
    averaged: ClassVar[tuple[str, ...]] = ()
    """Names of the networks whose weights may be averaged; by default those that sampling needs."""
    together: ClassVar[tuple[str, ...]] = ("class_counts",)
    """Names in `kept`, or how they begin, of what says nothing about single training images. A model that is exported
    for sharing keeps these alone; all others have no rows."""

    codes: Tensor
    """(n, d): the codes of the training images, if the method has codes."""
    class_counts: Tensor
    """(classes,) int64: how many training images each class has, in the class-conditional case."""
    cost: Cost
    """The loss l between samples, if the method has codes."""
    pace: float = 1.0
    """The schedule's factor on learning rates for the next step; the loop sets it."""
    terms: dict[str, Tensor]
    """The terms of the loss of the step under way, by name: the loop says which of them is not finite."""

    def __init__(self, networks: dict[str, nn.Module], classes: int | None = None) -> None:
        self.networks = networks
        self.classes = classes
        self.terms = {}
        self.clock = Clock()
        self.random = torch.Generator()
        self.x: Tensor
        self.labels: Tensor | None = None

    @classmethod
    @abstractmethod
    def build(cls, task: Task) -> Method:
        """The method before it has seen any images, its networks with their initial weights."""

    @property
    def name(self) -> str:
        """The method's name."""
        return self.record.name

    @property
    def title(self) -> str:
        """What the method is, in a few words."""
        return self.record.title

    @property
    def has_codes(self) -> bool:
        """Whether samples have codes: `encode`, `decode` and `reconstruct`, and `codes` of the training images."""
        return self.record.codes

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return next(self.networks[self.sampling[0]].parameters()).device

    def to(self, device: torch.device) -> Method:
        """Move the networks to a device."""
        for network in self.networks.values():
            network.to(device)
        return self

    def attach(self, x: Tensor, labels: Tensor | None, seed: int) -> None:
        """Take the training images (n, ...), and their labels (n,) in the class-conditional case."""
        if self.classes and labels is None:
            raise InputError("a class-conditional model needs labels, got none")
        self.x, self.labels = x, labels if self.classes else None
        self.random.manual_seed(seed)
        if self.labels is not None:
            self.class_counts = torch.bincount(self.labels.cpu(), minlength=self.classes or 0)

    def start(self) -> None:  # noqa: B027
        """Called before the very first step, but not when a run resumes."""

    def start_from(self, before: Method, codes: Tensor) -> None:
        """Called in place of `start`, to go on from a trained model: its networks, and codes (n, d) of the images."""
        raise InputError(f"{self.record.name} can't go on from a trained model: train a new one")

    def optimizers(self) -> dict[str, list[nn.Parameter]]:
        """The parameters that each optimiser trains, by the name that `update` takes."""
        return {name: list(network.parameters()) for name, network in self.networks.items()}

    @abstractmethod
    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """Learn from one batch; returns the losses to record."""

    def end_epoch(self, epoch: int, epochs: int) -> dict[str, float]:
        """Called after epoch number `epoch` (from 0) of `epochs`; returns the figures to record."""
        return {}

    def consists_of(self, **terms: Tensor) -> None:
        """Say which terms the next loss has."""
        self.terms = {name.replace("_", " "): term.detach() for name, term in terms.items()}

    @torch.no_grad()
    def probe(self) -> tuple[Tensor, ...]:
        """A few outputs of the networks that sampling needs, and all codes: a model is kept only if they are finite."""
        generator = self.networks["generator"]
        assert isinstance(generator, Generator)
        random = torch.Generator().manual_seed(0)
        codes = torch.randn(PROBED, generator.latent_dim, generator=random).to(next(generator.parameters()))
        label = None if not self.classes else torch.zeros(PROBED, dtype=torch.int64, device=self.device)
        made = self.decode(codes, label)
        return (made, self.codes) if hasattr(self, "codes") else (made,)

    def closing(self) -> int:
        """Prepare the closing fit after the main budget; returns how many epochs it takes."""
        return 0

    def finish(self) -> None:  # noqa: B027
        """Called after the last step, for example to fit a density to the codes."""

    def heldout_loss(self, x: Tensor, label: Tensor | None) -> float:
        """Mean loss on images that were not trained on, if the method `validates`."""
        raise NotImplementedError

    def draw_usual(self, n: int, label: int | None, random: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Codes (n, d) from the method's usual sampler, and their labels (n,), if the method has codes to draw."""
        raise InputError(f"{self.record.name} has no codes to draw")

    def draw_codes(
        self, n: int, label: int | None, random: torch.Generator, sampling: Sampling = USUAL
    ) -> tuple[Tensor, Tensor | None]:
        """Codes (n, d) of n new samples and, in the class-conditional case, their labels (n,), if `has_codes`."""
        sampler, choice = self.record.sampling(self.default_sampling(sampling))
        if sampler is self.record.samplers[0] and sampling.components is None:
            return self.draw_usual(n, label, random)
        if not len(self.codes):
            raise InputError(
                f"the sampler {sampler.name} needs the codes of the training images, and this model was shared without "
                f"them: use the sampler {self.record.samplers[0].name}"
            )
        known = Known(
            *(self.codes, self.code_labels(), self.classes),
            usual=lambda m, random: self.draw_usual(m, label, random),
            decode=self.decode,
            cost=self.cost,
            draw_labels=lambda m: self.draw_labels(m, label, random),
        )
        return SAMPLERS[sampler.name](known, choice, n, random)

    def default_sampling(self, chosen: Sampling) -> Sampling:
        """What a choice that names no sampler stands for; by default, the method's usual sampler."""
        return chosen

    def sample(
        self, n: int, label: int | None, random: torch.Generator, sampling: Sampling = USUAL
    ) -> tuple[Tensor, Tensor | None]:
        """n new samples (n, *shape) and, in the class-conditional case, their labels (n,)."""
        codes, labels = self.draw_codes(n, label, random, sampling)
        return self.decode(codes, labels), labels

    def decode(self, codes: Tensor, label: Tensor | None = None) -> Tensor:
        """G(z): the images (m, *shape) of codes (m, d)."""
        generator = self.networks["generator"]
        assert isinstance(generator, Generator)
        return decode(generator, codes, label)

    def encode(
        self, x: Tensor, label: Tensor | None = None, progress: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Codes (m, d), labels (m,) and losses (m,) of images (m, ...) that need not have been trained on."""
        raise InputError(f"{self.record.name} has no codes: it can't encode")

    def code_labels(self) -> Tensor | None:
        """The labels (n,) of `codes`, in the class-conditional case."""
        return self.labels

    def reconstruct(self) -> Tensor:
        """G(Z_i) for all training images, if `has_codes`."""
        if not self.has_codes:
            raise InputError(f"{self.record.name} has no codes: it can't reconstruct")
        return self.decode(self.codes, self.code_labels())

    def tensors(self) -> dict[str, Tensor]:
        """What changes in training besides the networks' weights."""
        return {}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:  # noqa: B027
        """Restore what `tensors` returned."""

    def kept(self) -> dict[str, Tensor]:
        """What a fitted model needs besides the weights."""
        kept = {"codes": self.codes} if self.has_codes else {}
        return kept | ({"class_counts": self.class_counts} if self.classes else {})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `kept` returned, to sample, decode and encode without the training images."""
        if self.has_codes:
            self.codes = tensors["codes"].to(self.device)
        if self.classes:
            self.class_counts = tensors["class_counts"]

    def facts(self) -> dict[str, str]:
        """Facts about the model for the reader, by name, one line each."""
        return {name: describe(network) for name, network in self.networks.items()}

    def notes(self) -> list[str]:
        """Sentences that the user should read before training begins."""
        return []

    def spanned(self) -> Tensor:
        """Codes (n, d) whose range a map of the latent space should cover, if `has_codes`."""
        return self.codes

    def reaches(self, codes: Tensor) -> Tensor:
        """Whether samples come from the neighbourhood of each of these codes (m, d): (m,) bool, if `has_codes`."""
        return torch.ones(len(codes), dtype=torch.bool)

    def state(self) -> dict[str, Tensor]:
        """Everything that changes in training, as tensors."""
        state = {
            f"{name}.{key}": value for name, net in self.networks.items() for key, value in net.state_dict().items()
        }
        state |= {f"own.{key}": value for key, value in self.tensors().items()}
        state["random"] = self.random.get_state()
        return {name: tensor.detach().clone() for name, tensor in state.items()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        groups: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            group, _, key = name.partition(".")
            groups[group][key] = tensor.clone()
        for name, network in self.networks.items():
            network.load_state_dict(groups[name])
        self.load_tensors(groups["own"])
        self.random.set_state(groups["random"][""])

    def parameters(self, *names: str) -> int:
        """Number of trained parameters of these networks, or of all."""
        return sum(p.numel() for name in names or self.networks for p in self.networks[name].parameters())

    def draw_labels(self, n: int, label: int | None, random: torch.Generator) -> Tensor | None:
        """Labels (n,) of n samples: the given one, or drawn with the training set's shares; None without classes."""
        if not self.classes:
            if label is not None:
                raise InputError(f"this model has no classes, got label {label}: train it with conditional=True")
            return None
        counts = self.class_counts.cpu()
        if label is None:
            return torch.multinomial(counts.double(), n, replacement=True, generator=random).to(self.device)
        if not 0 <= label < len(counts) or not counts[label]:
            raise InputError(f"the model has no class number {label}")
        return torch.full((n,), label, dtype=torch.int64, device=self.device)


def describe(network: nn.Module) -> str:
    """A network in a few words."""
    count = f"{networks.count(network):,} parameters"
    if isinstance(network, Generator):
        return f"{network.name}, {count}, latent dimension {network.latent_dim}"
    return count
