"""The methods by name: what each is, what it has, its own settings and its presets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from neurosql.errors import InputError
from neurosql.registry import Registry
from neurosql.settings import samplers
from neurosql.settings.checks import MOST_COMPONENTS, MOST_STEPS, at_least, at_most, check_choices
from neurosql.settings.quantile import QuantileSettings
from neurosql.settings.ranges import Choices, Range, Span
from neurosql.settings.samplers import OF_CODES, SamplerRecord, Sampling
from neurosql.settings.sections import AUTO, GeneratorSettings, LatentSettings

RECOMMENDED, PAPER = "recommended", "paper"


@dataclass(frozen=True)
class MethodRecord:
    """A learning principle: everything that is known about it without importing torch."""

    name: str
    title: str
    """What it is, in a few words."""
    implementation: str
    """Its class, a `Method`, as `module:name`."""
    settings: type[Any]
    """Its own settings: a frozen dataclass with a docstring per field and a `check`."""
    recommended: Mapping[str, Any] = field(default_factory=dict)
    """The preset `recommended`, as practitioners use it: settings by field name, the method's own or shared ones."""
    recommends: Callable[[Mapping[str, Any]], str] | None = None
    """Which preset for one purpose `recommended` stands for, by the settings that the caller has chosen."""
    paper: Mapping[str, Any] = field(default_factory=dict)
    """The preset `paper`, without the optimiser, which is the same for all methods in the paper."""
    purposes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Presets for one purpose each, by name, as changes to the field `recommended`."""
    latent: bool = True
    """Whether it has a latent dimension."""
    codes: bool = True
    """Whether samples have codes: it can encode, decode and reconstruct."""
    samplers: tuple[SamplerRecord, ...] = OF_CODES
    """The ways to draw from a trained model; the first is the usual one."""
    search: Mapping[str, Range] = field(default_factory=dict)
    """What `neurosql tune` tries, unless it is told what to search: ranges of settings, by field name."""

    def sampling(self, chosen: Sampling) -> tuple[SamplerRecord, Sampling]:
        """The chosen sampler, and the choice with that sampler's usual numbers where none were given."""
        named = {sampler.name: sampler for sampler in self.samplers}
        sampler = self.samplers[0] if chosen.sampler is None else named.get(chosen.sampler)
        if sampler is None:
            raise InputError(f"the samplers of {self.name} are {', '.join(named)}, got {chosen.sampler!r}")
        given = {"steps": chosen.steps, "components": chosen.components, "fraction": chosen.fraction}
        for name, value in given.items():
            if value is not None and getattr(sampler, name) is None:
                raise InputError(f"the sampler {sampler.name} of {self.name} has no {name}, got {value}")
            if value is not None and value < 1 and name != "fraction":
                raise InputError(f"{name} must be at least 1, got {value}")
        if chosen.fraction is not None and not 0 <= chosen.fraction <= 1:
            raise InputError(f"fraction must be in [0, 1], got {chosen.fraction}")
        at_most(chosen, MOST_STEPS, "steps")
        at_most(chosen, MOST_COMPONENTS, "components")
        usual: dict[str, Any] = {k: getattr(sampler, k) if value is None else value for k, value in given.items()}
        return sampler, Sampling(sampler.name, **usual)

    def preset(self, name: str, given: Mapping[str, Any] = MappingProxyType({})) -> Mapping[str, Any]:
        """The settings of a preset, by field name; `given` are those that the caller has chosen."""
        if name == RECOMMENDED and self.recommends is not None:
            name = self.recommends(given)
        if name not in self.presets():
            raise InputError(f"the presets of {self.name} are {', '.join(self.presets())}, got {name!r}")
        return self.paper if name == PAPER else {**self.recommended, **self.purposes.get(name, {})}

    def presets(self) -> tuple[str, ...]:
        """The names of its presets, the usual one first."""
        return (RECOMMENDED, PAPER, *self.purposes)


@dataclass(frozen=True)
class VAESettings:
    """Variational autoencoder."""

    encoder: Literal["mlp", "conv"] = "conv"
    """Encoder: an MLP on flat pixels (the paper's), or convolutions (images only; anything else gets the MLP)."""
    likelihood: Literal["cost", "gaussian"] = "cost"
    """Reconstruction term: the loss l, as in the paper, or a Gaussian log-likelihood, for the usual ELBO."""
    beta: float | None = None
    """Weight of the KL divergence in nats. Against the loss l, the default is 0.0015, or 0.012 / d in d < 8 dimensions
    (the paper has 0.005). Against the Gaussian log-likelihood in nats, the default is 1, the ELBO."""
    warmup: int = 0
    """Epochs over which the weight of the KL divergence rises from 0."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 0, "beta", "warmup")


@dataclass(frozen=True)
class GANSettings:
    """Generative adversarial network."""

    r1: float = 1.0
    """Weight of the R1 penalty, the squared gradient of the discriminator at real images; 0 leaves it out."""
    r1_every: int = 4
    """Steps between two R1 penalties, each weighted up accordingly."""
    augment: float = 0.0
    """Strength, from 0 (off) to 1, of the differentiable augmentation (brightness, saturation, contrast, translation,
    cutout) of all that the discriminator sees. Use it for long runs on few images, where the discriminator learns the
    images by heart: real_logit is then far above fake_logit. In short runs it only slows learning. Vectors stay as
    they are."""

    def check(self) -> None:
        """Refuse what can't be used."""
        at_least(self, 0, "r1")
        at_least(self, 1, "r1_every")
        if not 0 <= self.augment <= 1:
            raise InputError(f"augment must be in [0, 1], got {self.augment}")


