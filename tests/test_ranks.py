"""Several processes that train one model: real ones, started by torchrun, that talk to each other over loopback."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import rank_cases
import torch
from rank_cases import CASES, TRAVELS

from neurosql import circumstances, joint, ranks
from neurosql.cli import main
from neurosql.held import Held
from neurosql.run import open_run

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ALONE = ["--standalone", "--nproc-per-node", "2"]
CONVERSATION = 30
"""Seconds within which a rank notices that another one is gone."""
TRAIN = ["--preset", "plain", "--width", "8", "--batch-size", "24", "--checkpoint-every", "1", "--patience", "0"]


def environment(folder):
    """One thread per process, loopback, and nothing of whoever runs the tests under torchrun."""
    known = {name: value for name, value in os.environ.items() if name not in ranks.VARIABLES}
    return known | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


@contextmanager
def torchrun(folder, *arguments, logs="logs"):
    """A job, whose processes are gone at the end of the context; what each of them said is in a file."""
    command = [*TORCHRUN, "--redirects", "3", "--log-dir", str(folder / logs), *map(str, arguments)]
    with (folder / f"{logs}.txt").open("w") as told:
        job = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=told, stderr=subprocess.STDOUT)
    try:
        yield job
    finally:
        for pid in [*workers(job).values(), job.pid] if job.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        job.wait(60)


def workers(job):
    """The process of each rank that a job has started here."""
    found = {}
    try:
        for child in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
            variables = Path(f"/proc/{child}/environ").read_text().split("\0")
            rank = next((v for v in variables if v.startswith("RANK=")), None)
            if rank is not None:
                found[int(rank.removeprefix("RANK="))] = int(child)
    except OSError:
        pass
    return found


def said(folder, rank, logs="logs", attempt=0):
    """What a rank wrote to standard error."""
    found = sorted((folder / logs).glob(f"*/attempt_{attempt}/*/stderr.log"))
    return found[rank].read_text("utf-8")


def until(true, job, seconds=120):
    give_up = time.monotonic() + seconds
    while not true():
        assert job.poll() is None and time.monotonic() < give_up
        time.sleep(0.05)


def epochs(run):
    """How many epochs a run has recorded."""
    return len((run / "history.jsonl").read_bytes().splitlines()) if (run / "history.jsonl").is_file() else 0


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with the images of the command line's tests, and two classes."""
    folder = tmp_path_factory.mktemp("ranks")
    x = np.random.default_rng(0).random((37, 8, 8), dtype=np.float32)
    np.savez(folder / "x.npz", images=x, labels=np.arange(37) % 2)
    return folder


@pytest.fixture(scope="module")
def by_two(tmp_path_factory):
    """What both of two ranks found in each case."""
    folder = tmp_path_factory.mktemp("cases")
    with torchrun(folder, *ALONE, rank_cases.__file__, folder) as job:
        assert job.wait(300) == 0, (folder / "logs.txt").read_text() + said(folder, 0) + said(folder, 1)
    return {case: [dict(np.load(folder / f"{case} {rank}.npz")) for rank in (0, 1)] for case in CASES | TRAVELS}


@pytest.fixture(scope="module")
def alone():
    """What one process finds in each case."""
    known = {}

    def find(case):
        if case not in known:
            known[case] = rank_cases.facts(case)
        return known[case]

    return find


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_have_the_gradients_of_one_process_on_the_joint_batch(case, by_two, alone):
    one, two = alone(case), by_two[case][0]
    gradients = [name for name in one if name.startswith("gradient")]
    assert len(gradients) == 2
    for name in gradients:
        assert one[name].any()
        assert np.linalg.norm(two[name] - one[name]) < 1e-5 * np.linalg.norm(one[name])
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=1e-5)


@pytest.mark.parametrize("case", [*CASES, *TRAVELS])
def test_ranks_hold_the_same_weights_and_codes_to_the_bit(case, by_two):
    first, second = by_two[case]
    if "spare" in second:
        pytest.skip("the second rank had nothing to do")
    assert np.array_equal(first["weights"], second["weights"], equal_nan=True)
    # By themselves: only ranks that round differently need to be told what rank 0 has.
    assert first["aligned"].all() if case == "unlike machines" else not first["aligned"].any()


