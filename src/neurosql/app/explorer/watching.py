"""How far the training of a run is."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from neurosql import recorded
from neurosql.app.explorer.opened import Opened
from neurosql.checkpoint import RunFolder
from neurosql.errors import InputError

MOST_EPOCHS = 2000
"""Epochs whose figures are shown; of more, the last ones."""


def is_running(folder: RunFolder) -> bool:
    """Whether a process trains the run."""
    return folder.holder() is not None and recorded.state_of(folder) != recorded.FINISHED


def progress(opened: Opened) -> dict[str, Any]:
    """What the page calls progress (see source.js); a new model of the run is taken over first."""
    running = is_running(opened.folder)
    # A model that is being replaced at this moment is found by the next call.
    with suppress(InputError):
        opened.renew()
    history = opened.folder.history()
    shown = [
        {name: value for name, value in figures.items() if isinstance(value, (int, float)) and math.isfinite(value)}
        for figures in history[-MOST_EPOCHS:]
    ]
    return {
        "running": running,
        "state": "in training" if running else recorded.state_of(opened.folder),
        "version": opened.version,
        "epoch": len(history),
        "history": shown,
        "snapshots": [],
    }
