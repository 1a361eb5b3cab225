"""`Score`: a number with everything needed to read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from neurosql.errors import InputError
from neurosql.metrics.column import Column
from neurosql.metrics.records import MODES, Direction, Mode, Reference, ScoreRecord
from neurosql.settings.checks import at_least, check_choices, check_types


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
    """Number of generated images (or pairs, or codes)."""
    n_real: int = 0
    """Number of real images that they were compared with, if any."""
    seed: int = 0
    features: str | None = None
    """Features that the images were compared by."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval, if one is known to hold."""
    spread: float | None = None
    """Standard deviation over extractor seeds, for scores without an interval."""
    floor: float | None = None
    """The figure beside it, to read it by: `reference` says what it is."""
    floor_interval: tuple[float, float] | None = None
    """95 % confidence interval of `floor`, if one is known to hold."""
    note: str = ""

    @property
    def column(self) -> Column:
        """The column that the score belongs in."""
        return Column(self.name, self.features or "", self.mode)

    @property
    def known(self) -> ScoreRecord | None:
        """Its record; None if it is of a package that is not installed."""
        try:
            return self.column.record
        except InputError:
            return None

    @property
    def reference(self) -> Reference | None:
        """What `floor` is; None if there is none, or if nothing is known about it."""
        return None if self.floor is None or self.known is None else self.known.compared_with(self.mode)

    @property
    def key(self) -> str:
        """Name, features and mode: its key in `scores.json`."""
        return self.column.key

    def record(self) -> dict[str, Any]:
        """The score as plain values, for JSON."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v is not None and v != ""}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Score:
        """The score whose `record` this is."""
        try:
            values = dict(record)
            values |= {name: tuple(values[name]) for name in ("interval", "floor_interval") if name in values}
            score = cls(**values)
        except (TypeError, ValueError) as error:
            raise InputError(f"not a score: {error}") from None
        check_types(score)
        check_choices(score)
        for pair in (score.interval, score.floor_interval):
            if pair is not None and len(pair) != 2:
                raise InputError(f"an interval of {score.name} has {len(pair)} ends")
        at_least(score, 0, "n", "n_real")
        return score


def table(scores: Iterable[Score]) -> str:
    """Scores as lines of text, mode by mode, with intervals and what to compare them with."""
    scores = list(scores)
    rows = [("", "value", "95 % interval", "compare with", "n", "")]
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
            rows.append((name, number(score.value), between, beside(score), str(score.n), score.note))
    widths = [max(len(row[i]) for row in rows if row[1] or i) for i in range(5)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:5], widths[1:])]
        lines.append(("  ".join(cells) + ("  " + row[5] if row[5] else "")).rstrip())
    return "\n".join(lines + [f"{reference.label} ({reference.meaning})" for reference in references(scores)])


def beside(score: Score) -> str:
    """The figure beside a score, with its name."""
    return f"{score.reference.name if score.reference else ''} {number(score.floor)}".strip()


def references(scores: Iterable[Score]) -> list[Reference]:
    """What the figures beside some scores are, each kind once."""
    return list(dict.fromkeys(score.reference for score in scores if score.reference is not None))


def number(value: float | None) -> str:
    """A figure with as many digits as a reader needs."""
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
