"""The compiled extension, if it is installed and wanted.

`native()` is None if there was no compiler when the package was installed, or if the environment variable
NEUROSQL_NATIVE is 0: cost.py and assign/ then take their plain paths, which give the same results more slowly.
"""

from __future__ import annotations

import importlib
import logging
import os
from functools import cache
from typing import Any

OFF = ("0", "off", "no")


def native() -> Any | None:
    """The extension module, or None."""
    return None if os.environ.get("NEUROSQL_NATIVE", "").lower() in OFF else _load()


@cache
def _load() -> Any | None:
    try:
        return importlib.import_module("neurosql._native")
    except ImportError:
        logging.getLogger("neurosql").warning(
            "the compiled extension is not installed: cost matrices and assignments take the slower plain paths"
        )
        return None


def describe() -> dict[str, str]:
    """What computes the cost matrix and what solves the assignment here."""
    module = native()
    if module is None:
        return {"cost": "torch", "assignment": "scipy"}
    return {"cost": f"compiled, {module.instruction_set()}", "assignment": "compiled"}
