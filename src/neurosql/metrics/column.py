"""A column of a table: one score, of one kind of features, in one mode. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neurosql.errors import InputError
from neurosql.metrics.records import RESOURCE, ScoreRecord, record_of


@dataclass(frozen=True)
class Column:
    """What a column shows. Two scores that differ in any of these are never compared with each other."""

    score: str
    """The name of a record in `metrics.records`."""
    features: str = ""
    mode: str = ""
    over: str = ""
    """The contender whose figures, in the same group and with the same seed, each figure is divided by."""

    @property
    def record(self) -> ScoreRecord:
        """The record of the score; an InputError if there is none."""
        return record_of(self.score)

    @property
    def name(self) -> str:
        """The score, and what it is divided by."""
        return f"{self.score} over {self.over}" if self.over else self.score

    @property
    def key(self) -> str:
        """The column in words: name, features and mode. Look it up with `find`; never take it apart."""
        words = " ".join(part for part in (self.score, self.features, self.mode) if part)
        return f"{words} over {self.over}" if self.over else words

    @property
    def undivided(self) -> Column:
        """The same column without the division."""
        return Column(self.score, self.features, self.mode)

    @property
    def measured(self) -> bool:
        """Whether this is a resource, not a score."""
        return self.record.family == RESOURCE

    def check(self) -> None:
        """Raise an InputError if the score has no such features or mode."""
        for what, value, known in (
            ("features", self.features, self.record.features),
            ("mode", self.mode, self.record.modes),
        ):
            if value not in (known or ("",)):
                raise InputError(f"the {what} of {self.score!r} must be one of {', '.join(known)}, got {value!r}")


def find(columns: Iterable[Column], key: str) -> Column:
    """The column with that key."""
    columns = list(columns)
    for column in columns:
        if column.key == key:
            return column
    raise InputError(f"no column {key!r}: the columns are {', '.join(column.key for column in columns)}")


def sampled(score: str, features: str = "") -> Column:
    """A score of new samples."""
    return Column(score, features, "sampled")


def paired_train(score: str) -> Column:
    """A score of reconstructions of training images."""
    return Column(score, mode="paired-train")


def paired_heldout(score: str) -> Column:
    """A score of reconstructions of images that were not trained on."""
    return Column(score, mode="paired-heldout")


def of_codes(score: str) -> Column:
    """A score of the codes of the training images."""
    return Column(score, mode="codes")


def resource(name: str, over: str = "") -> Column:
    """What the bench measures: time, memory, parameters."""
    return Column(name, over=over)