@pytest.mark.parametrize("case", [case for case in TRAVELS if case != "fewer images than ranks"])
def test_codes_stay_a_permutation_of_the_lattice(case, by_two):
    found = by_two[case][0]
    n = len(found["permutation"])
    assert n == 37 or case == "validated"
    assert np.array_equal(np.sort(found["permutation"]), np.arange(n))
    np.testing.assert_allclose(found["codes"], found["lattice"][found["permutation"]], atol=1e-5)


@pytest.mark.parametrize("case", ["full", "full by class", "learnt"])
def test_ranks_assign_all_images_as_one_process_does(case, by_two, alone):
    """A matrix that was made in pieces has the same optimum."""
    one, two = alone(case), by_two[case][0]
    assert np.mean(one["permutation"] == two["permutation"]) > 0.9
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=1e-4)


def test_ranks_share_the_held_out_images(by_two, alone):
    one, two = alone("validated"), by_two["validated"][0]
    assert np.isfinite(one["heldout"]).all()
    np.testing.assert_allclose(two["heldout"], one["heldout"], rtol=1e-4)


def test_a_rank_without_images_leaves_and_the_others_train(by_two, alone):
    first, second = by_two["fewer images than ranks"]
    assert second["spare"]
    np.testing.assert_array_equal(first["weights"], alone("fewer images than ranks")["weights"])


