"""Who hears what happens while something long is under way."""

from __future__ import annotations

from typing import Any


class Observer:
    """Hears nothing: what Python callers want. A subclass prints, or streams to a page."""

    progress: bool = False
    """Whether bars may be drawn on the terminal."""

    def say(self, line: str) -> None:
        """A line that a person should read."""

    def epoch(self, figures: dict[str, Any]) -> None:
        """The figures of an epoch that has ended."""


class Terminal(Observer):
    """Prints, and draws bars where there is a terminal."""

    progress = True

    def say(self, line: str) -> None:
        print(line)
