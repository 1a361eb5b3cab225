"""The exception for input that can't be used, and a check that many settings share."""

from __future__ import annotations

import operator
from typing import Any


class InputError(ValueError):
    """What the caller gave can't be used. The message says what was wrong, with the value, and what to do."""


def whole(name: str, value: Any, least: int = 1) -> int:
    """``value`` as an int of at least ``least``, or an InputError that names the setting."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}") from None
    if number < least:
        raise InputError(f"{name} must be at least {least}, got {number}")
    return number
