"""The loop: budget, schedule, early stopping, and runs that resume to the same bits."""

import json
import math
import os
import signal

import numpy as np
import pytest
import torch

from neurosql import InputError, preparing
from neurosql import run as runs
from neurosql.checkpoint import FORMAT, RunFolder
from neurosql.data import from_array
from neurosql.settings import Settings
from neurosql.training import Diverged, Stopped, Trainer, _optimizer

SMALL = dict(generator="mlp", width=32, epochs=6, batch_size=20, every=2, validate_every=2, checkpoint_every=2)


def images(digits, n=90):
    return from_array(digits[0][:n], digits[1][:n])


def train(images, out=None, stop_after=None, **settings):
    """Train, with an interrupt after this many steps."""
    if stop_after is not None:
        with pytest.MonkeyPatch.context() as patch:
            interrupt_after(patch, stop_after)
            with pytest.raises(Stopped):
                runs.train(images, Settings.from_flat(SMALL | settings), out)
        return None
    return runs.train(images, Settings.from_flat(SMALL | settings), out)


def interrupt_after(patch, steps):
    update = Trainer._update
    count = iter(range(steps + 1, 0, -1))

    def counted(self, name, loss):
        update(self, name, loss)
        if next(count, 0) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    patch.setattr(Trainer, "_update", counted)


def contents(run):
    tensors = {f"weights.{k}": v for k, v in run.method.generator.state_dict().items()}
    tensors |= {name: getattr(run.method, name) for name in ("codes", "permutation", "row_duals", "column_duals")}
    history = [{k: v for k, v in record.items() if k != "seconds"} for record in run.history]
    return tensors, history


def assert_same_bits(first, second):
    (a, history_a), (b, history_b) = contents(first), contents(second)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert history_a == history_b


