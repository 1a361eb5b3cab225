"""The queue of a bench: one process per run, as many at once as the machine allows, resumable at any time."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tqdm import tqdm

from neurosql import children, files, intake
from neurosql.bench import rows, sources
from neurosql.bench.declare import Experiment, Job
from neurosql.bench.jobs import JOB, JOBS, LEFT, LOG, REASON, RESULT
from neurosql.errors import InputError

GIGABYTES_EACH = 1.5
"""The most memory that a run is expected to need."""
VGG = "lpips-vgg"
"""The published weights behind VGG features."""
POLL = 0.2
LAST_WORDS = 400
LINES = 16
"""Most runs under way that are shown, one per line."""
MAX_LEFT = 2**26
"""Most bytes of a file that a run leaves for the sheets."""


@dataclass
class Plan:
    """What a bench has to do: all of its jobs, in order, and those that are left."""

    out: Path
    jobs: dict[str, list[Job]]
    """By experiment; a job that two of them share is in both lists, and run once."""
    root: str | None = None
    left: list[Job] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Data sets that were not found."""
    results: dict[rows.Key, rows.Row] = field(default_factory=dict)

    def folder(self, job: Job) -> Path:
        """The folder that a job works in; an InputError if it leads out of the folder of the results."""
        folder = self.out / JOBS / job.folder
        intake.inside(self.out, folder)
        return folder

    def table(self, experiment: str) -> Path:
        """The table of an experiment's runs."""
        return self.out / f"{experiment}.csv"

    def lacking(self) -> str:
        """What to do about published weights that runs need and that are not here; empty if nothing is lacking."""
        from neurosql.metrics import weights

        count = sum(job.vgg for job in self.left)
        if not count or weights.path_of(VGG).is_file():
            return ""
        return f"{count} of the runs to do compare images by VGG features, but {weights.how_to_get(VGG)}"

    def save(self) -> None:
        """Write the table of every experiment: the results so far, in the order of the declaration."""
        for name, jobs in self.jobs.items():
            found = [rows.identity(job) | self._outcome(job) for job in jobs if job.key in self.results]
            if found:
                rows.write(self.table(name), found)

    def _outcome(self, job: Job) -> rows.Row:
        """A result without its identity: each experiment may have its own name for the same run."""
        return {k: v for k, v in self.results[job.key].items() if k not in rows.IDENTITY}


def plan(
    experiments: list[Experiment],
    budget: str,
    out: Path,
    seeds: int | None = None,
    shard: tuple[int, int] = (1, 1),
    root: str | None = None,
    retry: bool = False,
    rescore: bool = False,
) -> Plan:
    """What the tables hold already, and what is left to do.

    `retry` repeats runs that failed; `rescore` evaluates trained models again, if they still exist.
    """
    if seeds is not None and seeds > rows.MAX_SEEDS:
        raise InputError(f"seeds must be at most {rows.MAX_SEEDS}, got {seeds}")
    jobs = {experiment.name: list(experiment.jobs(budget, seeds)) for experiment in experiments}
    made = Plan(out, jobs, root)
    made.results = rows.merge(rows.read(path) for path in _tables(out, list(jobs)))
    if retry:
        made.results = {key: row for key, row in made.results.items() if row["status"] == rows.DONE}
    every = {job.key: job for some in jobs.values() for job in some}
    if rescore:
        _forget_scores(made, every.values())
    part, parts = shard
    mine = [job for number, job in enumerate(every.values()) if number % parts == part - 1]
    undone = {job: sources.path_of(job, root) for job in mine if job.key not in made.results}
    made.missing = sorted({job.data for job, source in undone.items() if source is None})
    made.left = [job for job, source in undone.items() if source is not None]
    # Seed by seed, so that first tables exist soon; runs that measure time come last, when nothing else is running.
    made.left.sort(key=lambda job: (job.alone, job.seed))
    return made


def _tables(out: Path, first: list[str]) -> list[Path]:
    """All tables of a folder, the named ones first: a run that an experiment needs may be in another's table."""
    named = [out / f"{name}.csv" for name in first]
    return named + [path for path in sorted(out.glob("*.csv")) if path not in named and rows.is_table(path)]


def _forget_scores(plan: Plan, jobs: Iterable[Job]) -> None:
    from neurosql.bench import work

    for job in jobs:
        folder = plan.folder(job)
        if job.samples and job.key in plan.results and work.is_trained(folder):
            del plan.results[job.key]
            (folder / RESULT).unlink(missing_ok=True)