@dataclass(frozen=True)
class DDPMSettings:
    """Denoising diffusion."""

    unet_width: int | None = None
    """Images only: base width of the denoising U-Net. By default its parameter count matches the generator's. Other
    data get an MLP, whose parameter count always matches."""
    noise_steps: int = 1000
    """T, the number of steps of the forward process."""
    noise_schedule: Literal["linear", "cosine"] = "linear"
    """Schedule of the noise: variances that grow linearly (the paper's), or a squared cosine for the data's share."""
    predict: Literal["noise", "v"] = "noise"
    """What the network predicts: the noise, or v = sqrt(a) noise - sqrt(1 - a) x, a the data's share."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "unet_width", "noise_steps")
        at_most(self, MOST_STEPS, "noise_steps")


@dataclass(frozen=True)
class IMLESettings:
    """Implicit maximum likelihood: each image takes the nearest of many samples."""

    pool: int = 4
    """Samples to choose from, per training image."""
    renew: int = 1
    """Epochs between two choices of samples."""
    jitter: float = 0.05
    """Standard deviation of the noise that is added to a chosen code at each step, in units of the prior's scale."""

    def check(self) -> None:
        """Refuse what can't be used."""
        at_least(self, 1, "pool", "renew")
        at_most(self, 1000, "pool")
        at_least(self, 0, "jitter")


@dataclass(frozen=True)
class RSIMLESettings(IMLESettings):
    """Rejection-sampling IMLE: samples that are already close to some image are not offered."""

    reject: float = 0.02
    """Share of the pool that is rejected: the samples nearest to any training image."""
    epsilon: float | None = None
    """Reject samples whose loss l to the nearest image is below this, instead of the share reject."""

    def check(self) -> None:
        """Refuse what can't be used."""
        super().check()
        at_least(self, 0, "epsilon")
        if not 0 <= self.reject < 1:
            raise InputError(f"reject must be in [0, 1), got {self.reject}")


@dataclass(frozen=True)
class GLOSettings:
    """Generative latent optimisation: codes learnt by gradient."""

    code_rate: float = 0.15
    """Learning rate of the codes (Adam) at the start of the run; it follows the schedule of the networks' rate."""
    radius: float = 1.0
    """Codes are projected to a ball whose radius is this times the square root of the latent dimension."""

    def check(self) -> None:
        """Refuse what can't be used."""
        if not (self.code_rate > 0 and self.radius > 0):
            raise InputError(f"code_rate and radius must be positive, got {self.code_rate} and {self.radius}")


@dataclass(frozen=True)
class RAESettings:
    """Regularised autoencoder with a density fitted after training."""

    encoder: Literal["mlp", "conv"] = "conv"
    """Encoder: an MLP on flat pixels, or convolutions (images only; anything else gets the MLP)."""
    code_penalty: float = 1e-4
    """Weight of half the mean squared norm of the codes."""
    weight_penalty: float = 1e-6
    """Weight of the sum of the generator's squared parameters."""
    components: int = 10
    """Largest number of components of the Gaussian mixture (per class, if class-conditional); few images get fewer."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 0, "code_penalty", "weight_penalty")
        at_least(self, 1, "components")
        at_most(self, MOST_COMPONENTS, "components")


@dataclass(frozen=True)
class CFMSettings:
    """Flow matching with mini-batch optimal transport."""

    unet_width: int | None = None
    """Images only: base width of the U-Net. By default its parameter count matches the generator's. Other data get an
    MLP, whose parameter count always matches."""
    coupling: Literal["optimal", "independent"] = "optimal"
    """How noise and images of a batch are paired: by the cheapest assignment, or as they come."""
    sigma: float = 0.0
    """Standard deviation of the path around the straight line."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "unet_width")
        at_least(self, 0, "sigma")


LARGEST_MAP = 3
"""The largest latent dimension that people look at as a map."""


def for_maps_or_samples(given: Mapping[str, Any]) -> str:
    """What `recommended` stands for: `map` in up to three dimensions, and `samples` in more, or if they are chosen.

    It is `plain` for priors without components, and `map` for mini-batches, which have no moment to learn a law.
    """
    if given.get("prior", LatentSettings.prior) != LatentSettings.prior:
        return "plain"
    dim = given.get("latent_dim", GeneratorSettings.latent_dim)
    few = isinstance(dim, int) and dim <= LARGEST_MAP
    return "map" if few or given.get("algorithm") == "mini-batch" else "samples"


