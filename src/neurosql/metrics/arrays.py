"""Scores take arrays; a tensor is taken as one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from neurosql.data.given import to_array

P = ParamSpec("P")
T = TypeVar("T")


def takes_tensors(score: Callable[P, T]) -> Callable[P, T]:
    """A function of arrays that also takes torch tensors in their place, on any device."""

    @wraps(score)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        own: Any = {name: _array(value) for name, value in kwargs.items()}
        return score(*map(_array, args), **own)

    return called


def _array(value: Any) -> Any:
    return to_array(value) if hasattr(value, "detach") and not callable(value) else value