def at_once() -> int:
    """How many runs the machine can take at once, by its cores and its memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = float("inf")
    with suppress(ValueError, OSError, AttributeError):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return max(1, min(cores, int(free / GIGABYTES_EACH)))


class Task(Protocol):
    """A run under way, here or elsewhere: what the queue asks of a `subprocess.Popen`."""

    def poll(self) -> int | None:
        """The exit status; None while it is running. Once there is a status, the job's folder has its files."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def wait(self) -> int:
        """Wait until it has stopped."""


def here(plan: Plan, job: Job) -> Task:
    """Start a run in a process of its own on this machine."""
    folder = plan.folder(job)
    folder.mkdir(parents=True, exist_ok=True)
    files.replace(folder / JOB, order(plan, job))
    (folder / REASON).unlink(missing_ok=True)
    return work_in(folder, job.alone)


def order(plan: Plan, job: Job) -> bytes:
    """What `neurosql.bench.work` reads: the job, and where its data are."""
    source = sources.path_of(job, plan.root)
    assert source is not None
    return json.dumps({"job": job.record(), "source": source}, indent=1).encode()


def work_in(folder: Path, alone: bool) -> subprocess.Popen[bytes]:
    """Start the process that carries out the order in a folder, with one thread or, if it is alone, with all."""
    environment = children.environment(**{} if alone else {"OMP_NUM_THREADS": "1"})
    with (folder / LOG).open("ab") as log:
        command = children.command("-m", "neurosql.bench.work", str(folder))
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def run(plan: Plan, slots: int, progress: bool = True, start: Callable[[Plan, Job], Task] = here) -> None:
    """Run what is left of a plan. Ctrl-C stops it; the next call continues. `start` begins a run, here or elsewhere.

    Without the published weights that its runs need, nothing is run: hours later, their tables would lack columns.
    """
    if lacking := plan.lacking():
        raise InputError(lacking)
    view = _View(plan, slots, progress)
    pending = list(plan.left)
    running: dict[Task, Job] = {}
    try:
        while pending or running:
            while pending and _may_start(pending[0], running, slots):
                job = pending.pop(0)
                running[start(plan, job)] = job
                view.began(job)
            ended = {task: status for task in running if (status := task.poll()) is not None}
            for task, status in ended.items():
                job = running.pop(task)
                row = _collect(plan, job, status)
                plan.results[job.key] = row
                view.ended(job, row)
                plan.save()
                if row["status"] == rows.FAILED:
                    tqdm.write(f"failed     {job.describe()}: {row['reason']}", file=sys.stderr)
            view.show(pending, list(running.values()))
            time.sleep(POLL)
    finally:
        for task in running:
            task.terminate()
        for task in running:
            task.wait()
        view.close()


def _may_start(job: Job, running: dict[Task, Job], slots: int) -> bool:
    if job.alone or any(other.alone for other in running.values()):
        return not running
    return len(running) < slots


def _collect(plan: Plan, job: Job, status: int) -> rows.Row:
    """The row that a run left, or a row that says why there is none."""
    from neurosql.bench import work

    folder = plan.folder(job)
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        result = json.loads(intake.read(intake.inside(plan.out, folder / RESULT), rows.MAX_BYTES))
        return rows.from_record(result | rows.identity(job))
    reason = f"ended with status {status}"
    with suppress(OSError):
        words = (folder / REASON).read_text("utf-8", "replace").strip()
        reason = words.splitlines()[-1][:LAST_WORDS] if words else reason
    return rows.identity(job) | {"status": rows.FAILED, "reason": reason} | work.machine()


