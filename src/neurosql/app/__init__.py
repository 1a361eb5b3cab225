"""The commands as Python functions: train, resume, reproduce, sample, codes, encode, evaluate, report, check.

The command line, a page and a notebook call these; an `Observer` receives the progress.
"""

from neurosql.app.checking import check_data
from neurosql.app.encoding import codes, encode
from neurosql.app.evaluating import evaluate
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
    "encode",
    "evaluate",
    "report",
    "reproduce",
    "resume",
    "sample",
    "train",
]
