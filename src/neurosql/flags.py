"""How settings become flags: what stands for a value in the help, and the flags for reading data.

tyro makes the command line from dataclasses. The rule below tells it what a person reads: the text of a field on one
line, so that it is wrapped to the terminal; a word for the value (RUN, FOLDER, N) in place of its type; and a default
only if there is one, because a field that may be None says in its text what happens then.
"""

from __future__ import annotations

import dataclasses
import re
import types
from dataclasses import field, fields, make_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from neurosql.settings import DataSettings, words

REGISTRY = ConstructorRegistry()

BY_NAME = {
    **{"run": "RUN", "data": "DATA", "against": "DATA", "path": "PATH", "out": "PATH", "sheet": "FILE.png"},
    **{
        "file": "FILE",
        "inception": "FILE",
        "split": "FILE",
        "folder": "FOLDER",
        "folders": "FOLDER...",
        "label": "CLASS",
    },
    **{
        "names": "NAME...",
        "shard": "I/K",
        "dims": "N,N",
        "methods": "NAME,NAME",
        "window": "LOW HIGH",
        "on": "WHERE",
        "search": "SETTING...",
        "metric": "SCORE",
    },
}
BY_TYPE = {int: "N", float: "X", str: "NAME"}


@REGISTRY.struct_rule
def described(info: StructTypeInfo) -> StructConstructorSpec | None:
    """How tyro asks for the fields of a dataclass."""
    kind = info.type
    # tyro wraps what it is given into a dataclass of its own.
    if not dataclasses.is_dataclass(kind) or kind.__module__.startswith("tyro."):
        return None
    hints = get_type_hints(kind, include_extras=True)
    texts = words.of_fields(kind)
    return StructConstructorSpec(
        kind,
        tuple(
            _field(own.name, hints[own.name], _default(own, info.default), texts.get(own.name, ""))
            for own in fields(kind)
            if own.init
        ),
    )


def _default(own: dataclasses.Field[Any], instance: Any) -> Any:
    """The default of a field: that of a default instance, if there is one, or its own."""
    if instance is tyro.MISSING:
        return tyro.MISSING
    if dataclasses.is_dataclass(instance) and hasattr(instance, own.name):
        return getattr(instance, own.name)
    if own.default is not dataclasses.MISSING:
        return own.default
    if own.default_factory is not dataclasses.MISSING:
        return own.default_factory()
    return tyro.MISSING_NONPROP


def _field(name: str, hint: Any, default: Any, text: str) -> StructFieldSpec:
    """A field with its text on one line and a word for its value."""
    word = metavar(name, hint)
    if word is None:
        # A section of settings: its heading has the text of its class.
        return StructFieldSpec(name, hint, default, text or None)
    silent = default is None or word.endswith("...")
    hint = Annotated[hint, tyro.conf.arg(metavar=word, help_behavior_hint="" if silent else None)]
    return StructFieldSpec(name, hint, default, text)


def metavar(name: str, hint: Any) -> str | None:
    """What stands for the value of a field in the help; None leaves it to tyro."""
    while get_origin(hint) is Annotated:
        if any(type(part) is type(tyro.conf.arg()) for part in hint.__metadata__):
            return None
        hint = get_args(hint)[0]
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    found: list[str] = []
    for part in parts:
        if get_origin(part) is Literal:
            choices = ",".join(map(str, get_args(part)))
            found.append(choices if len(parts) > 1 and len(get_args(part)) == 1 else f"{{{choices}}}")
        elif get_origin(part) is tuple:
            one, *others = (BY_TYPE.get(each, "...") for each in get_args(part))
            found.append(BY_NAME.get(name, " ".join([one, *others])))
        elif part in BY_TYPE:
            found.append(BY_NAME.get(name, BY_TYPE[part]))
        elif part is bool and len(parts) > 1:
            found.append("{True,False}")
        elif part is not type(None):
            return None
    return "|".join(found)


def reading_section(arguments: list[str]) -> tuple[str, Any, Any]:
    """The field `reading`: `DataSettings` with the settings of the built-in readers and of the named one."""
    from neurosql.data import readers

    named = (readers.named(argument.partition(":")[0]) for argument in arguments if ":" in argument)
    hidden: Any = tyro.conf.Suppress
    sections: list[tuple[str, Any, Any]] = [("own", hidden[Any], field(default=None))]
    for record in readers.with_settings(next(filter(None, named), None)):
        name = "reader_" + re.sub(r"\W", "_", record.name)
        sections.append((name, record.own, field(default=record.own())))
    kind = make_dataclass("DataSettings", sections, bases=(DataSettings,), frozen=True)
    kind.__doc__ = DataSettings.__doc__
    return "reading", kind, field(default=kind())


def data_settings(reading: Any) -> DataSettings:
    """The settings in the section `reading`; those of its readers are checked."""
    shared = {f.name: getattr(reading, f.name) for f in fields(DataSettings)}
    sections = [getattr(reading, f.name) for f in fields(reading) if f.name not in shared]
    for section in sections:
        section.check()
    own = {f.name: getattr(section, f.name) for section in sections for f in fields(section)}
    return DataSettings(**shared | {"own": own})
