"""What the methods with learnt codes (VAE, RAE, GLO) share: one loop, one generator, runs that can be loaded."""

import os
import signal

import numpy as np
import pytest
import torch

import neurosql
from neurosql import run as runs
from neurosql.data import from_array
from neurosql.methods.base import Task
from neurosql.settings import Settings
from neurosql.training import Stopped, Trainer

METHODS = ("vae", "rae", "glo")
SMALL = dict(generator="mlp", width=32, epochs=4, batch_size=30, validate_every=2, checkpoint_every=2, latent_dim=3)


def interrupted(images, settings, out, after):
    """Train until a signal arrives after this many steps."""
    update, count = Trainer._update, iter(range(1, 10_000))

    def counted(self, name, loss):
        update(self, name, loss)
        if next(count) == after:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_update", counted)
        with pytest.raises(Stopped):
            runs.train(images, settings, out)


CASES = {
    "vae": {"method": "vae"},
    "vae gaussian, warm-up": {"method": "vae", "likelihood": "gaussian", "warmup": 2, "encoder": "mlp"},
    "vae convnet, average": {"method": "vae", "generator": "convnet", "width": 16, "ema": 0.9},
    "vae conditional": {"method": "vae", "conditional": True},
    "rae": {"method": "rae"},
    "rae conditional": {"method": "rae", "conditional": True, "encoder": "mlp"},
    "glo": {"method": "glo"},
    "glo conditional": {"method": "glo", "conditional": True},
    "glo early stop": {"method": "glo", "patience": 2, "validate_every": 1, "learning_rate": 0.1, "epochs": 6},
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_equals_one_that_was_not_stopped(case, digits, tmp_path):
    data = from_array(digits[0][:90], digits[1][:90])
    settings = Settings.from_flat(SMALL | CASES[case])
    whole = runs.train(data, settings, tmp_path / "whole")
    steps = whole.history[-1]["step"]
    for after in (1, steps // 2 + 1):
        path = tmp_path / f"stopped-{after}"
        interrupted(data, settings, path, after)
        assert neurosql.open_run(path).sample(2, seed=0)[0].shape == (2, 1, 8, 8)
        again = runs.resume(path, lambda source, limit: data)
        a, b = ([{k: v for k, v in r.items() if k != "seconds"} for r in run.history] for run in (whole, again))
        assert a == b
        for name in ("model.safetensors", "codes.safetensors"):
            assert (tmp_path / "whole" / name).read_bytes() == (path / name).read_bytes()


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_an_opened_run_does_what_the_fitted_one_did(method, conditional, digits, tmp_path):
    x, y = digits[0][:120], digits[1][:120]
    run = neurosql.fit(x, y, method, out=tmp_path / "run", conditional=conditional, **SMALL)
    opened = neurosql.open_run(tmp_path / "run")
    for label in (None, "3") if conditional else (None,):
        (a, labels_a), (b, labels_b) = (one.sample(7, label, seed=5) for one in (run, opened))
        assert np.array_equal(a, b) and a.shape == (7, 1, 8, 8) and a.min() >= 0 and a.max() <= 1
        assert (labels_a is None) != conditional
        assert not conditional or (np.array_equal(labels_a, labels_b) and (label is None or set(labels_a) == {3}))
    assert np.array_equal(run.reconstruct(), opened.reconstruct())
    assert run.reconstruct().shape == (108, 1, 8, 8)
    fresh = digits[0][200:210, None]
    for a, b in zip(run.encode(fresh), opened.encode(fresh)):
        assert a is b is None or np.array_equal(a, b)
    codes, labels, losses = opened.encode(fresh)
    assert codes.shape == (10, 3) and losses.shape == (10,) and (losses > 0).all()
    assert (labels is None) != conditional
    assert opened.method.heldout_loss(torch.from_numpy(fresh), None) > 0, "labels are not needed"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_begins_with_the_same_generator(method):
    for classes in (None, 3):
        settings = Settings.from_flat(SMALL | {"method": method, "generator": "convnet", "seed": 5}).resolve("image")
        task = Task(settings, (1, 8, 8), classes)
        plain = Task(
            Settings.from_flat(SMALL | {"generator": "convnet", "seed": 5}).resolve("image"), (1, 8, 8), classes
        )
        found, expected = neurosql.methods.make(task).networks["generator"].state_dict(), plain.generator().state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found)


@pytest.mark.parametrize(("layout", "shape"), [("np", (4,)), ("ncl", (1, 20)), ("ncdhw", (1, 5, 6, 7))])
@pytest.mark.parametrize("method", METHODS)
def test_vectors_signals_and_volumes_work(method, layout, shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, *shape)) if len(shape) == 1 else rng.random((60, *shape))
    run = neurosql.fit(from_array(x.astype(np.float32), layout=layout), None, method, **SMALL)
    assert run.sample(5, seed=0)[0].shape == (5, *shape)
    assert np.isfinite(run.sample(5, seed=0)[0]).all()
    assert run.encode(run.reconstruct())[0].shape == (54, 3)


@pytest.mark.parametrize("method", METHODS)
def test_training_leaves_the_global_random_state_alone(method, digits):
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    neurosql.fit(digits[0][:90], None, method, ema=0.9, **SMALL)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_the_loss_of_seen_and_unseen_images(method, digits):
    run = neurosql.fit(digits[0][:300], None, method, **SMALL | {"epochs": 16, "patience": 0})
    heldout = [record["heldout_loss"] for record in run.history if "heldout_loss" in record]
    assert run.history[-1]["loss"] < 0.8 * run.history[0]["loss"]
    assert heldout[-1] < heldout[0]


def test_the_encoder_is_averaged_with_the_generator(digits):
    run = neurosql.fit(digits[0][:90], None, "vae", **SMALL | {"ema": 0.99, "patience": 0})
    plain = neurosql.fit(digits[0][:90], None, "vae", **SMALL | {"patience": 0})
    for name in ("generator", "encoder"):
        weights = [next(iter(one.method.networks[name].parameters())) for one in (run, plain)]
        assert not torch.equal(*weights)
