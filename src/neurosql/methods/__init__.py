"""Learning principles, one file each; `make` builds one by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from neurosql.methods.options import NAMES

if TYPE_CHECKING:
    from neurosql.methods.base import Method, Task

__all__ = ["NAMES", "make"]

_CLASS = {
    "neurosql": ("neurosql", "QuantileAssignment"),
    "vae": ("vae", "VAE"),
    "gan": ("gan", "GAN"),
    "ddpm": ("ddpm", "DDPM"),
    "imle": ("imle", "IMLE"),
    "rs-imle": ("imle", "RSIMLE"),
    "glo": ("glo", "GLO"),
    "rae": ("rae", "RAE"),
    "ot-cfm": ("ot_cfm", "OTCFM"),
}


def make(task: Task) -> Method:
    """The method that the task's settings name, before it has seen any images."""
    module, name = _CLASS[task.settings.method]
    kind: type[Method] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return kind.build(task)