CASES = {
    "full": {},
    "mini-batch owned": {"algorithm": "mini-batch"},
    "mini-batch owned, reuse": {"algorithm": "mini-batch", "reuse": True, "conditional": True},
    "mini-batch partition": {"algorithm": "mini-batch", "subset": "partition"},
    "mini-batch random": {"algorithm": "mini-batch", "subset": "random"},
    "conditional": {"conditional": True},
    "conditional mini-batch partition": {
        "conditional": True,
        "algorithm": "mini-batch",
        "subset": "partition",
    },
    "average and snap": {"ema": 0.9, "snap": 2, "anneal": False},
    "early stop": {"patience": 2, "learning_rate": 0.3, "epochs": 12},
    "restarts and steps": {"schedule": "restarts", "cycle": 2, "steps": 21},
    "candidates": {"strategy": "candidates", "candidates": 4, "every": 1},
    "blocks": {"strategy": "blocks", "block_size": 16, "every": 1},
    "blocks, conditional, components": {
        **{"strategy": "blocks", "block_size": 3, "every": 1, "conditional": True, "components": 2, "exchange": 2}
    },
    "convnet": {"generator": "convnet", "width": 16, "start": "random"},
    "sgd": {"optimizer": "sgd", "learning_rate": 0.1},
    "components": {"components": 3, "every": 1, "exchange": 2},
    "components, conditional": {"components": 2, "conditional": True, "algorithm": "mini-batch"},
    "moving codes": {"code_rate": 0.1, "momentum": 0.2, "every": 2},
    "moving codes, matched by themselves": {"code_rate": 0.1, "match": "codes", "momentum": 0.2, "components": 2},
    "fresh samples": {"fresh": 0.5, "fresh_batch": 16, "fresh_every": 3},
    "all of it": {"components": 3, "code_rate": 0.1, "fresh": 0.5, "fresh_batch": 16, "mapping": 1, "every": 1},
    "adam, no validation": {"optimizer": "adam", "validation_share": 0.0},
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_equals_one_that_was_not_stopped(case, digits, tmp_path):
    data = images(digits)
    whole = train(data, tmp_path / "whole", **CASES[case])
    steps = whole.history[-1]["step"]
    for stop_after in (1, steps // 2, steps - 1):
        path = tmp_path / f"stopped-{stop_after}"
        train(data, path, stop_after=stop_after, **CASES[case])
        again = runs.resume(path, lambda source, limit: data)
        assert_same_bits(whole, again)
        assert [r["epoch"] for r in RunFolder(path).history()] == [r["epoch"] for r in whole.history]
    for name in ("model.safetensors", "codes.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (path / name).read_bytes()


@pytest.mark.parametrize("checkpoint_every", [2, 100])
def test_a_run_killed_between_checkpoints_equals_one_that_was_not(digits, tmp_path, checkpoint_every):
    """The last checkpoint is older than the last epoch in the history, or there is none: all is written again."""
    data = images(digits)
    whole = train(data, tmp_path / "whole")
    path = tmp_path / "killed"
    with pytest.MonkeyPatch.context() as patch:
        update = Trainer._update

        def fatal(self, name, loss):
            if self.step == 15:
                raise MemoryError
            update(self, name, loss)

        patch.setattr(Trainer, "_update", fatal)
        with pytest.raises(MemoryError):
            runs.train(data, Settings.from_flat(SMALL | {"checkpoint_every": checkpoint_every}), path)
    assert len(RunFolder(path).history()) == 3
    assert_same_bits(whole, runs.resume(path, lambda source, limit: data))


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_finished_run_resumes_to_itself(digits, tmp_path):
    data = images(digits)
    whole = train(data, tmp_path / "run")
    before = files_of(tmp_path / "run")
    again = runs.resume(tmp_path / "run", lambda source, limit: data)
    assert files_of(tmp_path / "run") == before
    weights = whole.method.generator.state_dict()
    assert all(torch.equal(weights[k], v) for k, v in again.method.generator.state_dict().items())
    assert torch.equal(whole.method.codes, again.method.codes)


def test_a_run_killed_before_its_last_model_was_written_writes_it_again(digits, tmp_path, monkeypatch):
    """Stopped once, so that there is an older model; then killed after the last checkpoint of the loop."""
    data = images(digits)
    whole = train(data, tmp_path / "whole")
    train(data, tmp_path / "run", stop_after=5)
    save = runs.Run.save

    def killed(self, folder):
        raise MemoryError

    monkeypatch.setattr(runs.Run, "save", killed)
    with pytest.raises(MemoryError):
        runs.resume(tmp_path / "run", lambda source, limit: data)
    monkeypatch.setattr(runs.Run, "save", save)
    assert not runs.is_finished(RunFolder(tmp_path / "run"))
    assert_same_bits(whole, runs.resume(tmp_path / "run", lambda source, limit: data))
    assert runs.is_finished(RunFolder(tmp_path / "run"))


METHODS_AND_RATES = {"neurosql": 1e30, "vae": 1e30, "gan": 1e30, "ddpm": 1e30, "ot-cfm": 1e30, "glo": 1e30}
METHODS_AND_RATES |= {"rae": 1e30, "imle": 1e30, "rs-imle": 1e30}


@pytest.mark.parametrize("method", METHODS_AND_RATES)
@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_a_run_that_diverges_says_so_and_keeps_nothing_that_is_not_finite(method, clip, digits, tmp_path):
    given = {"method": method, "learning_rate": METHODS_AND_RATES[method], "clip": clip, "generator": "mlp"}
    given |= {"width": 16, "epochs": 4, "batch_size": 20, "checkpoint_every": 1}
    with pytest.raises(Diverged, match=r"training diverged in epoch .* Try a learning_rate below"):
        runs.train(images(digits), Settings.from_flat(given), tmp_path / "run")
    for path in (tmp_path / "run").rglob("*.safetensors"):
        tensors, _ = RunFolder(path.parent).read_tensors(path.name)
        networks = {k: v for k, v in tensors.items() if v.is_floating_point() and "own." not in k}
        assert all(value.isfinite().all() for value in networks.values())


def test_a_run_that_diverges_late_keeps_its_best_model(digits, tmp_path, monkeypatch):
    update = Trainer._update

    def breaking(self, name, loss):
        update(self, name, loss * math.nan if self.step == 17 else loss)

    monkeypatch.setattr(Trainer, "_update", breaking)
    with pytest.raises(Diverged, match=r"epoch 4, step 18.*best model so far, of epoch 2, was kept"):
        train(images(digits), tmp_path / "run", validate_every=2)
    monkeypatch.undo()
    best = runs.open_run(tmp_path / "run")
    losses = [record["heldout_loss"] for record in best.history if "heldout_loss" in record]
    aside = np.setdiff1d(np.arange(90), best.index)
    heldout = torch.from_numpy(images(digits).x[aside])
    assert best.method.heldout_loss(heldout, None) == pytest.approx(losses[0], abs=1e-6)


def test_a_model_that_is_not_a_number_has_no_finite_loss(digits):
    run = train(images(digits))
    x = torch.from_numpy(images(digits).x[:5])
    good = run.method.heldout_loss(x, None)
    next(run.method.generator.parameters()).data.fill_(math.nan)
    assert math.isfinite(good) and math.isnan(run.method.heldout_loss(x, None))
    assert np.isnan(run.encode(x.numpy())[2]).all()


def test_a_torn_last_line_of_the_history_does_not_count(digits, tmp_path):
    data = images(digits)
    whole = train(data, tmp_path / "whole")
    train(data, tmp_path / "run", stop_after=12)
    history = tmp_path / "run" / "history.jsonl"
    before = RunFolder(tmp_path / "run").history()
    history.write_bytes(history.read_bytes() + b'{"epoch": 3, "loss": 0.4')
    assert RunFolder(tmp_path / "run").history() == before and runs.open_run(tmp_path / "run").history == before
    assert_same_bits(whole, runs.resume(tmp_path / "run", lambda source, limit: data))


@pytest.mark.parametrize("damage", [b"", b"\0\0\0\n", b'{"epoch": 1}\n{torn\n{}\n', b"[1]\n", b"[" * 100_000])
def test_a_damaged_history_never_loses_a_run(damage, digits, tmp_path):
    """The checkpoint holds the records that it stands for."""
    data = images(digits)
    whole = train(data, tmp_path / "whole")
    train(data, tmp_path / "run", stop_after=12)
    (tmp_path / "run" / "history.jsonl").write_bytes(damage)
    assert len(runs.open_run(tmp_path / "run").history) == damage.startswith(b'{"epoch"')
    again = runs.resume(tmp_path / "run", lambda source, limit: data)
    assert_same_bits(whole, again)
    assert RunFolder(tmp_path / "run").history() == again.history


def test_a_line_of_the_history_is_written_whole_or_not_at_all(tmp_path):
    """A file of limited size stands in for a full disk."""
    resource = pytest.importorskip("resource")
    folder = RunFolder.create(tmp_path / "run")
    folder.append_history({"epoch": 1})
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            folder.append_history({"epoch": 2, "words": "x" * 200})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (folder.path / "history.jsonl").read_text() == '{"epoch": 1}\n'


def test_same_seed_same_bits_and_other_seed_other_bits(digits):
    data = images(digits)
    first, second, other = train(data, seed=3), train(data, seed=3), train(data, seed=4)
    assert_same_bits(first, second)
    assert not torch.equal(first.method.codes, other.method.codes)
    assert not torch.equal(*(next(iter(run.method.generator.parameters())) for run in (first, other)))


def test_training_leaves_the_global_random_state_alone(digits):
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    train(images(digits), ema=0.9)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


def test_resuming_with_other_images_is_refused(digits, tmp_path):
    train(images(digits), tmp_path / "run", stop_after=5)
    with pytest.raises(InputError, match="does not hold the images"):
        runs.resume(tmp_path / "run", lambda source, limit: images(digits, 91))


def schedule(digits, **settings):
    run = {}

    class Recorder(Trainer):
        def _update(self, name, loss):
            run.setdefault("rates", []).append(self.learning_rate())
            super()._update(name, loss)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "Trainer", Recorder)
        train(images(digits), validation_share=0.0, **settings)
    return np.array(run["rates"])


def test_cosine_and_warm_restart_schedules_follow_their_formulas(digits):
    batches = math.ceil(90 / 20)
    cosine = schedule(digits, epochs=4, learning_rate=0.01)
    total = 4 * batches
    assert cosine == pytest.approx(0.005 * (1 + np.cos(np.pi * np.arange(total) / total)))

    restarts = schedule(digits, epochs=6, schedule="restarts", cycle=2, learning_rate=0.01)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.01)
    reference = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2 * batches, T_mult=2)
    expected = []
    for _ in restarts:
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()
    assert restarts == pytest.approx(expected)
    assert schedule(digits, epochs=2, schedule="constant", learning_rate=0.01) == pytest.approx(0.01)


