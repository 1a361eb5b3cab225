"""Readers for what people have on disk. `load` finds the one that fits; each reader is a file of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurosql.data.catalogue import NAMES, load
    from neurosql.data.dataset import from_dataset
    from neurosql.data.imageset import LAYOUTS, ImageSet, from_array

__all__ = ["LAYOUTS", "NAMES", "ImageSet", "from_array", "from_dataset", "load"]

# Loaded when they are first used: the processes that decode need none of them and start the sooner.
_HOMES = {
    **{"NAMES": "catalogue", "load": "catalogue", "from_dataset": "dataset"},
    **{"LAYOUTS": "imageset", "ImageSet": "imageset", "from_array": "imageset"},
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
