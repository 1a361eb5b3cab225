"""Readers of data on disk. `load` picks the one that fits; each reader has its own file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurosql.data.catalogue import load
    from neurosql.data.dataset import from_dataset
    from neurosql.data.decode import Bad, Decoded, Decoder, Prep
    from neurosql.data.imageset import LAYOUTS, ImageSet, from_array
    from neurosql.data.listing import Arrays, Item, Listing
    from neurosql.data.readers import READERS, ReaderRecord

__all__ = [
    "LAYOUTS",
    "READERS",
    "Arrays",
    "Bad",
    "Decoded",
    "Decoder",
    "ImageSet",
    "Item",
    "Listing",
    "Prep",
    "ReaderRecord",
    "from_array",
    "from_dataset",
    "load",
]

# Loaded on first use: the processes that decode need few of them, and so start faster.
_HOMES = {
    **{"load": "catalogue", "from_dataset": "dataset"},
    **dict.fromkeys(("LAYOUTS", "ImageSet", "from_array"), "imageset"),
    **dict.fromkeys(("READERS", "ReaderRecord"), "readers"),
    **dict.fromkeys(("Bad", "Decoded", "Decoder", "Prep"), "decode"),
    **dict.fromkeys(("Arrays", "Item", "Listing"), "listing"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
