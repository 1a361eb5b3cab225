"""Where the time goes: seconds in each named part of a run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds spent in each named part since the last reading."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - began

    def add(self, part: str, seconds: float) -> None:
        """Count seconds that were measured elsewhere."""
        self.seconds[part] += seconds

    def read(self) -> dict[str, float]:
        """The seconds by part; the clock starts again."""
        seconds = dict(self.seconds)
        self.seconds.clear()
        return seconds
