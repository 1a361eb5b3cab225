"""matplotlib, set up for every drawing here: quiet, and without pyplot."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neurosql import files

__all__ = ["Figure", "colormaps", "get_data_path", "printable", "save", "ticker", "verbatim"]


@contextmanager
def _errors_only(name: str) -> Iterator[None]:
    """Let a logger report errors only."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


# Without a home folder to write to, matplotlib keeps its cache in a temporary one and warns about it. Figures
# are made without pyplot: they are drawn by Agg whatever backend the user has chosen, and leave that choice alone.
with _errors_only("matplotlib"):
    from matplotlib import colormaps, get_data_path, ticker
    from matplotlib.figure import Figure


LONGEST = 40
"""Characters of a name that matplotlib is to draw; more would leave no room for what is named."""


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, whole or not at all."""
    content = io.BytesIO()
    figure.savefig(content, dpi=110)
    files.replace(path, content.getvalue())


def printable(text: str) -> str:
    """Somebody's text with a mark in place of each character that can't be drawn."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def verbatim(text: str) -> str:
    """Somebody's text as matplotlib is to draw it.

    It would read what stands between two dollar signs as a formula, and hide a label that begins with an underscore.
    """
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    shown = printable(short).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