class _View:
    """A bar for the whole bench, with the time that is left, and a line for each run under way."""

    def __init__(self, plan: Plan, slots: int, progress: bool) -> None:
        self.plan, self.slots = plan, slots
        off = None if progress else True
        self.total = len(plan.left)
        form = "{desc}: {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"
        self.bar = tqdm(total=self.total, desc="bench", bar_format=form, disable=off, leave=True)
        self.lines = [
            tqdm(total=0, bar_format="{desc}", position=1 + i, disable=off, leave=False)
            for i in range(min(slots, LINES))
        ]
        self.shown = 0.0
        self.start: dict[Job, float] = {}
        self.usual = _Usual(plan.results.values())
        self.speed = _Speed()

    def began(self, job: Job) -> None:
        """Take note of a run that begins."""
        self.start[job] = time.monotonic()

    def ended(self, job: Job, row: rows.Row) -> None:
        """Take note of a run that has ended, and of how long it took."""
        took = time.monotonic() - self.start.pop(job)
        if row["status"] == rows.DONE:
            if self.usual.known:
                self.speed.saw(took, self.usual.of(job))
            self.usual.add(row)

    def show(self, pending: list[Job], running: list[Job]) -> None:
        if time.monotonic() - self.shown < 1.0 and (pending or running):
            return
        self.shown = time.monotonic()
        self.bar.n = self.total - len(pending) - len(running)
        left = self.remaining(pending, running)
        words = "the time left is known after the first run" if left is None else f"about {_duration(left)} left"
        self.bar.set_postfix_str(words, refresh=False)
        self.bar.refresh()
        for line, job in zip(self.lines, [*running, *[None] * self.slots]):
            line.set_description_str("" if job is None else f"  {job.describe()}{self._epoch(job)}")

    def _epoch(self, job: Job) -> str:
        with suppress(OSError):
            done = (self.plan.folder(job) / "run" / "history.jsonl").read_bytes().count(b"\n")
            return f"  epoch {done}/{job.settings.training.epochs}"
        return ""

    def remaining(self, pending: list[Job], running: list[Job]) -> float | None:
        """Seconds left, by runs of the same kind and by how long runs take here and now; None if nothing is known."""
        if not self.usual.known:
            return None
        now, factor = time.monotonic(), self.speed.factor
        together = sum(factor * self.usual.of(job) for job in pending if not job.alone) / self.slots
        together += sum(factor * self.usual.of(job) for job in pending if job.alone)
        under_way = [max(0.0, factor * self.usual.of(job) - (now - self.start.get(job, now))) for job in running]
        return together + sum(under_way) / max(1, len(under_way))

    def close(self) -> None:
        for line in [*self.lines, self.bar]:
            line.close()


class _Usual:
    """How many seconds a run usually takes: those of the same data and contender, else the same data, else all."""

    def __init__(self, results: Iterable[rows.Row]) -> None:
        self.taken: dict[tuple[str, ...], list[float]] = {}
        for row in results:
            if row["status"] == rows.DONE:
                self.add(row)

    @property
    def known(self) -> bool:
        """Whether any run has been counted."""
        return bool(self.taken)

    def add(self, row: rows.Row) -> None:
        """Count one more run."""
        seconds = float(row["seconds"] or 0) + float(row.get("scoring seconds") or 0)
        for kind in ((row["data"], row["arm"]), (row["data"],), ()):
            self.taken.setdefault(kind, []).append(seconds)

    def of(self, job: Job) -> float:
        """The mean over the nearest kind that is known."""
        kind = next(kind for kind in ((job.data, job.arm), (job.data,), ()) if kind in self.taken)
        return statistics.fmean(self.taken[kind])


class _Speed:
    """How much longer runs take here and now than they usually do: earlier ones may be those of another machine."""

    def __init__(self) -> None:
        self.ratios: list[float] = []

    def saw(self, took: float, usual: float) -> None:
        """Count a run that took that long."""
        self.ratios.append(took / max(usual, 1e-3))

    @property
    def factor(self) -> float:
        """The median of the last ten; 1 before the first."""
        return statistics.median(self.ratios[-10:]) if self.ratios else 1.0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def shard_of(text: str) -> tuple[int, int]:
    """`i/k` as numbers, 1 <= i <= k."""
    try:
        part, parts = map(int, text.split("/"))
        if 1 <= part <= parts:
            return part, parts
    except ValueError:
        pass
    raise InputError(f"shard must be i/k with 1 <= i <= k, such as 2/8, got {text!r}")


def merge(experiments: Iterable[Experiment], budget: str, out: Path, others: list[Path]) -> dict[str, int]:
    """Join the tables of other folders into those of `out`, and copy what sheets are drawn from."""
    counts = {}
    for folder in others:
        if not folder.is_dir():
            raise InputError(f"no such folder: {folder}")
    there = {path.stem for folder in others for path in folder.glob("*.csv")}
    for experiment in sorted(experiments, key=lambda experiment: experiment.name):
        if experiment.name in there:
            table = f"{experiment.name}.csv"
            merged = rows.merge(rows.read(folder / table) for folder in [out, *others])
            rows.write(out / table, ordered(experiment, budget, merged))
            counts[experiment.name] = len(merged)
    for folder in others:
        for left in sorted(path for name in LEFT for path in folder.glob(f"{JOBS}/*/{name}")):
            target = out / left.relative_to(folder)
            if not target.exists():
                content = intake.read(intake.inside(folder, left), MAX_LEFT)
                files.replace(intake.inside(out, target), content)
    return counts


def ordered(experiment: Experiment, budget: str, found: dict[rows.Key, rows.Row]) -> list[rows.Row]:
    """Rows in the order of the declaration, then those that are not in it."""
    most = 1 + max((key[1] for key in found), default=0)
    known = [job.key for job in experiment.jobs(budget, most)]
    place = {key: number for number, key in enumerate(known)}
    return [found[key] for key in sorted(found, key=lambda key: (place.get(key, len(place)), key[1], key[0]))]
