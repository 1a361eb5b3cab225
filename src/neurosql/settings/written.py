"""Settings as words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """The flags that give settings these values, by field name."""
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words
