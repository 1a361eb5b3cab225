"""The flags for reading data: those of all readers, and those of each reader."""

from __future__ import annotations

import re
from dataclasses import field, fields, make_dataclass
from typing import Any

import tyro

from neurosql.settings import DataSettings


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
