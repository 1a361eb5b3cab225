"""matplotlib, set up for every drawing here: quiet, and without pyplot."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Figure", "colormaps", "get_data_path", "ticker"]


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
