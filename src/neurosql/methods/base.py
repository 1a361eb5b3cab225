"""What the training loop asks of a learning principle."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from neurosql.generators.base import Generator

Update = Callable[[str, Tensor], None]
"""`update(name, loss)`: one clipped step of the optimiser of that name down the gradient of that loss."""


@dataclass(frozen=True)
class Batch:
    """Some training images: their places in the training set (m,), pixels (m, ...) and labels (m,), if any."""

    index: Tensor
    x: Tensor
    label: Tensor | None


class Clock:
    """Seconds spent in each named part since the last reading."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - began

    def read(self) -> dict[str, float]:
        """The seconds by part; the clock starts anew."""
        seconds = dict(self.seconds)
        self.seconds.clear()
        return seconds


class Method(ABC):
    """A learning principle around a generator. All methods run in the same loop on the same budget."""

    generator: Generator
    clock: Clock

    @abstractmethod
    def optimizers(self) -> dict[str, list[nn.Parameter]]:
        """The parameters that each optimiser trains, by the name that `update` takes."""

    @abstractmethod
    def training_step(self, batch: Batch, update: Update) -> dict[str, float]:
        """Learn from one batch; returns the losses to record."""

    @abstractmethod
    def end_epoch(self, epoch: int, epochs: int) -> dict[str, float]:
        """What happens after epoch number `epoch` (from 0) of `epochs`; returns the figures to record."""

    def closing(self) -> int:
        """Prepare the closing fit after the main budget; returns how many epochs it takes."""
        return 0

    @abstractmethod
    def heldout_loss(self, x: Tensor, label: Tensor | None) -> float:
        """Mean loss on images that were not trained on."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that changes in training, as tensors."""

    @abstractmethod
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `state` gave."""
