"""A bench as a SLURM array: a script with one task per part of the runs, and the command that joins their results."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neurosql import children, files
from neurosql.bench import rows
from neurosql.bench.queue import Plan
from neurosql.errors import InputError

SCRIPT, PARTS = "slurm.sh", "parts"
MEMORY = "2G"
"""Memory per run: what the queue expects a run to need, and some more."""
NUMBER = '"$SLURM_ARRAY_TASK_ID"'


@dataclass(frozen=True)
class Array:
    """A script that is ready for `sbatch`."""

    script: Path
    merge: str
    """The shell command that joins the results of all tasks."""
    tasks: int


def write(plan: Plan, budget: str, options: Sequence[str], tasks: int, slots: int) -> Array:
    """Write the script of an array of that many tasks, each with `slots` runs at once.

    `options` are the words after `neurosql bench run`, without those that say where and which part. What the tables of
    the plan hold already is not run again.
    """
    out = plan.out.resolve()
    python = children.command("-m", "neurosql", "bench")
    for number in range(1, tasks + 1):
        _begin(plan, out / PARTS / f"{number}-of-{tasks}")
    part = f"{shlex.quote(str(out / PARTS))}/{NUMBER}-of-{tasks}"
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=neurosql-bench",
        f"#SBATCH --array=1-{tasks}",
        f"#SBATCH --cpus-per-task={slots}",
        f"#SBATCH --mem-per-cpu={MEMORY}",
        *(["#SBATCH --exclusive"] if any(job.alone for job in plan.left) else []),
        "#SBATCH --output=/dev/null",
        "",
        "# Each task runs one part of the bench. Submit the script again to continue: what is done stays done.",
        "set -eu",
        f"part={part}",
        'mkdir -p "$part"',
        'exec >> "$part/log.txt" 2>&1',
        f"exec {shlex.join([*python, 'run', *options, '--jobs', str(slots)])} \\",
        f'    --shard {NUMBER}/{tasks} --out "$part"',
        "",
    ]
    script = out / SCRIPT
    files.replace(script, "\n".join(lines).encode())
    # The shell finds the parts: also those of an earlier array with another number of tasks.
    merge = f"{shlex.join([*python, 'merge'])} {shlex.quote(str(out / PARTS))}/* "
    return Array(script, merge + shlex.join(["--out", str(out), "--budget", budget]), tasks)


def _begin(plan: Plan, folder: Path) -> None:
    """Give a part the results that are known, so that its task does not run them again."""
    folder.mkdir(parents=True, exist_ok=True)
    there = [rows.read(folder / f"{name}.csv") for name in plan.jobs if (folder / f"{name}.csv").is_file()]
    Plan(folder, plan.jobs, results=rows.merge([plan.results, *there])).save()


def submit(array: Array) -> tuple[str, str]:
    """Hand the array to SLURM, and the merge to follow it; returns the numbers of both jobs."""
    if shutil.which("sbatch") is None:
        raise InputError(f"there is no sbatch on this machine: copy {array.script} to one that has it")
    first = _sbatch(str(array.script))
    # After any end: the results of tasks that succeeded are joined even if another failed.
    after = [f"--dependency=afterany:{first}", "--job-name=neurosql-merge", "--output=/dev/null"]
    return first, _sbatch(*after, f"--wrap={array.merge}")


def _sbatch(*arguments: str) -> str:
    """The number of a submitted job."""
    done = subprocess.run(["sbatch", "--parsable", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"sbatch refused the job: {done.stderr.strip() or f'status {done.returncode}'}")
    # The name of the cluster may follow.
    return done.stdout.strip().partition(";")[0]
