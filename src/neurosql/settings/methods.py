"""The methods by name: what each is, what it has, its own settings and its presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from neurosql.errors import InputError
from neurosql.registry import Registry
from neurosql.settings import samplers
from neurosql.settings.checks import at_least, check_choices
from neurosql.settings.samplers import OF_CODES, SamplerRecord, Sampling
from neurosql.settings.sections import AUTO

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
    paper: Mapping[str, Any] = field(default_factory=dict)
    """The preset `paper`, without the optimiser, which is the same for all methods in the paper."""
    purposes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Presets for one purpose each, by name, as changes to `recommended`."""
    latent: bool = True
    """Whether it has a latent dimension."""
    codes: bool = True
    """Whether samples have codes: it can encode, decode and reconstruct."""
    samplers: tuple[SamplerRecord, ...] = OF_CODES
    """The ways to draw from a trained model; the first is the usual one."""

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
        usual: dict[str, Any] = {k: getattr(sampler, k) if value is None else value for k, value in given.items()}
        return sampler, Sampling(sampler.name, **usual)

    def preset(self, name: str) -> Mapping[str, Any]:
        """The settings of a preset, by field name."""
        own = {name: {**self.recommended, **changes} for name, changes in self.purposes.items()}
        presets = {RECOMMENDED: self.recommended, PAPER: self.paper, **own}
        if name not in presets:
            raise InputError(f"the presets of {self.name} are {', '.join(presets)}, got {name!r}")
        return presets[name]


# A cost matrix of this many images takes 0.6 GB.
MANY = 12_000


@dataclass(frozen=True)
class QuantileSettings:
    """Quantile assignment: how codes are assigned."""

    start: Literal["pca", "random"] = "pca"
    """First permutation: optimal match of rank-normalised PCA scores to the lattice, or random."""
    algorithm: Literal["full", "mini-batch"] = "full"
    """Assign all images at once every few epochs (Algorithm 1) or each mini-batch after its step (Algorithm 2)."""
    subset: Literal["owned", "partition", "random"] = "owned"
    """Mini-batch only: which lattice points are offered to a batch. owned: those that its images hold; partition: one
    part of the lattice, which is split anew each epoch; random: a random draw, as in the paper (not a permutation)."""
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
    strategy: Literal["auto", "dense", "candidates"] = "auto"
    """Full batch only: which costs an assignment computes. dense: all of them; candidates: those that a cheap search
    proposes, which is nearly as good and takes far less time and memory; auto: candidates above 12,000 images if the
    assignment is exact, otherwise dense."""
    candidates: int = 64
    """Candidates only: costs that each search (there are usually two) proposes per image and per code."""
    memory: int = 256
    """MiB that the cost matrix may use for its temporaries."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 0, "every", "snap", "penalty", "exchange", "code_rate", "shared_rate", "fresh")
        at_least(self, 0, "components", "final_components")
        at_least(self, 1, "memory", "candidates", "fresh_every")
        at_least(self, 2, "fresh_batch")
        if not 0 < self.momentum <= 1:
            raise InputError(f"momentum must be in (0, 1], got {self.momentum}: 0 would never learn")
        if not 0 < self.apart <= 1:
            raise InputError(f"apart must be in (0, 1], got {self.apart}")
        if self.match == "codes" and not self.moves:
            raise InputError("match codes needs codes that move: give code_rate, 0.15 say")
        if self.law == "learnt" and (self.components == 1 or not self.moves):
            raise InputError("law learnt needs components and codes that move: give components and shared_rate")
        if self.law == "learnt" and self.algorithm != "full":
            raise InputError("law learnt needs algorithm full: with mini-batches there is no moment to learn it")
        if self.strategy == "candidates" and self.assignment != "exact":
            raise InputError(
                f"strategy candidates needs assignment exact, got {self.assignment!r}: use exact, or strategy dense"
            )

    @property
    def moves(self) -> bool:
        """Whether codes move by gradient."""
        return bool(self.code_rate or self.shared_rate)

    def strategy_for(self, n: int) -> str:
        """How n images are assigned: dense or candidates."""
        if self.strategy != "auto":
            return self.strategy
        return "candidates" if self.assignment == "exact" and n > MANY else "dense"


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


NEUROSQL = MethodRecord(
    "neurosql",
    "quantile assignment",
    "neurosql.methods.neurosql:QuantileAssignment",
    QuantileSettings,
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
    },
)
VAE = MethodRecord(
    "vae",
    "variational autoencoder",
    "neurosql.methods.vae:VAE",
    VAESettings,
    paper={"encoder": "mlp", "beta": 0.005},
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
)
IMLE = MethodRecord(
    "imle",
    "implicit maximum likelihood, each image takes the nearest of many samples",
    "neurosql.methods.imle:IMLE",
    IMLESettings,
)
RS_IMLE = MethodRecord(
    "rs-imle",
    "implicit maximum likelihood with rejection sampling",
    "neurosql.methods.imle:RSIMLE",
    RSIMLESettings,
)
GLO = MethodRecord(
    "glo",
    "generative latent optimisation",
    "neurosql.methods.glo:GLO",
    GLOSettings,
    samplers=(samplers.GAUSSIAN, samplers.MIXTURE, *samplers.AROUND_CODES),
)
RAE = MethodRecord(
    "rae",
    "regularised autoencoder with a Gaussian mixture",
    "neurosql.methods.rae:RAE",
    RAESettings,
    paper={"encoder": "mlp"},
    samplers=(samplers.MIXTURE, samplers.GAUSSIAN, *samplers.AROUND_CODES),
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
