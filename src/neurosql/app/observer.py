"""How a caller follows a task that takes long, and how lines are shown to a person."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import Any

from neurosql.visible import visible

LABELLED = re.compile(r"\S+( \S+)? +")
"""The label of a line: one or two words, then the text in the next column."""
LEFT_ALONE = ("next ", "look at ", "with the flags ")
"""Lines with a path or a command, which people copy."""


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
        tell(line)


def tell(text: str) -> None:
    """Print lines, control characters made visible. On a terminal, long lines are wrapped, under their beginning."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in visible(text).split("\n"):
        print(wrapped(line, width) if width else line)


def wrapped(line: str, width: int) -> str:
    """A line of at most `width` columns, or more than one, each under the text that follows the label."""
    if len(line) <= width or line.lstrip().startswith(LEFT_ALONE):
        return line
    label = LABELLED.match(line)
    column = label.end() if label and label[0].endswith("  ") else len(line) - len(line.lstrip()) + 2
    beneath = " " * column
    return textwrap.fill(line, width, subsequent_indent=beneath, break_long_words=False, break_on_hyphens=False)
