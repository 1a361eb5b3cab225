"""How new samples are drawn from a trained model: chosen when sampling, not when training.

A method's record lists the samplers that it offers, its usual one first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SamplerRecord:
    """One way to draw samples, and how much of it unless the user says."""

    name: str
    title: str
    """What it does, in a few words."""
    steps: int | None = None
    """Steps from noise to a sample; None where it has no such number."""
    components: int | None = None
    """Most components of a fitted mixture; None where it has no such number."""


@dataclass(frozen=True)
class Sampling:
    """A choice among a method's samplers; what is None is as usual."""

    sampler: str | None = None
    """Name of the sampler, by default the method's usual one."""
    steps: int | None = None
    """Steps from noise to a sample (diffusion and flows)."""
    components: int | None = None
    """Most components of a fitted Gaussian mixture."""


PRIOR = SamplerRecord("prior", "codes drawn from the prior")
GAUSSIAN = SamplerRecord("gaussian", "codes drawn from a Gaussian fitted to the training codes")
MIXTURE = SamplerRecord("mixture", "codes drawn from a Gaussian mixture fitted to the training codes", components=10)
DDIM = SamplerRecord("ddim", "a few steps back from noise, nothing drawn on the way", steps=100)
ANCESTRAL = SamplerRecord("ancestral", "every step back from noise, each drawn")
MIDPOINT = SamplerRecord("midpoint", "the flow by the midpoint rule, two evaluations per step", steps=50)
HEUN = SamplerRecord("heun", "the flow by Heun's rule, two evaluations per step", steps=50)
EULER = SamplerRecord("euler", "the flow by Euler's rule, one evaluation per step", steps=50)
OF_CODES = (PRIOR, GAUSSIAN, MIXTURE)
