"""`Score`: a number with everything that it takes to read it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from neurosql.errors import InputError

Mode = Literal["sampled", "paired-train", "paired-heldout", "codes"]
Direction = Literal["lower", "higher", "none"]

MODES: dict[str, str] = {
    "sampled": "new samples against real images that were not trained on",
    "paired-train": "reconstructions of training images against those images",
    "paired-heldout": "reconstructions of images that were not trained on against those images",
    "codes": "the codes of the training images",
}


@dataclass(frozen=True)
class Score:
    """One score of one model.

    A score without a mode means nothing: a reconstruction is far nearer to its image than any sample to any image.
    """

    name: str
    value: float
    mode: Mode
    direction: Direction
    n: int
    """Generated images (or pairs, or codes) that were looked at."""
    n_real: int = 0
    """Real images on the other side, where there are two sides."""
    seed: int = 0
    features: str | None = None
    """Features that the images were compared by."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval, where one is known to hold."""
    spread: float | None = None
    """Standard deviation over extractor seeds, for scores without an interval."""
    floor: float | None = None
    """The same score of real images against real images: what a perfect model would get."""
    note: str = ""

    @property
    def key(self) -> str:
        """Name, features and mode: what `scores.json` files it under."""
        return " ".join(part for part in (self.name, self.features, self.mode) if part)

    def record(self) -> dict[str, Any]:
        """The score as plain values, for JSON."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None and v != ""}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Score:
        """The score that `record` gave."""
        try:
            values = dict(record)
            if "interval" in values:
                values["interval"] = tuple(values["interval"])
            return cls(**values)
        except TypeError as error:
            raise InputError(f"not a score: {error}") from None


FEATURES = ("random net", "classifier", "pixels", "vgg", "inception")


def parts_of(key: str) -> tuple[str, str, str]:
    """Name, features and mode of a score, from its key; both of the latter may be empty."""
    mode = next((mode for mode in MODES if key.endswith(f" {mode}")), "")
    name = key.removesuffix(f" {mode}") if mode else key
    features = next((space for space in FEATURES if name.endswith(f" {space}")), "")
    return name.removesuffix(f" {features}") if features else name, features, mode


@dataclass(frozen=True)
class Column:
    """Scores of several models that may stand under one another: one name, one mode, one kind of features."""

    scores: tuple[Score, ...]

    def __post_init__(self) -> None:
        for what in ("name", "mode", "features", "direction"):
            found = sorted({str(getattr(score, what)) for score in self.scores})
            if len(found) > 1:
                raise InputError(f"a column can't mix {what}s: {' and '.join(found)}")

    def best(self) -> int | None:
        """The place of the best score, if the column has a direction."""
        known = [(s.value, i) for i, s in enumerate(self.scores) if math.isfinite(s.value)]
        if not known or self.scores[0].direction == "none":
            return None
        return (min if self.scores[0].direction == "lower" else max)(known)[1]


def table(scores: Iterable[Score]) -> str:
    """Scores as lines of text, mode by mode, with floors and intervals."""
    scores = list(scores)
    rows = [("", "value", "95 % interval", "floor", "n", "")]
    for mode in MODES:
        some = [score for score in scores if score.mode == mode]
        if some:
            rows.append((f"{mode}: {MODES[mode]}", "", "", "", "", ""))
        for score in some:
            between = "" if score.interval is None else f"{number(score.interval[0])} to {number(score.interval[1])}"
            if score.spread is not None:
                between = f"sd {number(score.spread)} over nets"
            arrow = {"lower": "↓", "higher": "↑", "none": ""}[score.direction]
            name = f"  {score.name}{f' ({score.features})' if score.features else ''} {arrow}"
            rows.append((name, number(score.value), between, number(score.floor), str(score.n), score.note))
    widths = [max(len(row[i]) for row in rows if row[1] or i) for i in range(5)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:5], widths[1:])]
        lines.append(("  ".join(cells) + ("  " + row[5] if row[5] else "")).rstrip())
    return "\n".join(lines)


def number(value: float | None) -> str:
    """A figure to as many digits as a reader looks at."""
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
