"""The card of an exported model: what was left out of it, and what it still gives away."""

from __future__ import annotations

from collections.abc import Sequence

from neurosql.fitted import Run
from neurosql.metrics import membership
from neurosql.metrics.copies import decisive, verdict_of
from neurosql.metrics.memorisation import follows, in_words
from neurosql.metrics.score import Score

FEW = 10
"""With fewer training samples in a class, what is known of the class is nearly what is known of one sample."""


def left_out(run: Run) -> list[str]:
    """What of a run is not in the folder, one phrase each."""
    many = run.data.modality.plural
    found = [
        f"the {many} that the model was trained on, and every picture that shows one of them or a place of one",
        "names of files, subjects, folders and machines, and where the data were read from",
        f"which {many} were used for training, validation and test, and the fingerprint of the training data",
        f"{'the label of each training ' + run.data.modality.name if run.method.classes else 'labels and class names'}",
        "checkpoints, times and what the training used of the machine",
    ]
    if run.has_codes:
        found.insert(1, f"the codes of the training {many}, their losses and their digests")
    if not run.has_codes and set(run.method.networks) - set(run.method.sampling):
        gone = ", ".join(sorted(set(run.method.networks) - set(run.method.sampling)))
        found.append(f"the trained weights of the {gone}, which sampling does not need")
    return found


def gives_away(run: Run, scores: Sequence[Score]) -> list[str]:
    """What can still be learned about the training data, one sentence each, and what was measured of it."""
    data, many = run.data, run.data.modality.plural
    found = [
        f"Training used {data.trained:,} {many}; {data.heldout:,} decided when to stop, {data.test:,} were kept aside."
    ]
    if run.method.classes:
        counts = run.method.class_counts.tolist()
        listed = ", ".join(f"{name} ({count:,})" for name, count in zip(data.classes, counts))
        found.append(f"The classes, with their numbers of training {many}: {listed}.")
        if any(0 < count < FEW for count in counts):
            found.append(f"Some classes have fewer than {FEW} training {many}: their samples may show just these.")
    if any(name.startswith("density.") for name in run.method.kept()):
        found.append(f"Means and spreads of the codes of groups of training {many}.")
    if not data.modality.bounded:
        found.append("The mean, the spread, the smallest and the largest value of each column, and its name, if any.")
    found.append(
        f"The weights were computed from the training {many}. Whoever has one of these {many} can try to tell whether "
        "it was used, and parts of some may be reconstructed. How far that goes has no bound: only training with "
        "differential privacy gives one."
    )
    return found + measured(scores)


def measured(scores: Sequence[Score]) -> list[str]:
    """What the last evaluation found on copies and on membership; or that there was none."""
    close = decisive(scores)
    told = membership.in_words(scores)
    if close is None and not told:
        return ["Neither copies nor membership were measured: run `neurosql evaluate` before you share a model."]
    found = []
    if close is not None:
        score, interval, look = close
        verdict, why = verdict_of(score)
        words = in_words(score.value, interval, score.n, why, look)
        found.append(f"Signs that samples are copies: {verdict}. {words} {follows(verdict, interval)}".rstrip())
    found.append(f"Membership: {told or 'not measured.'}")
    return found


def written(run: Run, without: Sequence[str], still: Sequence[str], note: str | None) -> str:
    """The card of the exported model `run`."""
    name = run.data.modality.name
    use = ["neurosql sample FOLDER -n 64    # draw new samples"]
    if run.has_codes:
        use.append("neurosql encode FOLDER DATA     # find the codes of samples of your own")
    lines = [
        f"# A model of {run.data.modality.plural}, exported for sharing",
        "",
        f"A generative model ({run.settings.method}, {run.method.title}) of {run.data.description}.",
        "",
        *(["    " + line for line in use]),
        "",
        *([f"{note[0].upper()}{note[1:]}.", ""] if note else []),
        "## What was left out",
        "",
        *(f"- {phrase}" for phrase in without),
        "",
        f"Without them, no {name} can be compared with the training data, and the run can't be evaluated or resumed.",
        "",
        "## What it still gives away",
        "",
        *(f"- {sentence}" for sentence in still),
        "",
    ]
    return "\n".join(lines)
