"""IMLE and RS-IMLE: what is chosen, what is rejected, and runs that resume to the same bits."""

import os
import signal

import numpy as np
import pytest
import torch

import neurosql
from neurosql import InputError, methods, presets
from neurosql import run as runs
from neurosql.data import from_array
from neurosql.encode import decode
from neurosql.methods import imle
from neurosql.methods.base import Task
from neurosql.training import Stopped, Trainer

SMALL = dict(generator="mlp", width=32, epochs=5, batch_size=20, checkpoint_every=2, renew=2, pool=3, validate_every=2)
NAMES = ("imle", "rs-imle")


def build(x, labels=None, name="imle", **settings):
    """A method on these samples before its first step."""
    x = torch.as_tensor(np.asarray(x, dtype=np.float32))
    bounded = x.ndim > 2
    chosen = presets.settings(name, **(SMALL | settings)).resolve("image" if bounded else "vector")
    classes = None if labels is None else int(max(labels)) + 1
    method = methods.make(Task(chosen, tuple(x.shape[1:]), classes))
    method.attach(x, None if labels is None else torch.as_tensor(labels), 0)
    return method


def draws(method, m, seed=5):
    return method.prior.sample(m, torch.Generator().manual_seed(seed)).to(method.x)


def brute_force(method, x, codes, label=None):
    """All costs one by one, (n, m)."""
    labels = None if label is None else torch.full((len(codes),), label)
    samples = decode(method.generator, codes, labels)
    return np.array([[float(method.cost.paired(a[None], b[None])[0]) for b in samples] for a in x])


@pytest.mark.parametrize("name", NAMES)
def test_each_image_takes_the_nearest_admitted_sample(name, digits):
    method = build(digits[0][:12, None], name=name, reject=0.25) if name != "imle" else build(digits[0][:12, None])
    codes = draws(method, 40)
    places, costs, rejected = method.nearest(method.x, codes)
    every = brute_force(method, method.x, codes)
    every[:, rejected.numpy()] = np.inf
    assert places.tolist() == every.argmin(1).tolist()
    assert costs.numpy() == pytest.approx(every.min(1), abs=1e-6)
    assert int(rejected.sum()) == (0 if name == "imle" else 10)


def test_vectors_choose_by_their_own_cost():
    x = np.random.default_rng(0).normal(size=(15, 4))
    method = build(x)
    codes = draws(method, 50)
    samples = decode(method.generator, codes).numpy()
    distance = ((method.x.numpy()[:, None] - samples[None]) ** 2).mean(2)
    assert method.nearest(method.x, codes)[0].tolist() == distance.argmin(1).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_chunks_do_not_change_the_choice(name, digits, monkeypatch):
    method = build(digits[0][:30, None], name=name)
    codes = draws(method, 100)
    whole = method.nearest(method.x, codes)
    for chunk in (1, 7, 64):
        monkeypatch.setattr(imle, "CHUNK", chunk)
        parts = method.nearest(method.x, codes)
        assert torch.equal(parts[0], whole[0]) and torch.equal(parts[2], whole[2])
        assert torch.allclose(parts[1], whole[1], atol=1e-6)
    monkeypatch.setattr(imle, "CHUNK", 1024)
    method.memory = 4 * 64 * 3
    assert torch.equal(method.nearest(method.x, codes)[0], whole[0])


def test_never_more_than_a_chunk_of_samples_is_held(digits, monkeypatch):
    method = build(digits[0][:30, None], pool=20)
    monkeypatch.setattr(imle, "CHUNK", 50)
    sizes = []
    matrix = type(method.cost).matrix

    def record(self, x, y, *args):
        sizes.append(len(y))
        return matrix(self, x, y, *args)

    monkeypatch.setattr(type(method.cost), "matrix", record)
    method.start()
    assert sum(sizes) == 600 and max(sizes) == 50


