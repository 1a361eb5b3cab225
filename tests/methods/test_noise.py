"""Diffusion and flow matching in the loop: they train, resume to the same bits, load, and know their classes."""

import os
import signal

import numpy as np
import pytest
import torch

import neurosql
from neurosql import InputError, methods, networks, presets
from neurosql import run as runs
from neurosql.data import from_array
from neurosql.methods.base import Task
from neurosql.methods.denoisers import MLP, UNet
from neurosql.methods.noise import spread_times
from neurosql.training import Stopped, Trainer

METHODS = ["ddpm", "ot-cfm"]
SMALL = dict(generator="mlp", width=48, epochs=4, batch_size=20, validate_every=2, checkpoint_every=2)
FEW = {"steps": 4}
# For tests of bits, which do not depend on sizes.
NARROW = {"width": 16, "batch_size": 30}


def fit(method, x, y=None, **settings):
    return neurosql.fit(x, y, method, **SMALL | settings)


def network(run):
    return run.method.networks[run.method.sampling[0]]


def weights(run):
    return network(run).state_dict()


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_falls_and_samples_are_images(method, digits):
    run = fit(method, digits[0][:120], epochs=10)
    losses = [record["loss"] for record in run.history]
    assert losses[-1] < 0.85 * losses[0]
    samples, labels = run.sample(7, seed=0, **FEW)
    assert samples.shape == (7, 1, 8, 8) and labels is None
    assert samples.min() >= 0 and samples.max() <= 1
    assert not run.has_codes
    with pytest.raises(InputError, match="no codes"):
        run.reconstruct()


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_equals_one_that_was_not_stopped(method, conditional, digits, tmp_path):
    data = from_array(digits[0][:90], digits[1][:90])
    settings = presets.settings(method, **SMALL | NARROW, conditional=conditional)
    whole = runs.train(data, settings, tmp_path / "whole")
    steps = whole.history[-1]["step"]
    for stop_after in (1, steps // 2 + 1):
        path = tmp_path / f"stopped-{stop_after}"
        with pytest.MonkeyPatch.context() as patch:
            update = Trainer._update

            def counted(self, name, loss, update=update, stop_after=stop_after):
                update(self, name, loss)
                if self.step + 1 == stop_after:
                    os.kill(os.getpid(), signal.SIGINT)

            patch.setattr(Trainer, "_update", counted)
            with pytest.raises(Stopped):
                runs.train(data, settings, path)
        again = runs.resume(path, lambda source, limit: data)
        assert all(torch.equal(value, weights(again)[name]) for name, value in weights(whole).items())
        drop = [[{k: v for k, v in r.items() if k != "seconds"} for r in run.history] for run in (whole, again)]
        assert drop[0] == drop[1]
        for name in ("model.safetensors", "codes.safetensors"):
            assert (tmp_path / "whole" / name).read_bytes() == (path / name).read_bytes()


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_an_opened_run_gives_the_same_samples(method, conditional, digits, tmp_path):
    x, y = digits[0][:60], digits[1][:60]
    run = fit(method, x, y, epochs=2, conditional=conditional, out=tmp_path / "run", **NARROW)
    again = neurosql.open_run(tmp_path / "run")
    for seed in (0, 1):
        (a, labels_a), (b, labels_b) = run.sample(9, seed=seed, **FEW), again.sample(9, seed=seed, **FEW)
        assert np.array_equal(a, b) and np.array_equal(labels_a, labels_b)
    assert not np.array_equal(a, run.sample(9, seed=0, **FEW)[0])


@pytest.mark.parametrize("method", METHODS)
def test_a_conditional_model_tells_its_classes_apart(method):
    """Dark images and bright ones."""
    y = np.arange(120) % 2
    x = np.clip(0.15 + 0.7 * y[:, None, None] + 0.05 * np.random.default_rng(0).normal(size=(120, 8, 8)), 0, 1)
    run = fit(method, x, y, conditional=True, epochs=15, ema=0.0)
    for label, level in ((0, 0.15), (1, 0.85)):
        samples, labels = run.sample(20, label=label, seed=0, steps=10)
        assert (labels == label).all()
        assert samples.mean() == pytest.approx(level, abs=0.15)
    with pytest.raises(InputError, match="no class"):
        run.sample(3, label=2)


@pytest.mark.parametrize("method", METHODS)
def test_vectors_are_learnt_by_an_mlp_and_keep_their_correlation(method):
    random = np.random.default_rng(0)
    z = random.normal(size=400)
    x = np.column_stack([z, -z + 0.2 * random.normal(size=400), 5 + 2 * random.normal(size=400)])
    run = fit(method, x, width=128, epochs=40, batch_size=50)
    assert isinstance(network(run), MLP)
    samples = run.like.restore(run.sample(2000, seed=0, steps=25)[0])
    assert np.corrcoef(samples.T)[0, 1] == pytest.approx(-0.98, abs=0.06)
    assert samples.mean(0) == pytest.approx(x.mean(0), abs=0.35)
    assert samples.std(0) == pytest.approx(x.std(0), rel=0.2)


@pytest.mark.parametrize("shape", [(2, 30), (1, 6, 5, 4)])
@pytest.mark.parametrize("method", METHODS)
def test_signals_and_volumes_train(method, shape):
    x = np.random.default_rng(0).uniform(size=(30, *shape)).astype(np.float32)
    run = fit(method, from_array(x, layout="ncl" if len(shape) == 2 else "ncdhw"), epochs=1)
    assert run.sample(3, seed=0, **FEW)[0].shape == (3, *shape)


@pytest.mark.parametrize("method", METHODS)
def test_the_network_is_as_large_as_the_generator_and_as_seeded(method):
    for seed in (0, 1):
        settings = presets.settings(method, latent_dim=8, seed=seed).resolve("image")
        task = Task(settings, (1, 28, 28))
        state = torch.get_rng_state()
        first, again = methods.make(task), methods.make(task)
        assert torch.equal(torch.get_rng_state(), state)
        (name,) = first.sampling
        assert isinstance(first.networks[name], UNet)
        assert first.parameters() == pytest.approx(networks.count(task.generator()), rel=0.1)
        for key, value in first.networks[name].state_dict().items():
            assert torch.equal(value, again.networks[name].state_dict()[key])


def test_the_papers_unet_is_32_wide():
    settings = presets.settings("ddpm", "paper").resolve("image")
    assert methods.make(Task(settings, (1, 28, 28))).networks["denoiser"].widths == [32, 64, 64]
    vectors = presets.settings("ddpm", "paper").resolve("vector")
    task = Task(vectors, (5,))
    assert methods.make(task).parameters() == pytest.approx(networks.count(task.generator()), rel=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_the_held_out_loss_is_the_same_each_time_and_hardly_depends_on_its_draws(method, digits):
    run = fit(method, digits[0][:100], digits[1][:100], epochs=3, conditional=True)
    x, label = torch.from_numpy(digits[0][200:400, None]), torch.from_numpy(digits[1][200:400])
    state = run.method.random.get_state()
    loss = run.method.heldout_loss(x, label)
    assert loss == run.method.heldout_loss(x, label)
    assert torch.equal(state, run.method.random.get_state())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neurosql.methods.noise.HELDOUT_SEED", 1)
        assert run.method.heldout_loss(x, label) == pytest.approx(loss, rel=0.05)
    assert run.method.heldout_loss(x[:1], label[:1]) > 0


@pytest.mark.parametrize("method", METHODS)
def test_training_leaves_the_global_random_state_alone(method, digits):
    before = torch.get_rng_state()
    fit(method, digits[0][:40], epochs=1, **NARROW).sample(2, seed=0, **FEW)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("method", METHODS)
def test_samples_come_in_chunks_of_bounded_size(method, digits, monkeypatch):
    run = fit(method, digits[0][:40], epochs=1, **NARROW)
    monkeypatch.setattr("neurosql.methods.noise.rows_at_once", lambda shape: 3)
    seen = []
    forward = network(run).forward
    monkeypatch.setattr(network(run), "forward", lambda x, t, label: (seen.append(len(x)), forward(x, t, label))[1])
    assert run.sample(8, seed=0, **FEW)[0].shape == (8, 1, 8, 8)
    assert max(seen) == 3


def test_times_are_uniform_and_evenly_spread():
    random = torch.Generator().manual_seed(0)
    times = torch.stack([spread_times(10, random) for _ in range(2000)])
    assert ((times >= 0) & (times < 1)).all()
    assert torch.allclose(times.sort(1).values.diff(dim=1), torch.tensor(0.1), atol=1e-5)
    counts = torch.histc(times[:, 3], bins=5, min=0, max=1)
    assert counts.tolist() == pytest.approx([400] * 5, rel=0.2)