NEUROSQL = MethodRecord(
    "neurosql",
    "quantile assignment",
    "neurosql.methods.neurosql:QuantileAssignment",
    QuantileSettings,
    recommends=for_maps_or_samples,
    paper={"every": 5, "momentum": 0.7, "anneal": False, "start": "random"},
    purposes={
        "plain": {},
        "map": {"mapping": 2, "components": 10, "fresh": 0.75},
        "samples": {
            **{"latent_dim": AUTO, "mapping": 2, "mapping_width": 256, "learning_rate": 3e-3},
            **{"components": 0, "law": "learnt", "shared_rate": 2e-3, "code_rate": 0.03},
            **{"final_components": 70, "momentum": 0.2, "anneal": False},
            **{"fresh": 1.5, "apart": 0.95},
        },
        "photographs": {
            **{"latent_dim": 64, "learning_rate": 1e-2, "patience": 0},
            **{"start": "scores", "components": 0, "law": "learnt", "shared_rate": 5e-4, "code_rate": 0.1},
            **{"final_components": 70, "momentum": 0.02, "anneal": False},
        },
    },
    search={"momentum": Span(0.02, 1, log=True), "every": Span(1, 8), "fresh": Span(0, 2)},
)
VAE = MethodRecord(
    "vae",
    "variational autoencoder",
    "neurosql.methods.vae:VAE",
    VAESettings,
    paper={"encoder": "mlp", "beta": 0.005},
    search={"beta": Span(1e-4, 0.1, log=True)},
)
GAN = MethodRecord(
    "gan",
    "generative adversarial network",
    "neurosql.methods.gan:GAN",
    GANSettings,
    recommended={"learning_rate": 1e-3, "beta1": 0.5, "beta2": 0.99, "weight_decay": 0.0, "ema": 0.995},
    paper={"r1": 0.0},
    codes=False,
    samplers=(samplers.PRIOR,),
    search={"r1": Span(0.01, 10, log=True), "augment": Span(0, 1)},
)
DDPM = MethodRecord(
    "ddpm",
    "denoising diffusion",
    "neurosql.methods.ddpm:DDPM",
    DDPMSettings,
    recommended={"noise_schedule": "cosine", "predict": "v", "ema": 0.995},
    paper={"unet_width": 32},
    latent=False,
    codes=False,
    samplers=(samplers.DDIM, samplers.ANCESTRAL),
    search={"noise_schedule": Choices(("linear", "cosine")), "predict": Choices(("noise", "v"))},
)
IMLE = MethodRecord(
    "imle",
    "implicit maximum likelihood, each image takes the nearest of many samples",
    "neurosql.methods.imle:IMLE",
    IMLESettings,
    search={"pool": Choices((2, 4, 8, 16)), "jitter": Span(0, 0.2)},
)
RS_IMLE = MethodRecord(
    "rs-imle",
    "implicit maximum likelihood with rejection sampling",
    "neurosql.methods.imle:RSIMLE",
    RSIMLESettings,
    search={"pool": Choices((2, 4, 8, 16)), "jitter": Span(0, 0.2), "reject": Span(0, 0.2)},
)
GLO = MethodRecord(
    "glo",
    "generative latent optimisation",
    "neurosql.methods.glo:GLO",
    GLOSettings,
    samplers=(samplers.GAUSSIAN, samplers.MIXTURE, *samplers.AROUND_CODES),
    search={"code_rate": Span(0.01, 0.5, log=True), "radius": Span(0.5, 2, log=True)},
)
RAE = MethodRecord(
    "rae",
    "regularised autoencoder with a Gaussian mixture",
    "neurosql.methods.rae:RAE",
    RAESettings,
    paper={"encoder": "mlp"},
    samplers=(samplers.MIXTURE, samplers.GAUSSIAN, *samplers.AROUND_CODES),
    search={"code_penalty": Span(1e-6, 1e-2, log=True), "weight_penalty": Span(1e-8, 1e-4, log=True)},
)
OT_CFM = MethodRecord(
    "ot-cfm",
    "flow matching with mini-batch optimal transport",
    "neurosql.methods.ot_cfm:OTCFM",
    CFMSettings,
    recommended={"ema": 0.995},
    paper={"unet_width": 32},
    latent=False,
    codes=False,
    samplers=(samplers.MIDPOINT, samplers.HEUN, samplers.EULER),
    search={"coupling": Choices(("optimal", "independent")), "sigma": Span(0, 0.2)},
)

BUILT_IN = {
    "neurosql": "NEUROSQL",
    "vae": "VAE",
    "gan": "GAN",
    "ddpm": "DDPM",
    "imle": "IMLE",
    "rs-imle": "RS_IMLE",
    "glo": "GLO",
    "rae": "RAE",
    "ot-cfm": "OT_CFM",
}
METHODS: Registry[MethodRecord] = Registry("method", MethodRecord, "neurosql.methods", BUILT_IN, home=__name__)
"""Every method by name. A record in a file of its own is listed in `BUILT_IN` as `module:RECORD`."""
