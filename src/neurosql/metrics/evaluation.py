"""The options of an evaluation, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from neurosql.errors import InputError, seed
from neurosql.metrics.memorisation import Memorisation
from neurosql.metrics.score import Score
from neurosql.settings import Sampling

SAMPLES = 2048
PAIRS = 50
SYNTHETIC = 10_000
CLASSIFIER_STEPS = 1200


@dataclass(frozen=True)
class Options:
    """What to evaluate, and how much of it."""

    samples: int = SAMPLES
    """New samples to draw, and at most as many real images to compare them with."""
    image_pairs: int = PAIRS
    """Pairs of images that SSIM and LPIPS are averaged over."""
    seed: int = 0
    """Seed of the draws."""
    downstream: bool = False
    """Train a classifier on synthetic images and test it on real ones (needs labels)."""
    vgg: bool = False
    """Also compare whole sets by VGG features (slow; needs the LPIPS weights)."""
    inception: str | None = None
    """Also compare whole sets by Inception-v3 features, from this .safetensors file: their Frechet distance is FID."""
    synthetic: int = SYNTHETIC
    """Images that the downstream classifier learns from."""
    classifier_steps: int = CLASSIFIER_STEPS
    """Training steps of the downstream classifier, and of the one that it is compared with."""
    sampling: Sampling = field(default_factory=Sampling)
    """How samples are drawn."""

    def __post_init__(self) -> None:
        seed("seed", self.seed)


@dataclass
class Evaluation:
    """The scores of a run, and what they are based on."""

    scores: list[Score] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What could not be computed, and why: one sentence each."""
    memorisation: Memorisation | None = None
    samples: np.ndarray | None = None

    def find(self, name: str, mode: str | None = None, of: str | None = None) -> Score:
        """The score of that name; if there are several, give the mode and the features too."""
        found = [s for s in self.scores if s.name == name and mode in (None, s.mode) and of in (None, s.features)]
        if len(found) != 1:
            raise InputError(f"{len(found)} scores are called {name!r}: {', '.join(s.key for s in self.scores)}")
        return found[0]
