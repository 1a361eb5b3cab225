"""All scores of a run: the paper's, those that reviewers ask for, memorisation, and the codes."""

from __future__ import annotations

import math

from tqdm import tqdm

from neurosql import memory
from neurosql.data import ImageSet
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.metrics.context import Context
from neurosql.metrics.evaluation import PAIRS, Evaluation, Options
from neurosql.metrics.records import FAMILIES, RESOURCE, SCORES, ScoreRecord, record_of
from neurosql.registry import imported

__all__ = ["PAIRS", "Evaluation", "Options", "evaluate"]


def evaluate(
    run: Run,
    train: ImageSet,
    heldout: ImageSet | None,
    options: Options | None = None,
    progress: bool = False,
    only: str | None = None,
) -> Evaluation:
    """Score a run on its training images, in their order, and on images that it was not trained on.

    The families of `metrics.records.FAMILIES` are computed one after another, each with its registered scores. `only`
    names one score, if no other is wanted.
    """
    options = options or Options()
    if options.samples < 10 or options.image_pairs < 2:
        raise InputError(f"at least 10 samples and 2 pairs are needed, got {options.samples} and {options.image_pairs}")
    memory.require(_needed(train, options), "the evaluation", "use fewer samples, or a run on fewer images")
    result = Evaluation()
    context = Context(run, train, heldout, options, result)
    records = [record for record in _records(context) if context.applies(record) and only in (None, record.name)]
    if context.unseen is None:
        context.leave_out(
            "scores of samples need at least 20 real images that were not trained on: hold some out, or give --against"
        )
    bar = tqdm(FAMILIES.items(), desc="evaluating", unit="family", disable=None if progress else True, leave=False)
    result.samples = context.samples
    for family, measure in bar:
        bar.set_postfix_str(family)
        if some := [record for record in records if record.family == family]:
            imported(measure)(context, some)
    return result


def _needed(train: ImageSet, options: Options) -> int:
    """Bytes: reconstructions, samples and their copies, and distances of a thousand images to all others at a time."""
    pixels, drawn = math.prod(train.shape), max(options.samples, options.synthetic if options.downstream else 0)
    return 4 * pixels * (3 * len(train) + 4 * drawn) + 3 * 8 * 1024 * max(len(train), drawn)


def _records(context: Context) -> list[ScoreRecord]:
    """Every score that can be loaded; one of another package that can't is noted as left out."""
    found = []
    for name in SCORES:
        try:
            found.append(record_of(name))
        except InputError as error:
            context.leave_out(str(error))
    return [record for record in found if record.family != RESOURCE]