def test_what_is_exchanged_is_counted(by_two):
    """At least the gradients, in float32, of every step; a process on its own exchanges nothing."""
    found = by_two["mini-batch"][0]
    steps = -(-37 // 12)
    assert (found["exchanged"] >= 4 * steps * len(found["gradient 0"])).all()
    assert not rank_cases.facts("mini-batch")["exchanged"].any()


def test_codes_reach_images_of_any_rank():
    """The order of the images is drawn anew in each epoch, and so is who shares a rank and may swap codes with whom."""
    group, random = ranks.Ranks(0, 2), torch.Generator().manual_seed(0)
    together = torch.eye(24, dtype=torch.bool)
    for _ in range(12):
        for batch in torch.randperm(24, generator=random).tensor_split(3):
            for rank in range(2):
                rows = batch[group.part(len(batch), rank).rows]
                together[rows[:, None], rows] = True
    assert together.sum() > 0.6 * together.numel()
    assert ((together.double() @ together.double()) > 0).all()


@pytest.mark.parametrize("n", [0, 1, 2, 5, 64, 67])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_parts_are_those_of_tensor_split(n, size):
    parts = torch.arange(n).tensor_split(size)
    for rank in range(size):
        part = ranks.Ranks(rank, size).part(n)
        assert torch.equal(torch.arange(n)[part.rows], parts[rank]) and part.whole == n
    assert ranks.Ranks(0, size).counts(n) == [len(part) for part in parts]


def test_a_process_on_its_own_changes_nothing():
    """Every operation returns what it was given, the very tensor where there is one: no bit can differ."""
    single, tensor = ranks.SINGLE, torch.rand(5, 3, dtype=torch.float32)
    assert ranks.here() is single and not single.several and single.first
    assert single.add(tensor) is tensor and single.least(tensor) is tensor and single.spread(tensor) is tensor
    assert single.gather(tensor, [5]) is tensor and single.collect(tensor, 5) is tensor
    assert joint.total(tensor) is tensor and joint.gathered(tensor, [5]) is tensor
    assert single.tell({"a": tensor}, 1)[0]["a"] is tensor
    assert single.sums([0.1, 0.2]) == [0.1, 0.2] and single.decide(0.1) == 0.1 and single.most(0.1) == 0.1
    assert single.any(True) and not single.any(False)
    whole = ranks.Part.all(5)
    assert whole == single.part(5) and torch.equal(whole.of(lambda n: tensor[:n]), tensor)
    assert single.exchanged == 0


def test_held_images_are_the_rows_of_their_array():
    array, index = np.random.default_rng(0).random((9, 2, 3), dtype=np.float32), np.array([7, 0, 3, 8])
    images, copied = Held(array, index, torch.device("cpu")), torch.from_numpy(array[index])
    assert len(images) == 4 and images.shape == copied.shape and images.device == copied.device
    for rows in (torch.tensor([2, 0, 2]), slice(1, 3), slice(None, 8), torch.empty(0, dtype=torch.int64)):
        assert torch.equal(images[rows], copied[rows])


def test_statistics_of_one_process_are_those_of_the_batch():
    x = torch.rand(6, 4, 3, dtype=torch.float64)
    mean, variance, n = joint.moments(x, [0, 2])
    torch.testing.assert_close(mean, x.mean((0, 2)))
    torch.testing.assert_close(variance, x.var((0, 2), correction=0))
    assert n == 18


@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_a_killed_rank_ends_the_job_which_goes_on_with_one_process_and_with_two_again(pictures):
    run = pictures / "killed"
    train = ["train", "x.npz", *TRAIN, "--epochs", "4000", "--steps", "4000", "--out", "killed"]
    with torchrun(pictures, *ALONE, "-m", "neurosql", *train) as job:
        until(lambda: epochs(run) > 3, job)
        os.kill(workers(job)[1], signal.SIGKILL)
        began = time.monotonic()
        assert job.wait(CONVERSATION) != 0 and time.monotonic() - began < CONVERSATION
    sentence = said(pictures, 0).strip()
    assert sentence.startswith("neurosql: rank 0 ends, because another rank was killed or can't be reached")
    assert len(sentence.splitlines()) == 1 and "Traceback" not in sentence

    # The record says with how many ranks the run began; with another number, its bits are others.
    config = json.loads((run / "config.json").read_text("utf-8"))
    assert circumstances.differences(config)[-1] == "ranks 2 then, 1 now"

    # One process goes on from there, until it is asked to stop.
    before = epochs(run)
    command = [sys.executable, "-m", "neurosql", "resume", "killed"]
    one = subprocess.Popen(command, cwd=pictures, env=environment(pictures), stderr=subprocess.PIPE, text=True)
    until(lambda: epochs(run) > before + 3, one)
    one.send_signal(signal.SIGTERM)
    assert "the run is saved" in one.communicate(timeout=60)[1]

    # Two ranks again; SIGTERM to one of them stops both, and rank 0 saves.
    before = epochs(run)
    with torchrun(pictures, *ALONE, "-m", "neurosql", "resume", "killed", logs="again") as job:
        until(lambda: epochs(run) > before + 3, job)
        os.kill(workers(job)[1], signal.SIGTERM)
        assert job.wait(CONVERSATION) != 0
    assert said(pictures, 0, "again").strip() == "stopped; the run is saved. Continue with: neurosql resume killed"
    assert said(pictures, 1, "again").strip() == "rank 1 stopped"
    found = open_run(run)
    assert [figures["epoch"] for figures in found.history] == list(range(1, len(found.history) + 1))
    assert len(found.history) > before
    assert np.array_equal(np.sort(found.method.permutation.numpy()), np.arange(len(found.index)))


@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_two_machines_go_on_by_themselves_after_a_rank_was_killed(pictures):
    """Two torchruns that find each other on loopback, as those of two machines do; one rank is killed once."""
    run = pictures / "nodes"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test"]
    nodes = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "1", "--local-addr", "127.0.0.1", *where]
    train = ["-m", "neurosql", "train", "x.npz", *TRAIN, "--epochs", "60", "--conditional", "--out", "nodes"]
    with torchrun(pictures, *nodes, *train, logs="a") as a, torchrun(pictures, *nodes, *train, logs="b") as b:
        until(lambda: epochs(run) > 3, a)
        os.kill(next(iter(workers(b).values())), signal.SIGKILL)
        assert a.wait(240) == 0 and b.wait(60) == 0
    found = open_run(run)
    assert [figures["epoch"] for figures in found.history] == list(range(1, 61))
    assert np.array_equal(np.sort(found.method.permutation.numpy()), np.arange(len(found.index)))
    assert (run / "report.html").is_file()
    assert all("exchanged" in json.loads(line) for line in (run / "history.jsonl").read_text().splitlines())


def test_a_job_that_may_be_started_again_must_say_where_its_run_is(pictures, monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    monkeypatch.chdir(pictures)
    assert main(["train", "x.npz", "--epochs", "1"]) == 2
    assert "needs --out" in capsys.readouterr().err


def test_a_job_that_was_started_again_goes_on(pictures, monkeypatch, capsys):
    """As torchrun's environment says; one rank on its own, too."""
    monkeypatch.chdir(pictures)
    train = ["train", "x.npz", *TRAIN, "--epochs", "2", "--out", "restarted"]
    assert main(train) == 0
    assert main(train) == 2
    assert "holds another run" in capsys.readouterr().err
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert main(train) == 0
    assert epochs(pictures / "restarted") == 2
