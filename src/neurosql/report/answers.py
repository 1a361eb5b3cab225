"""What a stranger asks about a run, answered in words: what it learned from, how good it is, what it gives away."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neurosql.fitted import Run
from neurosql.metrics import membership
from neurosql.metrics.copies import decisive, verdict_of
from neurosql.metrics.memorisation import follows, in_words, untold
from neurosql.metrics.score import Score
from neurosql.origin import Origin

MAIN = ("classifier", "random net")
"""Features that the page shows scores by: the first that there are."""
UNSEEN = "Hold images out when you train (--test-share 0.1), or give others: neurosql evaluate RUN --against DATA."
# How well a classifier may tell samples from real images, and what that means.
TOLD_APART = ((0.7, "Nearly: they are hard to tell apart"), (0.9, "Partly: they can be told apart"))
EASILY = "Not yet: they are easily told apart"
SEEN = "Can others tell which images it was trained on?"
VERDICTS = {"no sign": "No sign of that", "some": "There are some signs", "clear": "There are clear signs"}


@dataclass(frozen=True)
class Answer:
    """A question, and its answer."""

    question: str
    short: str
    """The answer in a few words; empty if it is not known."""
    rest: str = ""
    """The figures that it is based on."""
    command: str = ""
    """What to run to get the answer."""


def answers(run: Run, scores: Sequence[Score], folder: Path) -> list[Answer]:
    """The four answers. Before an evaluation, all but the first say what to run."""
    many, real = run.data.modality.plural, f"real {run.data.modality.plural}"
    questions = ("What did it learn from?", f"Are the samples like {real}?", "Are any of them copies?", SEEN)
    first = Answer(questions[0], *learned_from(run.data))
    if len(scores) < 2 and run.shared:
        return [first, *(Answer(question, "Not measured before the model was shared.") for question in questions[1:])]
    if len(scores) < 2:
        how = ("Not measured yet.", "To find out, run", f"neurosql evaluate {shlex.quote(folder.as_posix())}")
        return [first, *(Answer(question, *how) for question in questions[1:])]
    return [
        first,
        Answer(questions[1], *likeness(scores, many)),
        Answer(questions[2], *copying(scores, not run.shared)),
        *seen(scores),
    ]


def learned_from(data: Origin) -> tuple[str, str]:
    """How many samples of what kind, from where, and what became of the others."""
    where = "given in Python" if data.source == "array" else f"from {data.source}"
    classes = f" in {len(data.classes)} classes" if len(data.classes) > 1 else ""
    aside = []
    if data.heldout:
        aside.append(f"{data.heldout:,} others decided when training stopped")
    if data.test:
        aside.append(f"{data.test:,} {'more ' if aside else 'others '}were kept aside for the scores")
    rest = " and ".join(aside)
    return f"{data.trained:,} {kind_of(data)}{classes}, {where}.", f"{rest[:1].upper()}{rest[1:]}." if rest else ""


def kind_of(data: Origin) -> str:
    """The kind and size of samples, in words."""
    if data.modality.is_picture:
        colour = {1: "grey ", 3: "colour "}.get(data.shape[0], f"{data.shape[0]}-channel ")
        return f"{colour}images of {data.shape[2]} x {data.shape[1]} pixels"
    if not data.modality.bounded:
        return f"vectors of {data.shape[0]} numbers"
    return f"{data.modality.plural} of {' x '.join(map(str, data.shape[1:]))} values"


def main_features(scores: Sequence[Score]) -> str:
    """The features that the page shows scores by."""
    there = {score.features for score in scores}
    return next((name for name in MAIN if name in there), "")


def likeness(scores: Sequence[Score], many: str) -> tuple[str, str]:
    """Whether samples can be told from real ones, and how much of the variety of real ones they have."""
    features = main_features(scores)
    found = {score.name: score for score in scores if (score.mode, score.features) == ("sampled", features)}
    apart, near = found.get("two-sample accuracy"), found.get("coverage")
    if apart is None:
        return f"Not measured: that takes at least 20 {many} that were not trained on.", UNSEEN
    short = next((words for bound, words in TOLD_APART if apart.value < bound), EASILY)
    if apart.interval is not None and apart.interval[0] <= 0.5:
        short = "Yes: no difference was found"
    rest = f"A simple classifier tells them from real {many} in {100 * apart.value:.0f} % of cases; 50 % is guessing."
    if near is not None:
        rest += f" {100 * near.value:.0f} % of the real {many} have a sample close by"
        rest += "." if near.floor is None else f"; a perfect model would reach {100 * near.floor:.0f} %."
    return f"{short}.", rest


def copying(scores: Sequence[Score], shown: bool = True) -> tuple[str, str]:
    """The verdict on memorisation, with the figures that it is based on, and where samples are `shown`."""
    worst = decisive(scores)
    if worst is None:
        return "Not measured: that takes at least 20 samples of the same origin that were not trained on.", UNSEEN
    found, interval, look = worst
    verdict, reason = verdict_of(found)
    short = "That can't be told" if untold(verdict, interval) else VERDICTS.get(verdict, verdict)
    where = "" if verdict == "no sign" or not shown else " The most suspicious ones are shown below, under Details."
    told = f"{in_words(found.value, interval, found.n, reason, look)} {follows(verdict, interval)}".rstrip()
    return f"{short}.", told + where


def seen(scores: Sequence[Score]) -> list[Answer]:
    """Whether an attack can tell what the model was trained on; nothing if none was tried, as before there were any."""
    leaks = membership.leaks(scores)
    short = "Yes, better than by guessing." if leaks else "No sign of that."
    return [] if leaks is None else [Answer(SEEN, short, membership.in_words(scores))]
