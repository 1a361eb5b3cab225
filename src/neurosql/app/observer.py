"""How a caller follows a task that takes long."""

from __future__ import annotations

from typing import Any

from neurosql.visible import visible


class Observer:
    """Ignores everything, as Python callers want. A subclass prints, or streams to a page."""

    progress: bool = False
    """Whether progress bars may be drawn on the terminal."""

    def say(self, line: str) -> None:
        """Called with a line for the user."""

    def epoch(self, figures: dict[str, Any]) -> None:
        """Called with the figures of each finished epoch."""


class Terminal(Observer):
    """Prints lines, and draws progress bars on a terminal."""

    progress = True

    def say(self, line: str) -> None:
        print(visible(line))