def test_the_closing_fit_has_a_schedule_of_its_own(digits):
    rates = schedule(digits, epochs=2, snap=2, learning_rate=0.01)
    assert len(rates) == 4 * 5
    assert rates[10] == pytest.approx(0.003)
    assert (np.diff(rates[10:]) < 0).all()


def test_early_stopping_keeps_the_best_model(digits):
    data = images(digits, 120)
    settings = {"patience": 4, "epochs": 40, "learning_rate": 0.5, "schedule": "constant", "clip": 0.0}
    run = train(data, **settings)
    losses = {r["epoch"]: r["heldout_loss"] for r in run.history if "heldout_loss" in r}
    best = min(losses, key=losses.get)
    assert len(run.history) < 40
    assert len(run.history) == best + 4
    aside = np.setdiff1d(np.arange(120), run.index)
    heldout = torch.from_numpy(data.x[aside])
    assert run.method.heldout_loss(heldout, None) == pytest.approx(losses[best], abs=1e-6)


def test_held_out_images_are_not_trained_on(digits):
    run = train(images(digits, 100), validation_share=0.2)
    assert len(run.index) == 80 and len(run.method.lattice) == 80
    assert len(set(run.index)) == 80


def test_the_average_of_the_weights_is_what_comes_out(digits):
    """With a decay near one the average lags far behind the weights; the formula is checked step by step."""
    weights = []

    class Recorder(Trainer):
        def _update(self, name, loss):
            if not weights:
                weights.append([p.detach().clone() for p in self.method.generator.parameters()])
            super()._update(name, loss)
            weights.append([p.detach().clone() for p in self.method.generator.parameters()])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "Trainer", Recorder)
        run = train(images(digits), ema=0.99, patience=0)
    average = weights[0]
    for step, current in enumerate(weights[1:]):
        decay = min(0.99, (1 + step) / (10 + step))
        average = [decay * a + (1 - decay) * w for a, w in zip(average, current)]
    for found, expected in zip(run.method.generator.parameters(), average):
        assert torch.allclose(found, expected, atol=1e-6)


