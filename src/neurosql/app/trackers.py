"""Send the figures of each epoch to a tracker of experiments, such as TensorBoard.

A tracker is an observer of `app.train`, and a callback of `NeuroSQL.fit` and `neurosql.fit`. For another program than
TensorBoard, write a subclass of `Tracker` with a `number` of its own.
"""

from __future__ import annotations

from numbers import Real
from pathlib import Path
from typing import Any

from neurosql.app.observer import Observer
from neurosql.errors import InputError

INSTALL = "pip install 'neurosql-torch[tensorboard]'"
STEP = "epoch"


class Tracker(Observer):
    """Hears the figures of each epoch and passes every number on, under its name in `history.jsonl`.

    Use it as a context manager, or call `close` when training is done. A subclass says what `number` and `close` do.
    """

    def epoch(self, figures: dict[str, Any]) -> None:
        """Pass on the numbers of an epoch."""
        step = int(figures[STEP])
        for name, value in figures.items():
            if name != STEP and isinstance(value, Real) and not isinstance(value, bool):
                self.number(name, float(value), step)

    def __call__(self, figures: dict[str, Any]) -> None:
        """The same, as a callback of `fit`; it never stops a training."""
        self.epoch(figures)

    def number(self, name: str, value: float, step: int) -> None:
        """Record one figure of an epoch."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what is still in memory."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TensorBoard(Tracker):
    """Writes event files to a folder, for `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(f"TensorBoard is not installed: {INSTALL}") from error
        self._writer: Any = SummaryWriter(str(folder))

    def number(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
