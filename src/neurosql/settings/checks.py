"""Checks that several settings share."""

from __future__ import annotations

import math
import numbers
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from neurosql.errors import InputError

LARGEST = 2**64
"""Whole numbers are smaller: they must fit into 64 bits."""
LONGEST = 2**16
"""Most characters of a text."""
MOST_COMPONENTS = 1000
"""Components of a mixture."""
MOST_STEPS = 100_000
"""Steps of noise, or of a sampler."""
WORDS = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", type(None): "nothing"}

_known: dict[Any, dict[str, Any]] = {}


def at_least(settings: Any, least: int, *names: str) -> None:
    """Refuse fields below `least`; None is allowed."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise InputError(f"{name} must be at least {least}, got {value}")


def at_most(settings: Any, most: int, *names: str) -> None:
    """Refuse fields above `most`; None is allowed. They size tables, and may be a stranger's."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value <= most:
            raise InputError(f"{name} must be at most {most}, got {value}")


def _hints(settings: Any) -> dict[str, Any]:
    """What each field of a dataclass may hold; finding out takes long."""
    kind: Any = type(settings)
    if kind not in _known:
        _known[kind] = get_type_hints(kind)
    return _known[kind]


def check_types(settings: Any) -> None:
    """Refuse fields whose value is of another kind than they say: a dataclass does not check that itself.

    Of a field with choices, `check_choices` says what they are.
    """
    for name, hint in _hints(settings).items():
        value = getattr(settings, name)
        if not _fits(value, hint):
            raise InputError(f"{name} must be {_in_words(hint)}, got {_short(value)}")


def _fits(value: Any, hint: Any) -> bool:
    kind, arguments = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        return any(_fits(value, part) for part in arguments)
    if kind is Literal:
        return any(_fits(value, type(choice)) for choice in arguments)
    if kind in (tuple, list):
        # An array or a list will do for a tuple of any length.
        return isinstance(value, (tuple, list)) and all(_fits(part, arguments[0]) for part in value)
    if kind is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if hint is bool:
        return isinstance(value, numbers.Integral | bool) or type(value).__name__ == "bool"
    if hint is int:
        return isinstance(value, numbers.Integral) and abs(int(value)) < LARGEST
    if hint is float:
        return isinstance(value, numbers.Real) and math.isfinite(_as_float(value))
    if hint is str:
        return isinstance(value, str) and len(value) <= LONGEST and "\0" not in value
    return value is None if hint is type(None) else True


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _in_words(hint: Any) -> str:
    leaves = dict.fromkeys(_leaves(hint))
    choices = [str(leaf) for leaf in leaves if isinstance(leaf, str)]
    kinds = [WORDS[leaf] for leaf in leaves if not isinstance(leaf, str) and leaf in WORDS]
    words = " or ".join([*kinds, *choices]) or "another value"
    return f"a list of {words}" if get_origin(hint) in (tuple, list) else words


def _short(value: Any) -> str:
    try:
        words = repr(value)
    except (ValueError, RecursionError):
        words = f"a {type(value).__name__}"
    return words if len(words) < 100 else f"{words[:100]}..."


def check_choices(settings: Any) -> None:
    """Refuse a Literal field that is none of its choices: a dataclass does not check that itself."""
    for name, hint in _hints(settings).items():
        leaves = _leaves(hint)
        choices = [choice for choice in leaves if isinstance(choice, str)]
        value = getattr(settings, name)
        if not choices or value is None or value in choices:
            continue
        if int not in leaves:
            raise InputError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if isinstance(value, str):
            raise InputError(f"{name} must be a whole number or {' or '.join(choices)}, got {value!r}")


def _leaves(hint: Any) -> list[Any]:
    arguments = get_args(hint)
    return [leaf for part in arguments for leaf in _leaves(part)] if arguments else [hint]