def test_gradients_are_clipped(digits):
    norms = []

    class Recorder(Trainer):
        def _update(self, name, loss):
            super()._update(name, loss)
            gradients = [p.grad.flatten() for p in self.method.generator.parameters()]
            norms.append(float(torch.cat(gradients).norm()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "Trainer", Recorder)
        train(images(digits), clip=0.01)
    assert max(norms) <= 0.01 * (1 + 1e-4)


@pytest.mark.parametrize(("name", "plain"), [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam)])
def test_the_fused_optimiser_takes_the_plain_ones_steps(name, plain):
    settings = Settings.from_flat({"optimizer": name, "learning_rate": 0.01, "weight_decay": 0.1}).training
    start, random = torch.linspace(-1, 1, 40), torch.Generator().manual_seed(0)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = _optimizer([ours], settings), plain([theirs], lr=0.01, weight_decay=0.1, foreach=False, fused=False)
    for _ in range(20):
        ours.grad = theirs.grad = torch.randn(40, generator=random)
        for optimizer in optimizers:
            optimizer.step()
    assert torch.allclose(ours, theirs, atol=1e-6)
    assert not torch.allclose(ours, start, atol=1e-2)
    assert _optimizer([torch.nn.Parameter(start.to("meta"))], settings).defaults["fused"] is False


