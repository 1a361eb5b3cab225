"""From the words of a person to what is searched: `momentum`, `fresh=0:2`, `code_rate=1e-3:0.3:log`, `every=1,2,4`."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from neurosql.errors import InputError
from neurosql.settings.checks import check_types
from neurosql.settings.methods import METHODS
from neurosql.settings.ranges import SHARED, Choices, Range, Span, Value
from neurosql.settings.whole import Settings, section_classes

USUAL = ("learning_rate",)
"""Searched besides the method's own ranges if nothing is named."""
JUDGING = (
    *("seed", "device", "seconds", "validation_share", "validate_every", "validate_on", "patience"),
    "checkpoint_every",
)
"""Settings that decide how a trial is judged, or where it runs, not how good it is."""
IN_PYTHON = "custom"
"""A choice that stands for something given in Python."""


def space(settings: Settings, words: Sequence[str]) -> dict[str, Range]:
    """The range of each named setting; without words, those of the method's record and the learning rate."""
    known = _fields(settings)
    if not words:
        own = METHODS[settings.method].search
        return {name: SHARED[name] for name in USUAL} | dict(own)
    found: dict[str, Range] = {}
    for word in words:
        name, given, text = word.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if name not in known:
            raise InputError(f"{settings.method} has no setting {name!r} to search{_near(name, known)}")
        if name in found:
            raise InputError(f"{name!r} is named twice: give it one range")
        if name in JUDGING:
            raise InputError(f"{name!r} can't be searched: it decides how trials are judged or where they run")
        found[name] = _read(name, known[name], text) if given else _declared(name, known[name], settings.method)
        for end in found[name].ends:
            _check(settings, name, end)
    return found


def chosen(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with these values, by field name; an InputError if they do not go together."""
    # Another generator has other settings of its own.
    kinds = section_classes(settings.method, values.get("generator", settings.generator.generator))
    kept = {field.name for kind in kinds.values() for field in dataclasses.fields(kind)} | {"method"}
    return Settings.from_flat({k: v for k, v in settings.flat().items() if k in kept} | dict(values))


def whole(settings: Settings, name: str) -> bool:
    """Whether a setting is a whole number."""
    leaves = _leaves(_fields(settings)[name])
    return int in leaves and float not in leaves


def _fields(settings: Settings) -> dict[str, Any]:
    """What each setting of the run may hold, by field name."""
    kinds = section_classes(settings.method, settings.generator.generator).values()
    return {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, [each for each in known if each not in JUDGING], n=3, cutoff=0.5)
    return f": did you mean {' or '.join(near)}?" if near else ": `neurosql train --help` lists the settings"


def _declared(name: str, hint: Any, method: str) -> Range:
    """The range in the method's record, or that of a shared setting, or all choices of a setting that has some."""
    declared = {**SHARED, **METHODS[method].search}.get(name)
    if declared is not None:
        return declared
    leaves = _leaves(hint)
    if bool in leaves:
        return Choices((False, True))
    choices = tuple(leaf for leaf in leaves if isinstance(leaf, str) and leaf != IN_PYTHON)
    if len(choices) > 1:
        return Choices(choices)
    raise InputError(f"{name!r} has no range of its own: give one, such as {name}=LOW:HIGH or {name}=A,B,C")


def _read(name: str, hint: Any, text: str) -> Range:
    """`LOW:HIGH`, `LOW:HIGH:log`, or values with commas between them."""
    if ":" not in text:
        values = tuple(_value(name, hint, word.strip()) for word in text.split(","))
        if len(set(values)) < 2:
            raise InputError(f"a search of {name!r} needs two values or more, got {text!r}")
        return Choices(values)
    low, high, *scale = text.split(":")
    if scale not in ([], ["log"]) or not {int, float} & set(_leaves(hint)):
        raise InputError(f"a range of {name!r} can't be {text!r}: give LOW:HIGH, LOW:HIGH:log or A,B,C")
    kind: Any = float if float in _leaves(hint) else int
    try:
        return Span(kind(low), kind(high), bool(scale))
    except InputError as error:
        raise InputError(f"the range of {name!r}: {error}") from None
    except ValueError:
        numbers = "whole numbers" if kind is int else "numbers"
        raise InputError(f"the ends of {name!r} must be {numbers}, got {text!r}") from None


def _value(name: str, hint: Any, word: str) -> Value:
    """A word as a value of the setting."""
    leaves = _leaves(hint)
    if word.lower() in ("true", "false") and bool in leaves:
        return word.lower() == "true"
    if word.lower() == "none" and type(None) in leaves:
        return None
    for kind in (int, float):
        if kind in leaves:
            try:
                return kind(word)
            except ValueError:
                continue
    choices = [leaf for leaf in leaves if isinstance(leaf, str)]
    if word in choices or (str in leaves and word):
        return word
    allowed = [
        *choices,
        *("a number" for kind in (int, float) if kind in leaves),
        *(["true", "false"] * (bool in leaves)),
    ]
    raise InputError(f"{name!r} can't be {word!r}: it must be {' or '.join(dict.fromkeys(allowed))}")


def _check(settings: Settings, name: str, value: Value) -> None:
    """Refuse a value that the setting can't have, whatever the others are.

    A value that does not go with others is left to the trials: those may be searched too.
    """
    for section in (settings.generator, settings.backbone, settings.latent, settings.own, settings.training):
        if hasattr(section, name):
            changed = dataclasses.replace(section, **{name: value})
            check_types(changed)
            try:
                changed.check()
            except InputError as error:
                if str(error).startswith(f"{name} must be"):
                    raise


def _leaves(hint: Any) -> list[Any]:
    """The types and the choices that a hint is made of."""
    if get_origin(hint) in (Union, types.UnionType):
        return [leaf for part in get_args(hint) for leaf in _leaves(part)]
    return list(get_args(hint)) if get_origin(hint) is Literal else [hint]
