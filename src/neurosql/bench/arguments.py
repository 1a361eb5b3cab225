"""The arguments of `neurosql bench`: list, run, merge, migrate. What they do is in commands.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from neurosql.presets import Budget


@dataclass(frozen=True)
class ListBench:
    """List the experiments: the paper's tables and figures, and our own."""

    budget: Budget = "laptop"
    """Count the runs of this budget."""

    def __call__(self) -> None:
        from neurosql.bench import commands

        commands.show(self.budget)


@dataclass(frozen=True)
class RunBench:
    """Run experiments. You can stop at any time; the same command continues."""

    names: tyro.conf.Positional[tuple[str, ...]]
    """Experiments, or `all`; `neurosql bench list` shows them."""
    budget: Budget = "laptop"
    """smoke (seconds), laptop (hours on two cores) or paper (the paper's own sizes, for a GPU)."""
    seeds: int | None = None
    """Number of seeds; by default the experiment's own."""
    dims: str | None = None
    """Only runs with these latent dimensions, such as 2,8; methods without a latent dimension are run as well."""
    methods: str | None = None
    """Only runs of these methods or contenders, such as neurosql,vae or "RAE, mapping"."""
    out: str | None = None
    """Folder of the results; by default results/BUDGET."""
    data: str | None = None
    """Folder that holds celeba/, afhq/, oasis/ and mnist/; by default $NEUROSQL_DATA."""
    jobs: int | None = None
    """Number of runs at once, with one thread each; by default as many as cores and memory allow."""
    shard: str = "1/1"
    """i/k: only the i-th of k parts of the runs, to share them between k machines."""
    on: str | None = None
    """Where to run: dask://HOST:PORT sends the runs to the workers of a Dask cluster; slurm writes a script for sbatch
    that runs them as an array. By default, this machine."""
    tasks: int | None = None
    """SLURM only: number of array tasks; by default one per run, but at most 32."""
    submit: bool = False
    """SLURM only: also submit the script, and a job that joins the results."""
    retry: bool = False
    """Repeat runs that failed."""
    rescore: bool = False
    """Evaluate trained models again, if their folders still exist."""
    dry: bool = False
    """Only list what is left to do."""

    def __call__(self) -> None:
        from neurosql.bench import commands

        where = {"out": self.out, "root": self.data, "dims": self.dims, "methods": self.methods}
        how = {"shard": self.shard, "retry": self.retry, "rescore": self.rescore, "dry": self.dry}
        spread = {"on": self.on, "tasks": self.tasks, "submit": self.submit}
        commands.run(self.names, self.budget, self.seeds, slots=self.jobs, **where, **how, **spread)  # type: ignore[arg-type]


@dataclass(frozen=True)
class MergeBench:
    """Join the results of several machines."""

    folders: tyro.conf.Positional[tuple[str, ...]]
    """Folders that `bench run` filled."""
    out: str
    """Folder of the joined results."""
    budget: Annotated[Budget, tyro.conf.arg(metavar="BUDGET")] = "laptop"
    """The budget that they were made with: smoke, laptop or paper."""

    def __call__(self) -> None:
        from neurosql.bench import commands

        commands.merge(self.folders, self.out, self.budget)


@dataclass(frozen=True)
class MigrateBench:
    """Bring results of an earlier version up to date; their runs are not repeated."""

    folder: tyro.conf.Positional[str]
    """A folder that `bench run` filled. Each run is matched to the declared run with the same identity: use this if
    settings were renamed, not if their values changed."""
    budget: Budget | None = None
    """The budget that it was made with; by default the folder's name."""

    def __call__(self) -> None:
        from neurosql.bench import commands

        commands.migrate(self.folder, self.budget)


@dataclass(frozen=True)
class Bench:
    """Run the paper's experiments and ours."""

    action: (
        Annotated[ListBench, tyro.conf.subcommand("list")]
        | Annotated[RunBench, tyro.conf.subcommand("run")]
        | Annotated[MergeBench, tyro.conf.subcommand("merge")]
        | Annotated[MigrateBench, tyro.conf.subcommand("migrate")]
    )

    def __call__(self) -> None:
        self.action()
