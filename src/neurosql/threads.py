"""How many threads a training uses: the quickest number in a short trial.

On a busy machine two threads wait for each other at every layer, and a run with two takes several times as long as with
one. How busy the machine is can't be asked for; it can be tried. The number is recorded with the run, and resuming and
reproducing use it again: the bits of a run depend on it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from neurosql import precision
from neurosql.errors import InputError
from neurosql.methods.base import Task
from neurosql.modality import of_shape
from neurosql.settings import Settings
from neurosql.settings.sections import AUTO

ROUNDS = 5
WARM_UP = 2
LARGEST_BATCH = 64
"""Images of a trial step: larger batches take longer, and say the same."""
LARGEST_NETWORK = 20_000_000
"""Parameters of the largest network that is tried."""


@dataclass(frozen=True)
class Trial:
    """Seconds of a step by number of threads."""

    seconds: dict[int, float]

    @property
    def quickest(self) -> int:
        """The number of threads with which a step took least time."""
        return min(self.seconds, key=self.seconds.__getitem__)

    def __str__(self) -> str:
        tried = ", ".join(f"{1e3 * took:.0f} ms with {count}" for count, took in sorted(self.seconds.items()))
        return f"{self.quickest} of {max(self.seconds)}: a step takes {tried}"


def race(step: Callable[[], None], counts: Sequence[int], clock: Callable[[], float] = time.perf_counter) -> Trial:
    """Time a step with each number of threads, in turn, round after round; the median counts."""
    before = torch.get_num_threads()
    taken: dict[int, list[float]] = {count: [] for count in counts}
    try:
        for turn in range(WARM_UP + ROUNDS):
            for count in counts:
                torch.set_num_threads(count)
                began = clock()
                step()
                if turn >= WARM_UP:
                    taken[count].append(clock() - began)
    finally:
        torch.set_num_threads(before)
    return Trial({count: statistics.median(seconds) for count, seconds in taken.items()})


def _task(settings: Settings, shape: tuple[int, ...]) -> Task:
    """What a trial trains; a latent dimension that the data decide is 2."""
    chosen = settings.resolve(of_shape(shape))
    if chosen.generator.latent_dim == AUTO:
        chosen = replace(chosen, generator=replace(chosen.generator, latent_dim=2))
    return Task(precision.resolved(chosen, precision.has_bfloat16(torch.device("cpu"))), shape)


def step_of(settings: Settings, shape: tuple[int, ...]) -> Callable[[], None]:
    """A step like those of a run on samples of that shape: forward, loss and backward of the generator."""
    task = _task(settings, shape)
    net, cost = task.generator(), task.cost
    random = torch.Generator().manual_seed(0)
    batch = max(2, min(settings.training.batch_size, LARGEST_BATCH))
    z, x = torch.randn(batch, task.latent_dim, generator=random), torch.rand(batch, *shape, generator=random)

    def step() -> None:
        with precision.casting([net], task.settings.training.precision):
            cost.paired(x, net(z)).mean().backward()

    return step


@contextmanager
def for_training(
    settings: Settings, shape: tuple[int, ...], wanted: int | None, say: Callable[[str], None]
) -> Iterator[None]:
    """As many threads as are wanted, within the context; None chooses by a trial, and says the result.

    There is no trial on a GPU, on one core, for a network whose memory must be estimated first, or where the
    environment says how many (OMP_NUM_THREADS).
    """
    before = torch.get_num_threads()
    if wanted is not None and wanted < 1:
        raise InputError(f"threads must be at least 1, got {wanted}")
    if wanted is None and settings.training.device == "cpu" and before > 1 and "OMP_NUM_THREADS" not in os.environ:
        powers = [2**k for k in range(before.bit_length()) if 2**k < before]
        if _task(settings, shape).generator_parameters() <= LARGEST_NETWORK:
            trial = race(step_of(settings, shape), (*powers, before))
            wanted = trial.quickest
            say(f"threads    {trial}")
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
