"""Child processes run nothing that merely happens to be in the current folder."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from neurosql import children
from neurosql.bench import queue
from neurosql.bench.declare import Arm, Experiment, Grid
from neurosql.errors import InputError
from neurosql.metrics import weights

TRAP = "import os; open(os.environ['TRAPPED'], 'a').write(__name__ + chr(10)); raise SystemExit(3)"


@pytest.fixture
def trapped(tmp_path, monkeypatch):
    """A current folder full of modules that might be run by mistake; returns the file that they would write."""
    folder = tmp_path / "dataset"
    folder.mkdir()
    for name in ("numpy", "torch", "PIL", "pip", "neurosql", "json", "tqdm", "sitecustomize"):
        (folder / f"{name}.py").write_text(TRAP)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setenv("TRAPPED", str(tmp_path / "trapped.txt"))
    return tmp_path / "trapped.txt"


def test_a_child_imports_this_package_and_nothing_from_the_current_folder(trapped):
    code = "import sys, neurosql, numpy; print(neurosql.__file__, numpy.__file__)"
    command = children.command("-c", code)
    done = subprocess.run(command, env=children.environment(), capture_output=True, text=True)
    assert done.returncode == 0 and "dataset" not in done.stdout and not trapped.exists()


def test_decoding_runs_nothing_that_lies_beside_the_images(trapped, tmp_path):
    chance = np.random.default_rng(0)
    for i in range(310):
        Image.fromarray(chance.integers(0, 256, (8, 8), np.uint8)).save(tmp_path / "dataset" / f"{i}.png")
    code = "import sys; from neurosql import cli; sys.exit(cli.main(['data', 'check', '.', '--no-cache']))"
    done = subprocess.run(children.command("-c", code), env=children.environment(), capture_output=True, text=True)
    assert done.returncode == 0 and "310" in done.stdout, done.stderr
    assert not trapped.exists()


def test_fetching_weights_runs_no_pip_of_the_current_folder(trapped, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match="pip could not fetch"):
        weights._download(tmp_path)
    assert not trapped.exists()


def test_a_bench_runs_no_torch_of_the_current_folder(trapped, tmp_path):
    small = Experiment("mnist", "t", "q", (Grid((Arm("VAE", "vae"),), dims=(2,)),), (), scored=False)
    plan = queue.plan([small], "smoke", tmp_path / "results", 1)
    (job,) = plan.left
    process = queue.here(plan, job)
    assert process.wait() == 0, (plan.folder(job) / "log.txt").read_text()
    assert not trapped.exists()
