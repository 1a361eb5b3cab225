"""The exceptions for input that can't be used, and a check that many settings share."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any


class InputError(ValueError):
    """What the caller gave can't be used. The message says what was wrong, with the value, and what to do."""


class NotFinite(InputError):
    """A number that was computed is NaN, infinite or too large to go on with. The message says which."""


class Obstacles(InputError):
    """Everything that keeps data from being read, found in one pass: each with the flag that settles it."""

    def __init__(self, found: Sequence[str], settled_by: Mapping[str, Any], labelled: bool = True) -> None:
        super().__init__("; ".join(found))
        self.found = tuple(found)
        """One sentence each."""
        self.settled_by = dict(settled_by)
        """Fields of `DataSettings` and values with which the data can be read."""
        self.labelled = labelled
        """Whether the data have labels, as far as their folders say."""
        self.shape: tuple[int, ...] | None = None
        """The shape of all samples that can be read, if they have the same."""


LARGEST_SEED = 2**64 - 1


def seed(name: str, value: int) -> int:
    """A seed that torch's and numpy's generators both take, or an InputError that names the setting."""
    if not 0 <= value <= LARGEST_SEED:
        raise InputError(f"{name} must be from 0 to {LARGEST_SEED}, got {value}")
    return value


def whole(name: str, value: Any, least: int = 1) -> int:
    """``value`` as an int of at least ``least``, or an InputError that names the setting."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}") from None
    if number < least:
        raise InputError(f"{name} must be at least {least}, got {number}")
    return number
