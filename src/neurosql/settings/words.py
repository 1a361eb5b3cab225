"""The text of every setting, taken from where it stands: the docstring under the field of a dataclass.

`parameters` makes the section Parameters of a class docstring from it, in the style of numpydoc.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What a reader is told about one argument."""

    name: str
    kind: str
    """Its type, in words."""
    text: str
    """What it means."""

    def lines(self) -> list[str]:
        """The entry in a section Parameters."""
        return [f"{self.name} : {self.kind}", *(f"    {line}" for line in _lines(self.text))]


def _lines(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def of_fields(kind: type[Any]) -> dict[str, str]:
    """The docstring of each field of a dataclass, by name; empty where the source is not at hand."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _of_body(base)
    return found


def _of_body(kind: type[Any]) -> dict[str, str]:
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        # A program that was packed without its source files.
        return {}
    assert isinstance(parsed, ast.ClassDef)
    found = {}
    for field, below in zip(parsed.body, parsed.body[1:]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[field.target.id] = " ".join(text.value.split())
    return found


def in_words(hint: Any) -> str:
    """A type in words: `int or "auto"`; None is left out."""
    if get_origin(hint) is Literal:
        choices = [f'"{choice}"' for choice in get_args(hint)]
        return choices[0] if len(choices) == 1 else "{" + ", ".join(choices) + "}"
    if get_args(hint):
        return " or ".join(in_words(part) for part in get_args(hint) if part is not type(None))
    return getattr(hint, "__name__", str(hint))


def of_settings(kinds: Iterable[type[Any]], presets: Mapping[str, Mapping[str, Any]]) -> dict[str, Parameter]:
    """A parameter for each field of these classes, where None stands for the value that the preset sets.

    `presets` are the settings that each preset changes, by its name.
    """
    found = {}
    for kind in kinds:
        texts, hints = of_fields(kind), get_type_hints(kind)
        for field in dataclasses.fields(kind):
            text = f"{texts.get(field.name, '')} {_stands_for(field, presets)}"
            found[field.name] = Parameter(field.name, f"{in_words(hints[field.name])}, default=None", text.strip())
    return found


def _stands_for(field: dataclasses.Field[Any], presets: Mapping[str, Mapping[str, Any]]) -> str:
    """What None stands for in each preset; empty for a setting that no preset sets and that has no default."""
    changed: dict[str, list[str]] = {}
    for preset, values in presets.items():
        if field.name in values and values[field.name] != field.default:
            changed.setdefault(repr(values[field.name]), []).append(preset)
    if field.default is None and not changed:
        return ""
    others = "".join(f"; {value} in {_joined(names)}" for value, names in changed.items())
    return f"None takes the preset's value: {field.default!r}{others}."


def _joined(names: list[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names)


def parameters(arguments: Iterable[str], known: Mapping[str, Parameter]) -> str:
    """The section Parameters of these arguments, in their order."""
    return "\n".join(["Parameters", "----------", *(line for name in arguments for line in known[name].lines())])
