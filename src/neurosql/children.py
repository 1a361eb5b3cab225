"""Child processes in Python that can import this package, but nothing from the current folder.

With `-c` or `-m`, Python looks for modules in the current folder first: a `numpy.py` beside somebody's images would be
run. `-P` leaves that folder out.
"""

from __future__ import annotations

import os
import sys

NEEDED = (
    *("PATH", "HOME", "USERPROFILE", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG", "LC_ALL", "LC_CTYPE"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "PYTHONUSERBASE", "VIRTUAL_ENV"),
)
"""The variables that Python itself may need."""


def command(*arguments: str) -> list[str]:
    """The command line of this Python, with its arguments."""
    return [sys.executable, "-P", *arguments]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, with the folders that it imports from and the given variables."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder), **variables}


def bare_environment(**variables: str) -> dict[str, str]:
    """What Python needs of this process's environment: the passwords and keys that people keep there stay behind."""
    return {name: value for name, value in environment().items() if name in (*NEEDED, "PYTHONPATH")} | variables
