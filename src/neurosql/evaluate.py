"""All scores of a run: the paper's, the ones that a reviewer asks for, memorisation, and the codes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from neurosql.data import ImageSet
from neurosql.errors import InputError
from neurosql.metrics.context import Context
from neurosql.metrics.memorisation import Memorisation
from neurosql.metrics.records import FAMILIES, RESOURCE, SCORES, ScoreRecord, record_of
from neurosql.metrics.score import Score
from neurosql.registry import imported
from neurosql.run import Run

SAMPLES = 2048
PAIRS = 50
SYNTHETIC = 10_000
CLASSIFIER_STEPS = 1200


@dataclass(frozen=True)
class Options:
    """What to evaluate, and how much of it."""

    samples: int = SAMPLES
    """New samples to draw, and at most as many real images to compare them with."""
    pairs: int = PAIRS
    """Pairs for SSIM and LPIPS."""
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
    """Steps of the downstream classifier, and of the one that it is compared with."""


@dataclass
class Evaluation:
    """The scores of a run and what they rest on."""

    scores: list[Score] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What could not be computed, and why: one sentence each."""
    memorisation: Memorisation | None = None
    samples: np.ndarray | None = None

    def find(self, name: str, mode: str | None = None, of: str | None = None) -> Score:
        """The score of a name and, if there are several, of a mode and of features."""
        found = [s for s in self.scores if s.name == name and mode in (None, s.mode) and of in (None, s.features)]
        if len(found) != 1:
            raise InputError(f"{len(found)} scores are called {name!r}: {', '.join(s.key for s in self.scores)}")
        return found[0]


def evaluate(
    run: Run, train: ImageSet, heldout: ImageSet | None, options: Options | None = None, progress: bool = False
) -> Evaluation:
    """Score a run on its training images, in their order, and on images that it was not trained on.

    The families of `metrics.records.FAMILIES` come one after another, each with the scores that are registered.
    """
    options = options or Options()
    if options.samples < 10 or options.pairs < 2:
        raise InputError(f"at least 10 samples and 2 pairs are needed, got {options.samples} and {options.pairs}")
    result = Evaluation()
    context = Context(run, train, heldout, options, result)
    records = [record for record in _records(context) if context.applies(record)]
    if context.unseen is None:
        context.leave_out(
            "scores of samples need at least 20 real images that were not trained on: hold some out, or give --against"
        )
    bar = tqdm(FAMILIES.items(), desc="evaluating", unit="family", disable=None if progress else True, leave=False)
    result.samples = context.samples
    for family, measure in bar:
        bar.set_postfix_str(family)
        imported(measure)(context, [record for record in records if record.family == family])
    return result


def _records(context: Context) -> list[ScoreRecord]:
    """Every score that can be loaded; another package's that can't is left out, and said."""
    found = []
    for name in SCORES:
        try:
            found.append(record_of(name))
        except InputError as error:
            context.leave_out(str(error))
    return [record for record in found if record.family != RESOURCE]