def test_exactly_the_samples_within_epsilon_are_rejected(digits):
    method = build(digits[0][:20, None], name="rs-imle")
    codes = draws(method, 60)
    closest = brute_force(method, method.x, codes).min(0)
    for epsilon in np.quantile(closest, [0.0, 0.2, 0.6]) + 1e-5:
        method = build(digits[0][:20, None], name="rs-imle", epsilon=float(epsilon))
        places, _, rejected = method.nearest(method.x, codes)
        assert rejected.tolist() == (closest < epsilon).tolist()
        assert not rejected[places].any()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_share_rejects_the_nearest_samples_of_all(share, digits):
    """It is the paper's epsilon at a quantile: everything rejected is nearer to some image than anything admitted."""
    method = build(digits[0][:20, None], name="rs-imle", reject=share)
    codes = draws(method, 60)
    closest = torch.from_numpy(brute_force(method, method.x, codes).min(0))
    places, _, rejected = method.nearest(method.x, codes)
    assert int(rejected.sum()) == int(share * 60)
    if rejected.any():
        assert closest[rejected].max() <= closest[~rejected].min() + 1e-6
    assert not rejected[places].any()


def test_images_whose_candidates_are_all_rejected_look_further(digits, monkeypatch):
    method = build(digits[0][:20, None], name="rs-imle", reject=0.6)
    codes = draws(method, 80)
    whole = method.nearest(method.x, codes)
    monkeypatch.setattr(imle, "DEPTH", 1)
    again = method.nearest(method.x, codes)
    assert all(torch.equal(a, b) for a, b in zip(whole[::2], again[::2]))
    assert torch.allclose(whole[1], again[1], atol=1e-6)


def test_an_epsilon_above_all_costs_leaves_the_farthest_samples(digits):
    method = build(digits[0][:20, None], name="rs-imle", epsilon=10.0)
    places, _, rejected = method.nearest(method.x, draws(method, 60))
    assert int((~rejected).sum()) == 6
    assert not rejected[places].any()


@pytest.mark.parametrize("name", NAMES)
def test_images_choose_among_samples_of_their_own_class(name, digits):
    """Every class draws its own codes, and its images are compared with samples of its own label."""
    labels = digits[1][:60]
    method = build(digits[0][:60, None], labels, name=name)
    method.start()
    random = torch.Generator().manual_seed(0)
    for label in range(10):
        rows = np.flatnonzero(labels == label)
        codes = method.prior.sample(3 * len(rows), random).to(method.x)
        places, _, rejected = method.nearest(method.x[rows], codes, label)
        every = brute_force(method, method.x[rows], codes, label)
        every[:, rejected.numpy()] = np.inf
        assert places.tolist() == every.argmin(1).tolist()
        assert torch.equal(method.codes[rows], codes[places])


def test_one_sample_may_serve_several_images_and_the_history_says_so(digits):
    same = np.repeat(digits[0][:3, None], 10, 0)
    method = build(same, pool=5)
    method.start()
    figures = method.end_epoch(0, 5)
    assert figures["distinct"] <= 3 / 30
    assert figures["cost"] == pytest.approx(float(method.cost.paired(method.x, method.reconstruct()).mean()), abs=1e-5)
    assert method.end_epoch(1, 5) == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls(name, digits):
    run = neurosql.fit(digits[0][:200], method=name, **(SMALL | {"epochs": 20, "renew": 4, "latent_dim": 4}))
    losses = [record["loss"] for record in run.history]
    assert losses[-1] < 0.75 * losses[0]
    heldout = [record["heldout_loss"] for record in run.history if "heldout_loss" in record]
    assert heldout[-1] < 0.9 * heldout[0]
    again = run.method.reconstruct()
    assert run.method.cost.paired(run.method.x, again).mean() < losses[-1] + 0.1


def test_choices_come_every_few_epochs_and_never_after_the_last_step(digits):
    """The codes that a run ends with are those that it was trained on."""
    run = neurosql.fit(digits[0][:60], method="imle", **(SMALL | {"epochs": 6, "renew": 2}))
    assert [record["epoch"] for record in run.history if "cost" in record] == [1, 3, 5]
    assert {"generate", "cost", "decoder"} <= run.history[2]["seconds"].keys()


