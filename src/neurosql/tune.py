"""The arguments of `neurosql tune`; what it does is in app/tuning.py. Nothing here imports torch or Optuna."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any

import tyro

from neurosql.flags import data_settings
from neurosql.presets import Budget, Preset
from neurosql.settings import METHODS, GeneratorSettings, LatentSettings, Settings, TrainingSettings


@dataclass(frozen=True)
class Tune:
    """Search for the best settings of a method; print the command that trains."""

    data: tyro.conf.Positional[str]
    """Data, in any form that `train` takes."""
    search: tyro.conf.Positional[tuple[str, ...]] = ()
    """Settings to search, such as momentum, fresh=0:2, code-rate=1e-3:0.3:log or every=1,2,4; without a range, that of
    the method is used. By default the learning rate and the method's own settings."""
    out: str | None = None
    """Folder of the search; by default runs/tune-DATA-METHOD. The same command continues the search in it, and may run
    several times at once."""
    trials: int = 50
    """Number of trials, including those that the folder holds already."""
    seconds: float | None = None
    """Start no trial after this many seconds."""
    jobs: int = 1
    """Number of trials at once, each in its own process."""
    metric: str = "heldout_loss"
    """What to optimise: heldout_loss, or a score of `evaluate` in quotes, such as "kid pixels sampled" or "frechet
    classifier sampled", on the validation part."""
    prune: bool | None = None
    """Stop a trial if its held-out loss is worse than the median of earlier trials at the same epoch; by default only
    if that loss is what is optimised."""
    samples: int = 1024
    """Samples that a score is computed from."""
    search_seed: int = 0
    """Seed of the search. All trials have the same --seed, and so the same split."""
    method: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(METHODS) + "}")] = "neurosql"
    """Learning principle; `--method NAME --help` shows the method's own settings."""
    preset: Preset = "recommended"
    """Settings that are not searched: those of this preset of the method."""
    budget: Budget = "laptop"
    """Epochs and batch size: smoke (seconds), laptop (minutes on two cores) or paper."""
    generator: GeneratorSettings = field(default_factory=GeneratorSettings)
    backbone: Any = None
    latent: LatentSettings = field(default_factory=LatentSettings)
    own: Any = None
    training: TrainingSettings = field(default_factory=TrainingSettings)
    reading: Any = None

    def __call__(self) -> None:
        from neurosql import commands

        settings = Settings(self.method, self.generator, self.backbone, self.latent, self.own, self.training)
        how = {"trials": self.trials, "seconds": self.seconds, "jobs": self.jobs, "metric": self.metric}
        how |= {"prune": self.prune, "samples": self.samples, "seed": self.search_seed}
        commands.tune(self.data, settings, self.search, self.out, data_settings(self.reading), **how)


def untimed(kind: type[Any]) -> type[Any]:
    """`TrainingSettings` without a flag for seconds: a search has its own, and no run may depend on a clock."""
    hidden: Any = tyro.conf.Suppress
    fixed: Any = tyro.conf.Fixed
    seconds = ("seconds", hidden[fixed[float | None]], field(default=None))
    made = make_dataclass(kind.__name__, [seconds], bases=(kind,), frozen=True)
    made.__doc__ = kind.__doc__
    return made
