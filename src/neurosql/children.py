"""Child processes in Python that can import this package, but nothing from the current folder.

With `-c` or `-m`, Python looks for modules in the current folder first: a `numpy.py` beside somebody's images would be
run. `-P` leaves that folder out.
"""

from __future__ import annotations

import os
import sys


def command(*arguments: str) -> list[str]:
    """The command line of this Python, with its arguments."""
    return [sys.executable, "-P", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, with the folders that it imports from and the given variables."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder), **variables}
