"""Learning principles, one file each; `make` builds the one that a task's settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neurosql.registry import imported
from neurosql.settings import METHODS

if TYPE_CHECKING:
    from neurosql.methods.base import Method, Task


def make(task: Task) -> Method:
    """The method that the task's settings name, before it has seen any images."""
    kind: type[Method] = imported(METHODS[task.settings.method].implementation)
    return kind.build(task)
