"""What `neurosql bench` does, once its arguments are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neurosql import bench
from neurosql.bench import migrate as migration
from neurosql.bench import queue, rows, sources
from neurosql.bench.declare import SCALES
from neurosql.bench.experiments import EXPERIMENTS, find
from neurosql.errors import InputError


def show(budget: str) -> None:
    """List the experiments with their numbers of runs."""
    width = max(map(len, EXPERIMENTS))
    for name in EXPERIMENTS:
        experiment = find(name)
        count = len({job.key for job in experiment.jobs(budget)})
        print(f"{name:<{width}}  {count:>4} runs  {experiment.title}. {experiment.question}")


def run(
    names: Sequence[str],
    budget: str,
    seeds: int | None,
    out: str | None,
    root: str | None,
    slots: int | None,
    shard: str,
    retry: bool,
    rescore: bool,
    dry: bool,
) -> None:
    """Run what is left of some experiments."""
    if not names:
        raise InputError("name an experiment, or all: `neurosql bench list` shows them")
    chosen = [find(name) for name in (EXPERIMENTS if "all" in names else dict.fromkeys(names))]
    for what, value in (("seeds", seeds), ("jobs", slots)):
        if value is not None and value < 1:
            raise InputError(f"{what} must be at least 1, got {value}")
    if root is not None and not Path(root).is_dir():
        raise InputError(f"no such folder: {root}")
    folder = Path(out) if out else Path("results") / budget
    plan = queue.plan(chosen, budget, folder, seeds, queue.shard_of(shard), root, retry, rescore and not dry)
    every = {job.key for jobs in plan.jobs.values() for job in jobs}
    if plan.missing:
        print(f"left out   {sources.how_to_get(plan.missing)}")
    print(f"bench      {len(every & plan.results.keys())} of {len(every)} runs are done, {len(plan.left)} to do")
    if dry:
        if lacking := plan.lacking():
            print(f"lacking    {lacking}")
        for job in plan.left:
            print(f"           {job.describe()}")
        return
    if not plan.left and not every & plan.results.keys():
        raise InputError("nothing to run")
    slots = slots or queue.at_once()
    try:
        queue.run(plan, slots)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; run the same command again to continue") from None
    plan.save()
    failed = [row for key, row in plan.results.items() if key in every and row["status"] == rows.FAILED]
    if failed:
        print(f"failed     {len(failed)} runs: the reasons are in the table; --retry repeats them")
    for name in plan.jobs:
        if plan.table(name).is_file():
            print(f"wrote      {plan.table(name)}")


def merge(folders: Sequence[str], out: str, budget: str) -> None:
    """Join the results of several machines."""
    counts = bench.merge(folders, out, budget)
    if not counts:
        raise InputError(f"no results in {', '.join(folders)}")
    for name, count in counts.items():
        print(f"wrote      {Path(out) / f'{name}.csv'}: {count} runs")


def migrate(folder: str, budget: str | None) -> None:
    """Bring results of earlier versions up to date, and say what was done."""
    budget = budget or Path(folder).resolve().name
    if budget not in SCALES:
        raise InputError(f"give the budget of {folder} with --budget: its name is none of {', '.join(SCALES)}")
    moved = migration.migrate(Path(folder), budget)
    for done in moved:
        print(f"migrated   {done.sentence()}")
        for words in done.unmatched:
            print(f"unmatched  {done.name}.csv: {words}")
    print(f"re-keyed   {sum(len(done.rekeyed) for done in moved)} of {sum(done.runs for done in moved)} runs")
