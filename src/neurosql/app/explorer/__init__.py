"""A run as its page needs it: values in, values out, and nothing is ever written to the run."""

from __future__ import annotations

from neurosql.app.explorer.describing import describe, points
from neurosql.app.explorer.landing import Landed, locate
from neurosql.app.explorer.making import Drawn, decode, images, neighbours, reach, sample
from neurosql.app.explorer.opened import Opened, Shown
from neurosql.app.explorer.watching import progress

__all__ = [
    "Drawn",
    "Landed",
    "Opened",
    "Shown",
    "decode",
    "describe",
    "images",
    "locate",
    "neighbours",
    "points",
    "progress",
    "reach",
    "sample",
]
