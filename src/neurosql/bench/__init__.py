"""Experiments as data: declarations, a queue that runs them, and tables.

    from neurosql import bench

    table = bench.run(experiment, budget="smoke", out="results/own")
    bench.merge(["machine-1", "machine-2"], out="results/own", experiments=[experiment])

An experiment is a `bench.declare.Experiment`; it need not be registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neurosql.bench.declare import Experiment


def run(
    experiment: Experiment,
    budget: str = "laptop",
    out: str | Path | None = None,
    *,
    seeds: int | None = None,
    data: str | None = None,
    at_once: int | None = None,
    retry: bool = False,
    progress: bool = True,
) -> Path:
    """Run what is left of an experiment; returns the path of its table.

    The arguments are those of `neurosql bench run`; `at_once` is the number of runs at the same time.
    """
    from neurosql.bench import queue, sources
    from neurosql.errors import InputError

    folder = Path(out) if out else Path("results") / budget
    plan = queue.plan([experiment], budget, folder, seeds, root=data, retry=retry)
    if plan.missing and not plan.left and not plan.results:
        raise InputError(sources.how_to_get(plan.missing))
    queue.run(plan, at_once or queue.at_once(), progress)
    plan.save()
    return plan.table(experiment.name)


def merge(
    folders: Sequence[str | Path],
    out: str | Path,
    budget: str = "laptop",
    experiments: Iterable[Experiment] | None = None,
) -> dict[str, int]:
    """Join the results of several machines; returns the number of runs in each table.

    Without `experiments`, the tables of all registered ones are joined.
    """
    from neurosql.bench import queue
    from neurosql.bench.experiments import EXPERIMENTS, find

    chosen = [find(name) for name in EXPERIMENTS] if experiments is None else list(experiments)
    return queue.merge(chosen, budget, Path(out), [Path(folder) for folder in folders])
