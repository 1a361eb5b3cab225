"""Runs of a bench on a Dask cluster: each goes to a worker as JSON, and what it wrote comes back as bytes.

A cluster runs whatever it is sent, and its answers are trusted as the package itself is: use your own.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import neurosql
from neurosql import files, intake
from neurosql.bench import queue
from neurosql.bench.declare import Job
from neurosql.bench.jobs import JOB, LOCK, REASON
from neurosql.bench.queue import Plan
from neurosql.errors import InputError

SCHEME = "dask://"
PATIENCE = 10
"""Seconds to wait for the scheduler."""
LEFT_THERE = (JOB, LOCK)
"""Files of a run that do not come back."""

Brought = tuple[int, dict[str, bytes]]
"""The exit status of a run, and its files by their paths in its folder."""


@dataclass(frozen=True)
class Ready:
    """What a worker says about itself."""

    version: str
    vgg: bool
    """Whether it has the published weights behind VGG features."""


def ready() -> Ready:
    """Run on each worker before anything is sent to it."""
    from neurosql.metrics import weights

    return Ready(neurosql.__version__, weights.path_of(queue.VGG).is_file())


def carried_out(order: bytes, alone: bool) -> Brought:
    """Run on a worker: carry out an order in a process and a folder of its own."""
    from distributed import get_worker

    # Dask cleans up after workers that were killed.
    with tempfile.TemporaryDirectory(prefix="neurosql-", dir=get_worker().local_directory) as scratch:
        folder = Path(scratch)
        (folder / JOB).write_bytes(order)
        status = queue.work_in(folder, alone).wait()
        found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in LEFT_THERE]
        return status, {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


class Remote:
    """A run on a worker. Its files are written here when it has ended."""

    def __init__(self, future: Any, folder: Path) -> None:
        self.future, self.folder = future, folder

    def poll(self) -> int | None:
        """The exit status; None while it is running."""
        if not self.future.done():
            return None
        if self.future.status not in ("finished", "error"):
            raise InputError("the connection to the cluster was lost: run the same command again to continue")
        if (error := self.future.exception()) is not None:
            files.replace(self.folder / REASON, f"{type(error).__name__}: {error}".encode())
            return 1
        status, brought = self.future.result()
        for name, content in brought.items():
            files.replace(intake.inside(self.folder, self.folder / name), content)
        return int(status)

    def terminate(self) -> None:
        """Give up on the run. A worker that is in the middle of it finishes it for nothing."""
        self.future.cancel()

    def wait(self) -> int:
        """There is nothing to wait for."""
        return 0


@dataclass(frozen=True)
class Cluster:
    """A Dask cluster that is ready for runs."""

    client: Any
    slots: int
    """How many runs it takes at once: one per thread of its workers."""

    def start(self, plan: Plan, job: Job) -> Remote:
        """Send a run to the cluster."""
        folder = plan.folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REASON).unlink(missing_ok=True)
        # Not pure: Dask would otherwise answer a second attempt with what it remembers of the first.
        future = self.client.submit(carried_out, queue.order(plan, job), job.alone, pure=False)
        return Remote(future, folder)


@contextmanager
def connected(address: str, vgg: bool = False) -> Iterator[Cluster]:
    """The cluster at `dask://HOST:PORT`; an InputError if it, or one of its workers, can't be used.

    `vgg` says that runs need the published weights behind VGG features.
    """
    place = address.removeprefix(SCHEME)
    try:
        from distributed import Client
    except ImportError:
        raise InputError(f"{SCHEME} needs Dask: pip install 'neurosql-torch[cluster]'") from None
    with _silent("distributed"):
        yield from _cluster(Client, place, vgg)


def _cluster(kind: Any, place: str, vgg: bool) -> Iterator[Cluster]:
    try:
        client = kind(f"tcp://{place}", timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"no Dask scheduler answers at {place!r}: {words}") from None
    with client:
        threads = client.nthreads()
        if not threads:
            raise InputError(f"the cluster has no workers: start some with dask worker tcp://{place}")
        _check(client, vgg)
        yield Cluster(client, sum(threads.values()))


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a package from logging: a connection that breaks is told in one sentence, not in tracebacks."""
    known = [log for key, log in logging.Logger.manager.loggerDict.items() if key.partition(".")[0] == name]
    levels = {log: log.level for log in known if isinstance(log, logging.Logger)}
    for log in levels:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for log, level in levels.items():
            log.setLevel(level)


def _check(client: Any, vgg: bool) -> None:
    """Refuse workers that would give other results than this machine, or none."""
    for worker, said in client.run(ready, on_error="return").items():
        if isinstance(said, Exception):
            raise InputError(f"worker {worker} can't run neurosql {neurosql.__version__}: {said}")
        if said.version != neurosql.__version__:
            raise InputError(f"worker {worker} has neurosql {said.version}, but this is {neurosql.__version__}")
        if vgg and not said.vgg:
            raise InputError(f"worker {worker} lacks published weights: run neurosql weights fetch {queue.VGG} there")
