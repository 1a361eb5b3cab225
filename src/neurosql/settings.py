"""Every setting, once: its default, its check and its help text.

The command line makes a flag of each field, the estimator a constructor argument, and `config.json` keeps the
resolved values. Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from neurosql.errors import InputError

Backbone = Literal["auto", "mlp", "convnet", "resnet", "unet", "transformer"]
CostName = Literal["auto", "ssim+l1", "ssim", "l1", "l2"]

# A matrix of all pairs of so many images takes 0.6 GB.
MANY = 12_000


@dataclass(frozen=True)
class GeneratorSettings:
    """The generator: its architecture, its size, its input."""

    generator: Backbone = "auto"
    """Architecture; auto is convnet for images and mlp for everything else."""
    size: Literal["laptop", "paper"] = "laptop"
    """Widths of all layers together: laptop (ConvNet about 0.2M parameters at 28 x 28) or paper (2.8M)."""
    width: int | None = None
    """First (widest) layer width, in place of the one that `size` sets."""
    taper: bool = True
    """ResNet only: halve the width from block to block; without it all blocks have one width."""
    resnet18: str | None = None
    """ResNet only: a ResNet-18 state dict (.safetensors) to start from where shapes match."""
    latent_dim: int = 2
    """Dimension d of the latent space."""
    conditional: bool = False
    """Class-conditional: each class gets a sublattice of its own and the generator a class embedding."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 1, "latent_dim", "width")


@dataclass(frozen=True)
class LatentSettings:
    """The law of the codes and the loss between samples: the same for every method that has them."""

    prior: Literal["normal", "cube", "ball", "spherical", "custom"] = "normal"
    """Law of the codes: standard normal, uniform on the cube, on the ball, or with uniform radius on the ball
    (custom is one given in Python)."""
    lattice: Literal["sobol", "centre-outward", "centre-outward-lebesgue", "grid", "iid"] | None = None
    """How the prior's n quantiles are placed; by default scrambled Sobol points through the quantile map."""
    scale: float = 1.0
    """Factor on the prior (lattice, sampler and density alike)."""
    cost: CostName = "auto"
    """Loss l between a sample and its reconstruction, and of the assignment; auto is ssim+l1, and l2 for vectors."""

    def check(self) -> None:
        check_choices(self)
        if not self.scale > 0:
            raise InputError(f"scale must be positive, got {self.scale}")


