"""The commands as Python functions, from train and resume to tune and reproduce.

The command line, a page and a notebook call these; an `Observer` receives the progress. Each is imported on first use:
what needs no torch does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurosql.app.checking import check_data
    from neurosql.app.describing import describe
    from neurosql.app.encoding import codes, encode
    from neurosql.app.evaluating import evaluate
    from neurosql.app.exporting import for_sharing
    from neurosql.app.observer import Observer, Terminal
    from neurosql.app.portable.onnx import to_onnx
    from neurosql.app.portable.page import to_html
    from neurosql.app.reporting import report
    from neurosql.app.reproducing import reproduce
    from neurosql.app.sampling import sample
    from neurosql.app.training import help_to_resume, help_to_train, resume, train
    from neurosql.app.tuning import tune

__all__ = [
    "Observer",
    "Terminal",
    "check_data",
    "codes",
    "describe",
    "encode",
    "evaluate",
    "for_sharing",
    "help_to_resume",
    "help_to_train",
    "report",
    "reproduce",
    "resume",
    "sample",
    "to_html",
    "to_onnx",
    "train",
    "tune",
]

_HOMES = {
    **{"check_data": "checking", "describe": "describing", "codes": "encoding", "encode": "encoding"},
    **{"evaluate": "evaluating", "for_sharing": "exporting", "Observer": "observer", "Terminal": "observer"},
    **{"report": "reporting", "reproduce": "reproducing", "sample": "sampling", "resume": "training"},
    **{"train": "training", "help_to_train": "training", "help_to_resume": "training", "tune": "tuning"},
    **{"to_html": "portable.page", "to_onnx": "portable.onnx"},
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"neurosql.app.{_HOMES[name]}"), name)
