"""Generative modelling by quantile assignment.

One generator, a lattice of fixed quantiles of the prior, and an assignment between the two. The names below are
loaded when they are first used, so that ``import neurosql`` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "NeuroSQL": "estimator",
    "fit": "run",
    "open_run": "run",
    "explore": "web.notebook",
    "InputError": "errors",
    "Cost": "cost",
    "Assignment": "assign",
    "ImageSet": "data",
    "assign": "",
    "cost": "",
    "data": "",
    "prior": "",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'neurosql' has no attribute {name!r}")
    if not _HOME[name]:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
