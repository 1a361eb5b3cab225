"""How new samples are drawn from a trained model: chosen when sampling, not when training.

A method's record lists the samplers that it offers, its usual one first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SamplerRecord:
    """One way to draw samples, with its default numbers."""

    name: str
    title: str
    """What it does, in a few words."""
    steps: int | None = None
    """Steps from noise to a sample; None if it takes none."""
    components: int | None = None
    """Largest number of components of a fitted mixture; None if it fits none."""
    fraction: float | None = None
    """A number in [0, 1] that trades variety for quality; None if it has none."""


@dataclass(frozen=True)
class Sampling:
    """A choice among a method's samplers; None takes the default."""

    sampler: str | None = None
    """Name of the sampler, by default the method's usual one."""
    steps: int | None = None
    """Steps from noise to a sample (diffusion and flows)."""
    components: int | None = None
    """Largest number of components of a fitted Gaussian mixture."""
    fraction: float | None = None
    """near: how far to go from the nearest training code towards the draw; truncated: share of the draws to keep, those
    nearest to training codes; local: how far to move a training code. In all three, less means better samples, less
    variety and more copies. apart: share of the draws to keep, those that are least like copies."""


PRIOR = SamplerRecord("prior", "codes drawn from the prior")
GAUSSIAN = SamplerRecord("gaussian", "codes drawn from a Gaussian fitted to the training codes")
MIXTURE = SamplerRecord("mixture", "codes drawn from a Gaussian mixture fitted to the training codes", components=10)
NEAR = SamplerRecord("near", "draws from the prior, moved towards the nearest training code", fraction=0.5)
TRUNCATED = SamplerRecord("truncated", "the draws from the prior that are nearest to training codes", fraction=0.7)
BETWEEN = SamplerRecord("between", "points between neighbouring training codes")
LOCAL = SamplerRecord("local", "training codes, moved as their neighbours differ from each other", fraction=1.0)
APART = SamplerRecord("apart", "draws whose image is no near copy of one training image", fraction=0.9)
DDIM = SamplerRecord("ddim", "a few steps back from noise, nothing drawn on the way", steps=100)
ANCESTRAL = SamplerRecord("ancestral", "every step back from noise, each drawn")
MIDPOINT = SamplerRecord("midpoint", "the flow by the midpoint rule, two evaluations per step", steps=50)
HEUN = SamplerRecord("heun", "the flow by Heun's rule, two evaluations per step", steps=50)
EULER = SamplerRecord("euler", "the flow by Euler's rule, one evaluation per step", steps=50)
AROUND_CODES = (APART, NEAR, TRUNCATED, BETWEEN, LOCAL)
"""Changes to a method's usual draws that need to know its codes."""
OF_CODES = (PRIOR, *AROUND_CODES, GAUSSIAN, MIXTURE)