def test_no_batch_has_a_single_image(digits):
    for n, size in [(21, 20), (41, 20), (7, 2), (5, 1), (3, 2)]:
        data = from_array(digits[0][:n])
        run = preparing.prepare(data, Settings.from_flat({"validation_share": 0.0, "generator": "mlp"}), None)[0]
        run.method.start()
        loop = Trainer(run.method, run.method.x, None, Settings.from_flat({"batch_size": size}).training)
        sizes = [len(batch.index) for batch in loop._epoch_batches()]
        assert sum(sizes) == n and min(sizes) >= 2


def test_the_history_has_the_figures_that_matter(digits, tmp_path):
    train(images(digits), tmp_path / "run")
    records = RunFolder(tmp_path / "run").history()
    assert [record["epoch"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert {"loss", "learning_rate", "drift", "seconds", "step"} <= records[0].keys()
    assert {"cost", "gap", "relative_gap", "changed", "rho", "heldout_loss"} <= records[1].keys()
    assert "cost" not in records[0]
    assert {"decoder", "generate", "cost", "assignment", "validation"} <= records[1]["seconds"].keys()
    assert all(0 <= record["changed"] <= 1 and abs(record["gap"]) < 1e-6 for record in records[1::2])


def test_a_run_folder_is_never_overwritten(digits, tmp_path):
    data = images(digits)
    train(data, tmp_path / "run")
    before = {p: p.read_bytes() for p in sorted((tmp_path / "run").rglob("*")) if p.is_file()}
    with pytest.raises(InputError, match="holds another run"):
        train(data, tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        train(data, tmp_path / "other")
    assert {p: p.read_bytes() for p in sorted((tmp_path / "run").rglob("*")) if p.is_file()} == before
    assert [p.name for p in (tmp_path / "other").iterdir()] == ["thesis.txt"]


def test_a_newer_or_damaged_run_is_refused_in_one_sentence(digits, tmp_path):
    path = tmp_path / "run"
    train(images(digits), path)
    good = (path / "config.json").read_text()
    for text, words in [
        (good.replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}'), "upgrade"),
        ("{}", "format"),
        ("[1]", "settings"),
        ("not json", "can't be read"),
        (json.dumps({"format": FORMAT}), "settings"),
    ]:
        (path / "config.json").write_text(text)
        with pytest.raises(InputError, match=words):
            runs.open_run(path)
    (path / "config.json").write_text(good)
    assert runs.open_run(path).sample(2, seed=0)[0].shape == (2, 1, 8, 8)
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(InputError, match="can't be read"):
        runs.open_run(path)
    with pytest.raises(InputError, match="not a run"):
        runs.open_run(tmp_path)


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "run")
    folder.write_config({"first": 1})

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        folder.write_config({"second": 2})
    assert folder.config() == {"format": FORMAT, "first": 1}
    assert [p.name for p in folder.path.iterdir()] == ["config.json"]


def test_a_run_says_what_it_used(digits, tmp_path):
    run = train(images(digits), tmp_path / "run", epochs=3)
    used = json.loads((tmp_path / "run" / "used.json").read_text())
    assert used == {f: getattr(run.used, f) for f in used}
    assert used["steps"] == run.history[-1]["step"] and used["images"] == 3 * len(run.index)
    parameters = sum(p.numel() for p in run.method.generator.parameters())
    assert used["parameters_trained"] == used["parameters_sampling"] == parameters
    assert used["seconds"] > 0 and used["peak_memory"] > 2**20
    assert runs.open_run(tmp_path / "run").used == run.used


def test_seconds_end_a_run_and_the_schedule_follows_them(digits, monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr("neurosql.training.time.perf_counter", lambda: float(next(clock)))
    run = train(images(digits), epochs=1000, seconds=200.0, patience=0)
    assert 1 < len(run.history) < 100
    rates = [record["learning_rate"] for record in run.history]
    assert rates == sorted(rates, reverse=True) and rates[-1] < 0.01 * rates[0]
