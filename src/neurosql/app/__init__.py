"""The commands as Python functions, from train and resume to export and reproduce.

The command line, a page and a notebook call these; an `Observer` receives the progress.
"""

from neurosql.app.checking import check_data
from neurosql.app.describing import describe
from neurosql.app.encoding import codes, encode
from neurosql.app.evaluating import evaluate
from neurosql.app.exporting import for_sharing
from neurosql.app.observer import Observer, Terminal
from neurosql.app.reporting import report
from neurosql.app.reproducing import reproduce
from neurosql.app.sampling import sample
from neurosql.app.training import resume, train

__all__ = [
    "Observer",
    "Terminal",
    "check_data",
    "codes",
    "describe",
    "encode",
    "evaluate",
    "for_sharing",
    "report",
    "reproduce",
    "resume",
    "sample",
    "train",
]
