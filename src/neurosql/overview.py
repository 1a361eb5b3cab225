"""The first page of help: what there is, in the order in which people need it."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from typing import Any

WIDEST = 100


def overview(commands: Iterable[type[Any]]) -> str:
    """What `neurosql --help` prints: each command with its docstring, and what to type first."""
    width = min(WIDEST, shutil.get_terminal_size().columns)
    described = {command.__name__.lower(): (command.__doc__ or "").splitlines()[0] for command in commands}
    column = max(map(len, described)) + 4
    lines = [
        "usage: neurosql COMMAND ...",
        "",
        *textwrap.wrap("Generative modelling by quantile assignment: a generator, a lattice, an assignment.", width),
        "",
        "commands:",
    ]
    for name, text in described.items():
        first, *rest = textwrap.wrap(text, width - column)
        lines += [f"  {name:<{column - 2}}{first}", *(" " * column + line for line in rest)]
    lines += [
        "",
        "begin with:",
        "  neurosql train mnist-sample        learn from the embedded digits",
        "  neurosql data check FOLDER         see how your own images are read",
        "",
        "`neurosql COMMAND --help` explains a command, `neurosql --version` says which",
        "version this is.",
    ]
    return "\n".join(lines)