def test_jitter_spreads_the_codes_by_its_standard_deviation(digits):
    seen = []
    for jitter in (0.0, 0.2):
        method = build(digits[0][:200, None], jitter=jitter, latent_dim=3, scale=2.0)
        method.start()
        forward = method.generator.forward
        method.generator.forward = lambda z, label=None, f=forward: (seen.append(z), f(z, label))[1]
        index = torch.arange(200)
        method.training_step(imle.Batch(index, method.x, None), lambda name, loss: None)
        seen[-1] = seen[-1] - method.codes
    assert seen[0].abs().max() == 0
    assert seen[1].std().item() == pytest.approx(0.4, rel=0.1)


def interrupt_after(patch, steps):
    update = Trainer._update
    count = iter(range(steps, 0, -1))

    def counted(self, name, loss):
        update(self, name, loss)
        if next(count, 0) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    patch.setattr(Trainer, "_update", counted)


CASES = {
    "imle": {},
    "imle conditional": {"conditional": True},
    "imle average": {"ema": 0.9},
    "rs-imle": {},
    "rs-imle epsilon": {"epsilon": 0.3, "generator": "convnet", "width": 16},
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_equals_one_that_was_not_stopped(case, digits, tmp_path):
    data = from_array(digits[0][:90], digits[1][:90])

    def fit(path):
        return neurosql.fit(data, method=case.split()[0], out=path, **(SMALL | CASES[case]))

    whole = fit(tmp_path / "whole")
    for stop_after in (5, 13):
        path = tmp_path / f"stopped-{stop_after}"
        with pytest.MonkeyPatch.context() as patch:
            interrupt_after(patch, stop_after)
            with pytest.raises(Stopped):
                fit(path)
        again = runs.resume(path, lambda source, limit: data)
        for name in ("model.safetensors", "codes.safetensors"):
            assert (path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        without = [[{k: v for k, v in r.items() if k != "seconds"} for r in run.history] for run in (whole, again)]
        assert without[0] == without[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("conditional", [False, True])
def test_an_opened_run_gives_the_same(name, conditional, digits, tmp_path):
    data = from_array(digits[0][:90], digits[1][:90])
    run = neurosql.fit(data, method=name, out=tmp_path / "run", **(SMALL | {"conditional": conditional}))
    again = neurosql.open_run(tmp_path / "run")
    assert np.array_equal(run.sample(9, seed=3)[0], again.sample(9, seed=3)[0])
    assert np.array_equal(run.reconstruct(), again.reconstruct())
    first, second = (r.encode(digits[0][100:105, None]) for r in (run, again))
    assert all(a is b is None or np.array_equal(a, b) for a, b in zip(first, second))
    assert (first[1] is not None) == conditional
    if conditional:
        assert (again.sample(4, label="7", seed=0)[1] == 7).all()
        with pytest.raises(InputError, match="not trained on"):
            again.encode(digits[0][:2, None], np.array([3, 12]))


@pytest.mark.parametrize("name", NAMES)
def test_vectors_work(name):
    x = np.random.default_rng(0).normal(size=(60, 5))
    run = neurosql.fit(x, method=name, **SMALL)
    assert run.sample(3, seed=0)[0].shape == (3, 5)
    assert run.encode(x[:4].astype(np.float32))[0].shape == (4, 2)


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_starts_from_the_common_weights(name, digits):
    chosen = presets.settings(name, generator="convnet", width=16).resolve("image")
    task = Task(chosen, (1, 8, 8))
    expected = task.generator().state_dict()
    found = methods.make(task).networks["generator"].state_dict()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


@pytest.mark.parametrize("wrong", [{"pool": 0}, {"renew": 0}, {"jitter": -1.0}, {"reject": 1.0}, {"epsilon": -0.1}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        presets.settings("rs-imle", **wrong)
