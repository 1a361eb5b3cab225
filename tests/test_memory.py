"""Memory: what there is, what a run will need, and what happens if it is too much."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from neurosql import InputError, estimate, memory, preparing
from neurosql import run as runs
from neurosql.cli import main
from neurosql.data import from_array
from neurosql.settings import Settings

SMALL = dict(generator="mlp", width=8, epochs=1, batch_size=50, every=1)
GB = 10**9


def images(n):
    return from_array(np.random.default_rng(0).random((n, 8, 8)).astype(np.float32))


def test_the_limit_of_the_user_is_one_for_the_whole_process(monkeypatch):
    free = memory.available()
    monkeypatch.setenv("NEUROSQL_MEMORY", "3G")
    assert memory.available() == pytest.approx(min(free, 3 * GB - memory.used()), abs=GB / 5)
    for size, number in {"500M": 5e8, "2.5 GB": 2.5e9, "1024": 1024, "1t": 1e12, "7kb": 7e3}.items():
        monkeypatch.setenv("NEUROSQL_MEMORY", size)
        assert memory._own_limit() == number
    for size in ("much", "-1G", "0", "4 apples"):
        monkeypatch.setenv("NEUROSQL_MEMORY", size)
        with pytest.raises(InputError, match="NEUROSQL_MEMORY must be a size such as 4G or 500M"):
            memory.available()


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_of_the_control_groups_counts(version, tmp_path):
    top = tmp_path / "memory" if version == 1 else tmp_path
    limit, current = [("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")][version - 1]
    for folder, most, taken in ((top, "9223372036854771712" if version == 1 else "max", 7), (top / "a", "5000", 1000)):
        folder.mkdir(exist_ok=True)
        (folder / limit).write_text(f"{most}\n")
        (folder / current).write_text(f"{taken}\n")
    (top / "a" / "memory.stat").write_text("file 9\ninactive_file 250\ntotal_inactive_file 250\n")
    (top / "a" / "b").mkdir()
    (tmp_path / "own").write_text("0::/a/b\n" if version == 2 else "3:cpu:/x\n5:memory,other:/a/b\n")
    assert min(memory._containers(tmp_path, tmp_path / "own")) == 5000 - 1000 + 250
    (tmp_path / "own").write_text("0::/not/here\n")
    assert all(left > 5000 for left in memory._containers(tmp_path, tmp_path / "own"))
    assert list(memory._containers(tmp_path, tmp_path / "missing")) == []


def test_a_cost_matrix_that_does_not_fit_is_replaced_by_candidates_with_a_note(monkeypatch):
    settings = Settings.from_flat(SMALL)
    assert estimate.fitting(settings, [10_000], 64) == (settings, [])
    monkeypatch.setattr(memory, "available", lambda: GB // 4)
    changed, notes = estimate.fitting(settings, [10_000], 64)
    assert changed.own.strategy == "candidates"
    assert notes == [
        "the cost matrix would take about 0.4 GB of memory, and 0.2 GB are free: strategy candidates is used"
    ]
    for fixed in ({"strategy": "dense"}, {"assignment": "greedy"}, {"algorithm": "mini-batch"}, {"method": "vae"}):
        chosen = Settings.from_flat({k: v for k, v in SMALL.items() if k != "every" or "method" not in fixed} | fixed)
        assert estimate.fitting(chosen, [10_000], 64) == (chosen, [])
    assert estimate.fitting(settings, [1000] * 10, 64) == (settings, [])


def test_a_run_remembers_that_it_uses_candidates_and_is_resumed_with_them(monkeypatch, tmp_path):
    data, said = images(300), []
    monkeypatch.setattr(estimate, "SHARE", 0.0)
    run = runs.train(data, Settings.from_flat(SMALL), tmp_path / "run", say=said.append)
    assert run.settings.own.strategy == "candidates" and "strategy candidates is used" in said[0]
    config = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    assert config["settings"]["own"]["strategy"] == "candidates"
    begun = preparing.prepare(data, Settings.from_flat(SMALL), begun=True)[0]
    assert begun.settings.own.strategy == "auto"


@pytest.mark.parametrize("method", ["neurosql", "gan", "ddpm", "rae"])
def test_more_is_expected_of_larger_batches_and_wider_networks(method):
    def expected(**settings):
        given = {k: v for k, v in SMALL.items() if k != "every"} | {"method": method, "batch_size": 64} | settings
        return preparing.prepare(images(300), Settings.from_flat(given))[0].expected_memory - memory.used()

    few = expected()
    assert expected(batch_size=256, width=512) > few + 10**6


def test_what_is_expected_is_said_and_what_is_too_much_is_refused_with_both_figures(monkeypatch, tmp_path, capsys):
    np.save(tmp_path / "x.npy", images(60).x[:, 0])
    quick = ["--generator", "mlp", "--width", "8", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(["train", str(tmp_path / "x.npy"), *quick]) == 0
    assert re.search(r"\nmemory     about [\d.]+ [MG]B\n", capsys.readouterr().out)
    monkeypatch.setattr(memory, "available", lambda: 10**5)
    quick[-1] = str(tmp_path / "other")
    assert main(["train", str(tmp_path / "x.npy"), *quick, "--strategy", "dense"]) == 2
    assert "of memory, and 0 MB are free: use fewer or smaller images" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "the evaluation would take about" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["sample", str(tmp_path / "run"), "-n", "1000000000000"]) == 2
    assert "1,000,000,000,000 samples would take about" in capsys.readouterr().err


CHILD = """
import resource, sys
import numpy as np
from neurosql import InputError, memory, run as runs
from neurosql.data import from_array
from neurosql.settings import Settings
x = from_array(np.random.default_rng(0).random((20000, 2, 2)).astype(np.float32))
limit = memory._status()["VmSize"] + 10**9
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    runs.train(x, Settings.from_flat(dict(generator="mlp", width=8, epochs=1, every=1, strategy="dense", cost="l1")))
except InputError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs ulimit -v")
def test_a_ulimit_is_respected_before_anything_is_computed():
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training would take about") and "GB are free" in done.stdout
