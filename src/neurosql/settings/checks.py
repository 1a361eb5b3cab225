"""Checks that several settings share."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from neurosql.errors import InputError


def at_least(settings: Any, least: int, *names: str) -> None:
    """Refuse fields below `least`; None is allowed."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise InputError(f"{name} must be at least {least}, got {value}")


def check_choices(settings: Any) -> None:
    """Refuse a Literal field that is none of its choices: a dataclass does not check that itself."""
    for name, hint in get_type_hints(type(settings)).items():
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
