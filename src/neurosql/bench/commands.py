"""What `neurosql bench` does, once its arguments are parsed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from neurosql import bench
from neurosql.bench import cluster, queue, rows, slurm, sources
from neurosql.bench import migrate as migration
from neurosql.bench.declare import SCALES, Job
from neurosql.bench.experiments import EXPERIMENTS, find
from neurosql.errors import InputError
from neurosql.settings import as_flags

SLURM, WHOLE = "slurm", "1/1"
MOST_TASKS = 32


def show(budget: str) -> None:
    """List the experiments with their numbers of runs, and which table or figure of the paper each one is."""
    width = max(map(len, EXPERIMENTS))
    for name in EXPERIMENTS:
        experiment = find(name)
        count = len({job.key for job in experiment.jobs(budget)})
        paper = experiment.printed_as or "ours"
        print(f"{name:<{width}}  {count:>4} runs  {paper:<13}  {experiment.title}. {experiment.question}")


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
    dims: str | None = None,
    methods: str | None = None,
    on: str | None = None,
    tasks: int | None = None,
    submit: bool = False,
) -> None:
    """Run what is left of some experiments, or of the part of them with these latent dimensions and methods.

    `on` says where: None is this machine.
    """
    if not names:
        raise InputError("name an experiment, or all: `neurosql bench list` shows them")
    chosen = [find(name) for name in (EXPERIMENTS if "all" in names else dict.fromkeys(names))]
    for what, value in (("seeds", seeds), ("jobs", slots), ("tasks", tasks)):
        if value is not None and value < 1:
            raise InputError(f"{what} must be at least 1, got {value}")
    if root is not None and not Path(root).is_dir():
        raise InputError(f"no such folder: {root}")
    _check_place(on, shard, rescore, tasks, submit)
    folder = Path(out) if out else Path("results") / budget
    plan = queue.plan(chosen, budget, folder, seeds, queue.shard_of(shard), root, retry, rescore and not dry)
    jobs = [job for some in plan.jobs.values() for job in some]
    wanted = _wanted(jobs, dims, methods)
    plan.left = [job for job in plan.left if job.key in wanted]
    every = {job.key for job in jobs if job.key in wanted}
    if plan.missing:
        print(f"left out   {sources.how_to_get(plan.missing)}")
    print(f"bench      {len(every & plan.results.keys())} of {len(every)} runs are done, {len(plan.left)} to do")
    if dry:
        if lacking := plan.lacking():
            print(f"lacking    {lacking}")
        for job in plan.left:
            print(f"           {job.describe()}")
        return
    # A part of the runs may be empty.
    if not plan.left and not every & plan.results.keys() and shard == WHOLE:
        raise InputError("nothing to run")
    if on == SLURM:
        if lacking := plan.lacking() or ("" if plan.left else "all runs are done: there is nothing to submit"):
            raise InputError(lacking)
        root = root or os.environ.get(sources.VARIABLE)
        asked = {"budget": budget, "seeds": seeds, "dims": dims, "methods": methods, "retry": retry or None}
        asked |= {"data": root and str(Path(root).resolve())}
        words = [*names, *as_flags({name: value for name, value in asked.items() if value is not None})]
        _array(slurm.write(plan, budget, words, tasks or min(len(plan.left), MOST_TASKS), slots or 1), submit)
        return
    try:
        if on is None:
            queue.run(plan, slots or queue.at_once())
        else:
            with cluster.connected(on, any(job.vgg for job in plan.left)) as workers:
                queue.run(plan, slots or workers.slots, start=workers.start)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; run the same command again to continue") from None
    plan.save()
    failed = [row for key, row in plan.results.items() if key in every and row["status"] == rows.FAILED]
    if failed:
        print(f"failed     {len(failed)} runs: the reasons are in the table; --retry repeats them")
    for name in plan.jobs:
        if plan.table(name).is_file():
            print(f"wrote      {plan.table(name)}")


def _check_place(on: str | None, shard: str, rescore: bool, tasks: int | None, submit: bool) -> None:
    """Refuse a place that there is none of, and options that it does not go with."""
    if on != SLURM and (tasks is not None or submit):
        raise InputError(f"{'submit' if submit else 'tasks'} is for SLURM: give --on {SLURM}")
    if on is None:
        return
    if on != SLURM and not on.startswith(cluster.SCHEME):
        raise InputError(f"on must be {cluster.SCHEME}HOST:PORT or {SLURM}, got {on!r}")
    if rescore:
        raise InputError("rescore works where the trained models are: leave out --on")
    if on == SLURM and shard != WHOLE:
        raise InputError(f"the tasks of the array share the runs: leave out --shard, got {shard}")


def _array(array: slurm.Array, submit: bool) -> None:
    """Say what was written and what to do with it, or submit it."""
    print(f"wrote      {array.script}: an array of {array.tasks} tasks")
    if submit:
        first, then = slurm.submit(array)
        print(f"submitted  job {first}, and job {then}, which joins the results")
        return
    print(f"next       {shlex.join(['sbatch', str(array.script)])}")
    print(f"then       {array.merge}")


def _wanted(jobs: Sequence[Job], dims: str | None, methods: str | None) -> set[rows.Key]:
    """The keys of the runs with these latent dimensions, and of these methods or contenders."""
    kept = list(jobs)
    if dims is not None:
        known = {str(job.latent_dim) for job in jobs if job.latent_dim is not None}
        chosen = _names("latent dimension", dims, known)
        # Methods without a latent dimension are compared with those of every dimension.
        kept = [job for job in kept if job.latent_dim is None or str(job.latent_dim) in chosen]
    if methods is not None:
        known = {name for job in jobs for name in (job.settings.method, job.arm)}
        chosen = _names("method", methods, known)
        kept = [job for job in kept if job.settings.method in chosen or job.arm in chosen]
    return {job.key for job in kept}


def _names(what: str, text: str, known: Collection[str]) -> set[str]:
    """The names in a list that is separated by commas. A name may have commas itself: the longest one counts."""
    parts, found = text.split(","), set()
    while parts:
        ends = (end for end in range(len(parts), 0, -1) if ",".join(parts[:end]).strip() in known)
        end = next(ends, None)
        if end is None:
            raise InputError(f"no run has the {what} {parts[0].strip()!r}: there are {'; '.join(sorted(known))}")
        found.add(",".join(parts[:end]).strip())
        parts = parts[end:]
    return found


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
