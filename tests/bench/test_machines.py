"""Runs on other machines, a Dask cluster or a SLURM array, end with the table that one machine makes."""

import os
import shlex
import socket
import stat
import subprocess
import sys

import pytest

from neurosql import cli
from neurosql.bench import cluster, queue, rows, slurm
from neurosql.bench.experiments import EXPERIMENTS

OPTIONS = ["cost", "--budget", "smoke", "--seeds", "1", "--methods", "l2"]
"""Two runs."""


def without_times(row):
    return {k: v for k, v in row.items() if k not in rows.MEASURED}


@pytest.fixture
def on_one_machine(results_of):
    found = [row for row in results_of(EXPERIMENTS["cost"]) if row["arm"] == "l2"]
    assert len(found) == 2
    return [without_times(row) for row in found]


def table(folder):
    return [without_times(row) for row in rows.read(folder / "cost.csv").values()]


@pytest.fixture
def fake_sbatch(tmp_path, monkeypatch):
    """An `sbatch` on the path that writes down how it was called; returns the file with one call per line."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport shlex, sys\n"
        f"calls = open({str(calls)!r}, 'a+')\ncalls.seek(0)\nnumber = 71 + len(calls.readlines())\n"
        "calls.write(shlex.join(sys.argv[1:]) + '\\n')\nprint(f'{number};cluster')\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return calls


def test_an_array_of_slurm_tasks_and_their_merge_end_with_the_table_of_one_machine(on_one_machine, tmp_path, capsys):
    out = tmp_path / "a folder"  # with a space
    assert cli.main(["bench", "run", *OPTIONS, "--on", "slurm", "--tasks", "3", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    script = out / slurm.SCRIPT
    assert f"sbatch {shlex.quote(str(script))}" in said
    text = script.read_text("utf-8")
    assert "#SBATCH --array=1-3\n" in text and "--exclusive" not in text
    # As SLURM runs a script: without its execute bit, in some other folder, with the number of the task.
    tasks = {
        number: subprocess.Popen(["bash", str(script)], env=os.environ | {"SLURM_ARRAY_TASK_ID": number}, cwd="/")
        for number in ("1", "2", "3")
    }
    for number, task in tasks.items():
        log = out / slurm.PARTS / f"{number}-of-3" / "log.txt"
        assert task.wait(timeout=300) == 0, log.read_text("utf-8")
    assert sum(len(list(part.glob("jobs/*/result.json"))) for part in (out / slurm.PARTS).iterdir()) == 2
    merge = next(line.removeprefix("then").strip() for line in said.splitlines() if line.startswith("then"))
    subprocess.run(["bash", "-c", merge], check=True, capture_output=True, timeout=120)
    assert table(out) == on_one_machine
    # What is in the table is not submitted again.
    assert cli.main(["bench", "run", *OPTIONS, "--on", "slurm", "--out", str(out)]) == 2
    assert "nothing to submit" in capsys.readouterr().err


def test_results_that_are_there_are_handed_to_the_tasks(results_of, tmp_path):
    first = results_of(EXPERIMENTS["cost"])[0]
    rows.write(tmp_path / "cost.csv", [first])
    plan = queue.plan([EXPERIMENTS["cost"]], "smoke", tmp_path, 1)
    slurm.write(plan, "smoke", ["cost"], tasks=2, slots=1)
    parts = [tmp_path / slurm.PARTS / f"{number}-of-2" for number in (1, 2)]
    left = [
        job.key
        for number, part in enumerate(parts, 1)
        for job in queue.plan([EXPERIMENTS["cost"]], "smoke", part, 1, (number, 2)).left
    ]
    every = [job.key for job in EXPERIMENTS["cost"].jobs("smoke", 1)]
    assert sorted(left) == sorted(set(every) - {rows.key_of(first)}) and len(left) == 3
    # A part keeps its own results if the script is written again.
    second = results_of(EXPERIMENTS["cost"])[1]
    rows.write(parts[1] / "cost.csv", [second])
    slurm.write(plan, "smoke", ["cost"], tasks=2, slots=1)
    assert set(rows.read(parts[1] / "cost.csv")) == {rows.key_of(first), rows.key_of(second)}


def test_sbatch_is_called_only_if_asked_and_the_merge_waits_for_the_array(fake_sbatch, tmp_path, capsys):
    command = ["bench", "run", *OPTIONS, "--on", "slurm", "--out", str(tmp_path / "out")]
    assert cli.main(command) == 0 and not fake_sbatch.exists()
    assert cli.main([*command, "--submit"]) == 0
    first, second = map(shlex.split, fake_sbatch.read_text("utf-8").splitlines())
    assert first == ["--parsable", str(tmp_path / "out" / slurm.SCRIPT)]
    assert "--dependency=afterany:71" in second
    (wrapped,) = (word.removeprefix("--wrap=") for word in second if word.startswith("--wrap="))
    assert "bench merge" in wrapped and wrapped in capsys.readouterr().out
    # Runs that measure time have their node to themselves.
    assert cli.main(["bench", "run", "runtime", "--budget", "smoke", "--on", "slurm", "--out", str(tmp_path)]) == 0
    assert "#SBATCH --exclusive\n" in (tmp_path / slurm.SCRIPT).read_text("utf-8")


def test_what_sbatch_says_is_passed_on(fake_sbatch, tmp_path, capsys, monkeypatch):
    program = tmp_path / "bin" / "sbatch"
    program.write_text("#!/bin/sh\necho 'invalid partition specified: gpu' >&2\nexit 1\n")
    command = ["bench", "run", *OPTIONS, "--on", "slurm", "--submit", "--out", str(tmp_path / "out")]
    assert cli.main(command) == 2
    assert capsys.readouterr().err == "neurosql: sbatch refused the job: invalid partition specified: gpu\n"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(command) == 2
    assert "there is no sbatch on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on", "ray://127.0.0.1:10001"], "dask://HOST:PORT or slurm, got 'ray://127.0.0.1:10001'"),
        (["--on", "slurm", "--shard", "1/2"], "leave out --shard"),
        (["--on", "slurm", "--rescore"], "leave out --on"),
        (["--on", "slurm", "--tasks", "0"], "tasks must be at least 1, got 0"),
        (["--tasks", "4"], "tasks is for SLURM"),
        (["--submit"], "submit is for SLURM"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_sentence(options, words, tmp_path, capsys):
    assert cli.main(["bench", "run", *OPTIONS, "--out", str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.fixture
def local_cluster(tmp_path_factory):
    """The address of a scheduler on loopback, and a function that starts a worker with two threads."""
    distributed = pytest.importorskip("distributed", reason="needs Dask: the extra cluster is not installed")
    place = {"host": "127.0.0.1", "protocol": "tcp", "dashboard_address": None}
    scratch = str(tmp_path_factory.mktemp("dask"))
    with distributed.LocalCluster(
        n_workers=0, processes=False, local_directory=scratch, silence_logs=50, **place
    ) as started:

        def work():
            started.scale(1)
            started.wait_for_workers(1, timeout=60)

        yield started.scheduler_address.replace("tcp://", cluster.SCHEME), work


def test_a_dask_cluster_ends_with_the_table_of_one_machine(on_one_machine, local_cluster, tmp_path, capsys):
    address, work = local_cluster
    command = ["bench", "run", *OPTIONS, "--on", address, "--out", str(tmp_path)]
    assert cli.main(command) == 2
    assert "the cluster has no workers" in capsys.readouterr().err
    work()
    assert cli.main(command) == 0
    assert table(tmp_path) == on_one_machine
    # The trained models have come too: scores can be made anew here.
    models = list(tmp_path.glob("jobs/*/run/model.safetensors"))
    assert len(models) == 2 and len(queue.plan([EXPERIMENTS["cost"]], "smoke", tmp_path, 1, rescore=True).left) == 4


def test_a_run_that_fails_on_a_worker_is_kept_with_its_reason(local_cluster, tmp_path, capsys, monkeypatch):
    address, work = local_cluster
    work()
    monkeypatch.setattr(queue.sources, "path_of", lambda job, root: str(tmp_path / "nowhere"))
    command = ["bench", "run", *OPTIONS, "--dims", "2", "--on", address, "--out", str(tmp_path / "out")]
    assert cli.main(command) == 0
    (row,) = rows.read(tmp_path / "out" / "cost.csv").values()
    assert row["status"] == rows.FAILED and "nowhere" in row["reason"]


def test_workers_that_would_give_other_results_are_refused(local_cluster, tmp_path, capsys, monkeypatch):
    address, work = local_cluster
    work()
    command = ["bench", "run", *OPTIONS, "--on", address, "--out", str(tmp_path / "out")]
    for said, words in ((cluster.Ready("0.0.1", True), "has neurosql 0.0.1"), (ImportError("no torch"), "no torch")):

        def ready(said=said):
            if isinstance(said, Exception):
                raise said
            return said

        monkeypatch.setattr(cluster, "ready", ready)
        assert cli.main(command) == 2
        assert words in capsys.readouterr().err


def test_nobody_who_answers_is_said(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed", reason="needs Dask: the extra cluster is not installed")
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"dask://127.0.0.1:{taken.getsockname()[1]}"
        assert cli.main(["bench", "run", *OPTIONS, "--on", address, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "no Dask scheduler answers at '127.0.0.1" in said and said.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    command = ["bench", "run", *OPTIONS, "--on", "dask://127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert cli.main(command) == 2
    assert "pip install 'neurosql-torch[cluster]'" in capsys.readouterr().err
