"""A run is trained again from its record, to the same bits; where that can't be, the reason is said."""

import json
import shutil

import numpy as np
import pytest
import torch

from neurosql import InputError, app, circumstances, engine, fit
from neurosql import run as runs
from neurosql.checkpoint import RunFolder
from neurosql.cli import main
from neurosql.data import from_array
from neurosql.settings import METHODS, Settings
from neurosql.training import Stopped, Trainer

QUICK = ["--generator", "mlp", "--width", "8", "--epochs", "3", "--batch-size", "10"]
BUILT_IN = [name for name in METHODS if METHODS[name].implementation.startswith("neurosql.")]


@pytest.fixture(scope="module")
def original(digits, tmp_path_factory):
    """A folder with digits and a run on them."""
    folder = tmp_path_factory.mktemp("original")
    np.savez(folder / "digits.npz", images=digits[0][:40], labels=digits[1][:40])
    assert main(["train", str(folder / "digits.npz"), "--out", str(folder / "run"), *QUICK]) == 0
    return folder


@pytest.fixture
def trained(original, tmp_path):
    """A copy of the run, which a test may change."""
    return shutil.copytree(original / "run", tmp_path / "run")


def change(path, **values):
    config = json.loads((path / "config.json").read_text("utf-8"))
    (path / "config.json").write_text(json.dumps(config | values), "utf-8")


def test_a_run_is_reproduced_to_the_bit(trained, tmp_path, capsys):
    assert main(["reproduce", str(trained)]) == 0
    assert "result     reproduced, bit for bit" in capsys.readouterr().out
    assert main(["reproduce", str(trained), "--out", str(tmp_path / "again")]) == 0
    for name in ("model.safetensors", "codes.safetensors", "report.html", "samples.png"):
        assert (tmp_path / "again" / name).is_file()
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()


def test_samples_that_have_moved_are_given_with_a_flag_and_must_be_the_same(
    trained, original, tmp_path, digits, capsys
):
    change(trained, data=RunFolder(trained).config()["data"] | {"path": "/nowhere/digits.npz"})
    assert main(["reproduce", str(trained)]) == 2
    assert main(["reproduce", str(trained), "--data", str(original / "digits.npz")]) == 0
    np.savez(tmp_path / "others.npz", images=digits[0][50:90], labels=digits[1][50:90])
    assert main(["reproduce", str(trained), "--data", str(tmp_path / "others.npz")]) == 2
    assert "does not hold the samples" in capsys.readouterr().err


def test_a_difference_that_nothing_explains_fails(trained, capsys):
    records = [json.loads(line) for line in (trained / "history.jsonl").read_text("utf-8").splitlines()]
    records[1]["loss"] += 1e-6
    (trained / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    assert main(["reproduce", str(trained)]) == 1
    told = capsys.readouterr().out
    assert "differs from epoch 2 of 3 on" in told and "NOT reproduced" in told and "nothing here explains it" in told


def test_other_circumstances_explain_a_small_difference_but_not_a_large_one(trained):
    then = circumstances.here()
    change(trained, versions=then["versions"] | {"torch": "1.0"}, processor="an abacus")
    records = [json.loads(line) for line in (trained / "history.jsonl").read_text("utf-8").splitlines()]
    for factor, promised in ((1.05, True), (1.5, False)):
        changed = [*records[:-1], records[-1] | {"loss": records[-1]["loss"] * factor}]
        (trained / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in changed), "utf-8")
        done = app.reproduce(trained)
        assert not done.equal and done.as_promised == promised
        assert done.reasons[0] == f"torch 1.0 then, {torch.__version__} now"
        assert done.reasons[1].startswith("processor an abacus then")


def test_a_run_without_the_compiled_engine_is_trained_again_without_it(trained, monkeypatch):
    if engine.native() is None:
        pytest.skip("needs the compiled extension")
    change(trained, engine={"cost": "torch", "assignment": "scipy"})
    with circumstances.as_recorded(RunFolder(trained).config()):
        assert engine.native() is None and not circumstances.differences(RunFolder(trained).config())
    assert engine.native() is not None
    assert circumstances.differences(RunFolder(trained).config())[-1] == "assignment scipy then, compiled now"


def test_what_can_not_be_trained_again_is_refused(trained, digits, tmp_path, monkeypatch):
    fit(digits[0][:30], out=tmp_path / "given", epochs=1, width=8)
    with pytest.raises(InputError, match="given in Python: save them to a file"):
        app.reproduce(tmp_path / "given")
    with (trained / "history.jsonl").open("a") as history:
        history.write((trained / "history.jsonl").read_text("utf-8"))
    with pytest.raises(InputError, match="went on from an earlier model"):
        app.reproduce(trained)
    stop_after_a_step(monkeypatch)
    with pytest.raises(Stopped):
        runs.train(from_array(digits[0][:30]), Settings.from_flat({"epochs": 2, "width": 8}), tmp_path / "stopped")
    with pytest.raises(InputError, match="is not finished"):
        app.reproduce(tmp_path / "stopped")


def stop_after_a_step(patch):
    def stopped(self, batch):
        self._checkpoint()
        raise Stopped

    patch.setattr(Trainer, "_take_step", stopped)


def test_a_run_says_that_it_is_resumed_under_other_circumstances(digits, tmp_path, monkeypatch):
    data, settings = from_array(digits[0][:30]), Settings.from_flat({"epochs": 2, "width": 8, "generator": "mlp"})
    stop_after_a_step(monkeypatch)
    with pytest.raises(Stopped):
        runs.train(data, settings, tmp_path / "run")
    monkeypatch.undo()
    said = []
    change(tmp_path / "run", threads=7, engine={"cost": "compiled, other", "assignment": "compiled"})
    runs.resume(tmp_path / "run", lambda source, how: data, say=said.append)
    now = f"threads 7 then, {torch.get_num_threads()} now"
    assert "note       other circumstances than at the start (cost matrix compiled, other then" in said[0]
    assert now in said[0]


@pytest.mark.parametrize("method", BUILT_IN)
def test_every_method_gives_the_same_bits_each_time(method, digits):
    # `benchmarks/determinism.py` does the same with two threads and larger networks.
    data = from_array(digits[0][:40])
    settings = Settings.from_flat({"method": method, "generator": "mlp", "epochs": 2, "width": 8, "batch_size": 16})
    first, second = runs.train(data, settings).method.state(), runs.train(data, settings).method.state()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name].nan_to_num(), second[name].nan_to_num()) for name in first)
