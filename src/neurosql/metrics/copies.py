"""The scores of copies: how many samples, and reconstructions, are suspiciously close to a training image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from neurosql.errors import InputError
from neurosql.metrics import memorisation as judge
from neurosql.metrics.context import Context
from neurosql.metrics.measure import Measure
from neurosql.metrics.memorisation import EXPECTED, Memorisation, Verdict, memorisation
from neurosql.metrics.moved import LOOSE, moved_memorisation
from neurosql.metrics.records import CLOSE, MOVED
from neurosql.metrics.score import Score

RECONSTRUCTED = 500
"""Judge at most this many reconstructions."""
SEVERITY = get_args(Verdict)
"""The verdicts, the best first."""
SECOND = "a second look: the interval is a 99 % one"
GIVEN_AWAY = "reconstructions: what the codes give away"


def suspiciously_close(context: Context) -> dict[str, Any]:
    """The share of samples, and of reconstructions if there are codes, below the threshold of `memorisation`.

    Samples that are images are compared a second time, as moved.py does it; the worse verdict counts.
    """
    if context.unseen is None:
        return {}
    found = _judged(context, context.samples)
    shares = {"sampled": _share(found, f"{found.verdict}: {found.reason}")}
    if context.run.has_codes:
        some = np.random.default_rng(context.options.seed).permutation(len(context.train))[:RECONSTRUCTED]
        again = _judged(context, context.reconstructions[some])
        shares["paired-train"] = _share(again, GIVEN_AWAY)
    context.result.memorisation = found
    if not context.applies(MOVED):
        return {CLOSE.name: shares}
    assert context.heldout is not None
    moved = moved_memorisation(context.samples, context.train.x, context.heldout.x, context.train.subjects)
    if _severity(moved.verdict) > _severity(found.verdict):
        context.result.memorisation = moved
    return {CLOSE.name: shares, MOVED.name: _share(moved, f"{moved.verdict}: {moved.reason} ({SECOND})")}


def decisive(scores: Sequence[Score]) -> tuple[Score, tuple[float, float], judge.Look] | None:
    """The score of copies with the worst verdict, its interval, and how copies were looked for; None without."""
    known = {CLOSE.name: judge.PLAIN, MOVED.name: LOOSE}
    there = [
        (score, score.interval, known[score.name])
        for score in scores
        if score.name in known and score.mode == "sampled" and score.interval is not None
    ]
    return max(there, key=lambda of: _severity(verdict_of(of[0])[0])) if there else None


def _severity(verdict: str) -> int:
    return SEVERITY.index(verdict) if verdict in SEVERITY else -1


def verdict_of(score: Score) -> tuple[str, str]:
    """The verdict in the note of a score of copies, and its reason."""
    verdict, _, why = score.note.removesuffix(f" ({SECOND})").partition(": ")
    return verdict, why


def as_judged_today(score: Score) -> Score:
    """A score with the interval and the verdict that its figures stand for; only an old score of copies changes.

    Old scores have an interval that is too narrow, and a verdict by another bound. How alike the samples were is not
    known of them: they count as independent.
    """
    if score.name != CLOSE.name:
        return score
    if not 0 <= score.value <= 1:
        raise InputError(f"the share of samples that are {score.name} must be in [0, 1], got {score.value}")
    interval = judge.share_interval(score.value, score.n, score.n_real)
    note = score.note
    if note not in get_args(Verdict):
        if score.interval is not None:
            # Samples that are alike have made it wider.
            interval = min(score.interval[0], interval[0]), max(score.interval[1], interval[1])
    else:
        # Nothing that was clear has become less clear, so only copies beyond doubt can have made it so.
        copies = None if note == "clear" else 0
        note = f"{judge.verdict(interval, copies is None)}: {judge.reason(interval, copies)}"
    return replace(score, interval=interval, note=note)


def _judged(context: Context, images: np.ndarray) -> Memorisation:
    assert context.heldout is not None
    return memorisation(context.cost, images, context.train.x, context.heldout.x, context.train.subjects)


def _share(found: Memorisation, note: str) -> Measure:
    return Measure(found.share, found.interval, floor=EXPECTED, n=len(found.distances), n_real=found.heldout, note=note)
