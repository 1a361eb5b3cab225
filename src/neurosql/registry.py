"""Records by name: those of this package, and those that other packages offer as entry points.

A record says what a method, a backbone, a reader, a score or an experiment is. Nothing is imported to list the names; a
record is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from neurosql.errors import InputError

T = TypeVar("T")


def imported(path: str) -> Any:
    """The object at `module:name`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


class Registry(Generic[T]):
    """Records of one kind.

    `built_in` maps each name to its record: `module:name`, or a name alone if the module is `home`. Entry points of
    `group` add to them; they can't take a built-in name.
    """

    def __init__(self, what: str, kind: type[T], group: str, built_in: Mapping[str, str], home: str = "") -> None:
        self.what, self.kind, self.group = what, kind, group
        self.built_in = {name: place if ":" in place else f"{home}:{place}" for name, place in built_in.items()}
        self._found: dict[str, T] = {}

    @cached_property
    def _plugged(self) -> dict[str, EntryPoint]:
        found = {point.name: point for point in entry_points(group=self.group)}
        return {name: point for name, point in sorted(found.items()) if name not in self.built_in}

    def names(self) -> tuple[str, ...]:
        """Every name: the built-in ones first, in their order."""
        return (*self.built_in, *self._plugged)

    def __contains__(self, name: object) -> bool:
        return name in self.built_in or name in self._plugged

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __getitem__(self, name: str) -> T:
        """The record of a name; an InputError if there is none."""
        if name not in self:
            raise InputError(f"{self.what} must be one of {', '.join(self.names())}, got {name!r}")
        if name not in self._found:
            self._found[name] = self._load(name)
        return self._found[name]

    def _load(self, name: str) -> T:
        if name in self.built_in:
            record = imported(self.built_in[name])
        else:
            point = self._plugged[name]
            try:
                record = point.load()
            except Exception as error:  # somebody else's code may raise anything
                words = f"{type(error).__name__}: {error}"
                raise InputError(f"{self.what} {name!r} of {point.value} can't be loaded: {words}") from error
        if not isinstance(record, self.kind):
            raise InputError(f"{self.what} {name!r} must be a {self.kind.__name__}, got {type(record).__name__}")
        return record