@dataclass(frozen=True)
class QuantileSettings:
    """Quantile assignment: how codes are assigned."""

    start: Literal["pca", "random"] = "pca"
    """First permutation: optimal match of rank-normalised PCA scores to the lattice, or random."""
    algorithm: Literal["full", "mini-batch"] = "full"
    """Assign all images at once every few epochs (Algorithm 1) or each mini-batch after its step (Algorithm 2)."""
    subset: Literal["owned", "partition", "random"] = "owned"
    """Mini-batch only: lattice points offered to a batch. The ones its images hold, a disjoint split of the lattice
    each epoch, or a random draw (the paper's; not a permutation)."""
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
    penalty: float = 0.0
    """lambda: weight of the explicit penalty R(theta), the sum of squared generator weights."""
    refresh: Literal["full", "partial"] = "full"
    """Full batch only: compute the whole cost matrix at each assignment, or at most of them only the pairs that
    matter."""
    refresh_best: int = 32
    """Partial refresh: pairs of each image, and of each code, that are computed anew at first; their number then
    follows what the full passes measure."""
    refresh_every: int = 15
    """Partial refresh: every so many assignments the whole matrix is computed."""
    refresh_gap: float = 1e-3
    """Partial refresh: largest relative gap, as measured at the full passes; above it all passes are full."""
    pairs: Literal["auto", "all", "candidates"] = "auto"
    """Pairs of images and codes that an assignment looks at: all, or, nearly as good and in far less memory, the ones
    that a cheap search proposes; auto takes candidates above 12,000 images (exact assignment, full batch)."""
    candidates: int = 64
    """Pairs that the search proposes for each image and each code, twice."""
    memory: int = 256
    """MiB that the cost matrix may use for its temporaries."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 0, "every", "snap", "penalty")
        at_least(self, 1, "memory", "refresh_best", "refresh_every", "candidates")
        at_least(self, 0, "refresh_gap")
        if not 0 < self.momentum <= 1:
            raise InputError(f"momentum must be in (0, 1], got {self.momentum}: 0 would never learn")
        if self.pairs == "candidates" and self.assignment != "exact":
            raise InputError(
                f"candidates are assigned exactly, got assignment {self.assignment!r}: use exact, or pairs all"
            )

    def by_candidates(self, n: int) -> bool:
        """Whether n images are assigned along candidates in place of all pairs."""
        return self.pairs == "candidates" or (self.pairs == "auto" and self.assignment == "exact" and n > MANY)


@dataclass(frozen=True)
class DataSettings:
    """What is read from disk, and how it is brought to one shape."""

    limit: int | None = None
    """Read at most so many samples (of each part, where the data come in parts): a seeded, class-balanced draw."""
    image_size: int | None = None
    """Centre-crop and resize to so many pixels a side, antialiased; 0 leaves images as they are, which is also the
    default but for celeba, afhq and oasis (64)."""
    channels: Literal["auto", "grey", "colour"] = "auto"
    """Channels of images; auto keeps one where all images are grey, even if they were saved as colour."""
    skip_bad: bool = False
    """Go on without files that can't be read; the run lists them."""
    split: str | None = None
    """A file of split indices, such as the split.json of another run; `limit` and `test_share` then do not count."""
    test_share: float = 0.1
    """Share that is left for the test part where the data have none of their own."""
    group: Literal["auto", "near-duplicates", "none"] = "auto"
    """What is never split between parts: auto is all samples of a subject, where subjects are known."""
    axis: int | None = None
    """NIfTI: read the slices along this axis (0, 1 or 2) as images; by default whole volumes."""
    window: tuple[float, float] | None = None
    """NIfTI: intensities that become 0 and 1; by default each volume's 0.5 and 99.5 percentiles."""
    audio: Literal["log-mel", "waveform"] = "log-mel"
    """Audio: as a picture of the log-mel spectrum, or as the signal itself."""
    audio_seconds: float = 1.0
    """Audio: length that clips are cut or padded to, from the middle."""
    audio_rate: int | None = None
    """Audio: samples a second, by resampling; by default the files' own."""
    cache: bool = True
    """Keep what was decoded in the user's cache folder, or in the one that NEUROSQL_CACHE names."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 1, "limit", "audio_rate")
        at_least(self, 0, "image_size")
        if self.image_size is not None and self.image_size > 4096:
            raise InputError(f"image_size must be at most 4096, got {self.image_size}")
        if not 0 <= self.test_share < 1:
            raise InputError(f"test_share must be in [0, 1), got {self.test_share}")
        if self.axis not in (None, 0, 1, 2):
            raise InputError(f"axis must be 0, 1 or 2, got {self.axis}")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise InputError(f"window must be two rising numbers, got {self.window[0]} and {self.window[1]}")
        if not 0 < self.audio_seconds <= 600:
            raise InputError(f"audio_seconds must be in (0, 600], got {self.audio_seconds}")

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> DataSettings:
        """Settings from what `dataclasses.asdict` gave, by way of JSON."""
        window = record.get("window")
        return cls(**record | {"window": None if window is None else tuple(window)})


@dataclass(frozen=True)
class TrainingSettings:
    """The budget and the optimiser: the same for every method."""

    epochs: int = 60
    """Passes over the training images."""
    steps: int | None = None
    """Most steps, whatever `epochs` says."""
    seconds: float | None = None
    """Most seconds of training, whatever `epochs` says; the schedule then follows the clock if that is ahead."""
    batch_size: int = 64
    """Images a step."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """Optimiser."""
    learning_rate: float = 2e-3
    """Learning rate at the start of the schedule."""
    beta1: float = 0.9
    """Decay rate of the mean of gradients (Adam, AdamW), or the momentum (SGD)."""
    beta2: float = 0.999
    """Decay rate of the mean of squared gradients (Adam, AdamW)."""
    schedule: Literal["cosine", "restarts", "constant"] = "cosine"
    """Learning rate over the run: one cosine, cosine with warm restarts, or constant."""
    cycle: int = 10
    """Epochs of the first warm-restart cycle; each next one is twice as long."""
    weight_decay: float = 1e-4
    """Decoupled weight decay (AdamW), or the L2 coefficient (Adam, SGD)."""
    clip: float = 1.0
    """Largest gradient norm; 0 does not clip."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights, used for validation and the final model; 0 is off."""
    holdout: float = 0.1
    """Share of the images that is held out for validation where the data have no such part of their own."""
    patience: int = 30
    """Stop when the held-out loss has not improved for so many epochs, and keep the best model; 0 is off."""
    validate_every: int = 5
    """Epochs between two looks at the held-out loss."""
    validate_on: int = 256
    """Most held-out images that a look uses."""
    checkpoint_every: int = 10
    """Epochs between two checkpoints (one is also written when a run is stopped)."""
    seed: int = 0
    """Seed of the lattice, the initial weights, the split and the order of the images."""
    device: str = "cpu"
    """Torch device: cpu, cuda, cuda:1, mps."""

    def check(self) -> None:
        check_choices(self)
        at_least(self, 1, "epochs", "steps", "batch_size", "cycle", "validate_every", "validate_on")
        at_least(self, 1, "checkpoint_every")
        at_least(self, 0, "weight_decay", "clip", "patience", "seed")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be positive, got {self.seconds}")
        for name in ("ema", "holdout", "beta1", "beta2"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise InputError(f"{name} must be in [0, 1), got {value}")


@dataclass(frozen=True)
class Settings:
    """All settings of a run: a method, its own choices, and what it shares with all others."""

    method: str = "neurosql"
    generator: GeneratorSettings = dataclasses.field(default_factory=GeneratorSettings)
    latent: LatentSettings = dataclasses.field(default_factory=LatentSettings)
    own: Any = None
    """The method's own settings, of the class that `own_settings` gives; None takes the defaults."""
    training: TrainingSettings = dataclasses.field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        kind = own_settings(self.method)
        if self.own is None:
            object.__setattr__(self, "own", kind())
        if not isinstance(self.own, kind):
            raise InputError(f"the settings of {self.method} are {kind.__name__}, got {type(self.own).__name__}")
        for section in SECTIONS:
            getattr(self, section).check()

    @property
    def quantile(self) -> QuantileSettings:
        """The own settings of quantile assignment."""
        assert isinstance(self.own, QuantileSettings)
        return self.own

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> Settings:
        """Settings from one dictionary of field names, whichever section they belong to, and the method's name."""
        rest = dict(values)
        method = rest.pop("method", cls.method)
        sections: dict[str, Any] = {}
        for section, kind in section_classes(method).items():
            names = {f.name for f in dataclasses.fields(kind)} & rest.keys()
            sections[section] = kind(**{name: rest.pop(name) for name in names})
        if rest:
            raise InputError(f"unknown setting(s) of {method}: {', '.join(sorted(rest))}")
        return cls(method, **sections)

    @classmethod
    def from_sections(cls, method: str, sections: dict[str, dict[str, Any]]) -> Settings:
        """Settings from what `sections` gave."""
        return cls(method, **{name: kind(**sections[name]) for name, kind in section_classes(method).items()})

    def sections(self) -> dict[str, dict[str, Any]]:
        """All settings but the method's name, section by section."""
        return {section: dataclasses.asdict(getattr(self, section)) for section in SECTIONS}

    def flat(self) -> dict[str, Any]:
        """All settings as one dictionary of field names, and the method's name."""
        return {"method": self.method} | {k: v for fields in self.sections().values() for k, v in fields.items()}

    def resolve(self, kind: str) -> Settings:
        """Replace `auto` by what fits the kind of data: image, signal, volume or vector."""
        generator = self.generator.generator
        if generator == "auto":
            generator = "convnet" if kind == "image" else "mlp"
        elif generator != "mlp" and kind != "image":
            raise InputError(f"generator {generator!r} makes images, the data are {kind}s: use mlp")
        cost = self.latent.cost
        if cost == "auto":
            cost = "l2" if kind == "vector" else "ssim+l1"
        elif kind == "vector" and cost.startswith("ssim"):
            raise InputError(f"cost {cost!r} needs images, the data are vectors: use l1 or l2")
        return dataclasses.replace(
            self,
            generator=dataclasses.replace(self.generator, generator=generator),
            latent=dataclasses.replace(self.latent, cost=cost),
        )


SECTIONS = ("generator", "latent", "own", "training")


def own_settings(method: str) -> Any:
    """The class of a method's own settings."""
    from neurosql.methods.options import OPTIONS

    if method not in OPTIONS:
        raise InputError(f"method must be one of {', '.join(OPTIONS)}, got {method!r}")
    return OPTIONS[method]


def section_classes(method: str) -> dict[str, Any]:
    """The class of each section, for a method."""
    return dict(zip(SECTIONS, (GeneratorSettings, LatentSettings, own_settings(method), TrainingSettings)))


def at_least(settings: Any, least: int, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise InputError(f"{name} must be at least {least}, got {value}")


def check_choices(settings: Any) -> None:
    """Literal fields hold one of their choices: a dataclass does not check that itself."""
    for name, hint in get_type_hints(type(settings)).items():
        choices = [choice for choice in _leaves(hint) if isinstance(choice, str)]
        value = getattr(settings, name)
        if choices and value is not None and value not in choices:
            raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _leaves(hint: Any) -> list[Any]:
    arguments = get_args(hint)
    return [leaf for part in arguments for leaf in _leaves(part)] if arguments else [hint]
