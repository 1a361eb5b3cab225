"""Numbers that are not finite: the step is refused, the networks stay as they were, and the user is told what to do."""

import math

import numpy as np
import pytest
import torch

from neurosql import NeuroSQL, methods
from neurosql import run as runs
from neurosql.checkpoint import CHECKPOINT, RunFolder
from neurosql.cli import main
from neurosql.data import from_array
from neurosql.errors import NotFinite
from neurosql.methods.base import Task
from neurosql.settings import METHODS, Settings
from neurosql.training import Diverged, Trainer

TINY = dict(generator="mlp", width=8, epochs=4, batch_size=10, validate_every=1, patience=0)
BUILT_IN = [name for name in METHODS if METHODS[name].implementation.startswith("neurosql.")]


def trainer_of(method, digits, **settings):
    """A trainer before its first step, on 40 digits."""
    chosen = Settings.from_flat(TINY | {"method": method} | settings).resolve("image")
    x = torch.from_numpy(from_array(digits[0][:40]).x)
    built = methods.make(Task(chosen, tuple(x.shape[1:])))
    built.attach(x, None, 0)
    built.start()
    return Trainer(built, x.clone(), None, chosen.training)


def networks_of(trainer):
    return {
        f"{name}.{key}": value.clone()
        for name, network in trainer.method.networks.items()
        for key, value in network.state_dict().items()
    }


def spoil_image(trainer, patch):
    trainer.x[17] = math.nan


def spoil_gradient(trainer, patch):
    for network in trainer.method.networks.values():
        next(network.parameters()).register_hook(
            lambda gradient: gradient * math.inf if trainer.step == 2 else gradient
        )


def spoil_weight(trainer, patch):
    for optimizer in trainer.optimizers.values():

        def stepped(closure=None, optimizer=optimizer, step=optimizer.step):
            step()
            if trainer.step == 2:
                optimizer.param_groups[0]["params"][0].data[0] = math.inf

        patch.setattr(optimizer, "step", stepped)


@pytest.mark.parametrize("method", BUILT_IN)
@pytest.mark.parametrize("clip", [1.0, 0.0])
@pytest.mark.parametrize("spoil", [spoil_image, spoil_gradient, spoil_weight])
def test_a_step_that_is_not_finite_leaves_the_networks_as_they_were(method, clip, spoil, digits, monkeypatch):
    trainer = trainer_of(method, digits, clip=clip)
    before = {}
    step = trainer.method.training_step

    def watched(batch, update):
        before.update(networks_of(trainer))
        return step(batch, update)

    monkeypatch.setattr(trainer.method, "training_step", watched)
    spoil(trainer, monkeypatch)
    what = {spoil_image: "the loss of the|every cost", spoil_gradient: "the gradient of the", spoil_weight: "a weight"}
    what[spoil_weight] += "|the loss of the generator" if method == "gan" else ""
    with pytest.raises(Diverged, match=rf"training diverged in epoch 1, step [1234]: ({what[spoil]})"):
        trainer.run()
    after = networks_of(trainer)
    assert before and all(torch.equal(before[name], after[name]) for name in before)
    assert all(value.isfinite().all() for value in after.values() if value.is_floating_point())


@pytest.mark.parametrize("rate", [1e3, 1e30])
@pytest.mark.parametrize("method", BUILT_IN)
def test_whatever_the_learning_rate_what_is_kept_is_finite_and_makes_finite_samples(method, rate, digits, tmp_path):
    given = TINY | {"method": method, "learning_rate": rate, "clip": 0.0, "checkpoint_every": 1}
    try:
        run = runs.train(from_array(digits[0][:40]), Settings.from_flat(given), tmp_path / "run")
    except Diverged as error:
        assert f"Try a learning_rate below {rate:g}, such as 0.002, and clip 1" in str(error)
    else:
        assert rate < 1e30
        assert np.isfinite(run.sample(4, seed=0)[0]).all()
    for path in (tmp_path / "run").rglob("*.safetensors"):
        tensors, _ = RunFolder(path.parent).read_tensors(path.name)
        numbers = {k: v for k, v in tensors.items() if v.is_floating_point() and not k.endswith("figures")}
        assert all(value.isfinite().all() for value in numbers.values())


def test_the_term_that_is_not_finite_is_named(digits):
    trainer = trainer_of("vae", digits)
    list(trainer.method.encoder.parameters())[-1].data.fill_(1e25)
    with pytest.raises(Diverged, match=r"epoch 1, step 1: the loss of the autoencoder is not finite \(kl divergence\)"):
        trainer.run()


def test_costs_that_are_not_finite_are_refused_before_images_are_assigned(digits, monkeypatch):
    trainer = trainer_of("neurosql", digits, every=1)
    before = trainer.method.permutation.clone()
    monkeypatch.setattr(
        trainer.method.cost.__class__, "matrix", lambda self, x, y, memory: torch.full((40, 40), math.nan)
    )
    with pytest.raises(Diverged, match=r"epoch 1, step 4: every cost must be finite, got nan"):
        trainer.run()
    assert torch.equal(trainer.method.permutation, before)


def test_a_choice_among_samples_whose_costs_are_not_finite_is_refused(digits):
    trainer = trainer_of("imle", digits)
    with pytest.raises(NotFinite, match="the cost of a sample is not finite"):
        trainer.method.nearest(trainer.x, torch.full((5, 2), math.nan))


def test_a_model_of_finite_weights_that_makes_no_finite_samples_is_not_saved(digits, tmp_path, monkeypatch):
    table = from_array(np.random.default_rng(0).normal(size=(40, 5)))
    step = Trainer._take_step

    def blown_up(self, batch):
        step(self, batch)
        for parameter in self.method.generator.parameters():
            parameter.data.mul_(1e16)

    monkeypatch.setattr(Trainer, "_take_step", blown_up)
    settings = Settings.from_flat(TINY | {"steps": 1, "checkpoint_every": 1, "every": 0, "validation_share": 0.0})
    with pytest.raises(Diverged, match=r"epoch 1, step 1: what the model makes is not finite"):
        runs.train(table, settings, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_a_run_that_diverged_before_its_first_checkpoint_was_due_can_be_resumed(digits, tmp_path, monkeypatch):
    data = from_array(digits[0][:40])
    settings = Settings.from_flat(TINY | {"checkpoint_every": 100, "patience": 9})
    whole = runs.train(data, settings, tmp_path / "whole")
    update = Trainer._update

    def breaking(self, name, loss):
        update(self, name, loss * math.nan if self.step == 9 else loss)

    monkeypatch.setattr(Trainer, "_update", breaking)
    with pytest.raises(Diverged, match=r"epoch 3, step 10: .* The best model so far, of epoch \d, was kept"):
        runs.train(data, settings, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert folder.has(CHECKPOINT) and not runs.is_finished(folder)
    with pytest.raises(Diverged, match=r"resuming .* would take the same steps"):
        runs.resume(tmp_path / "run", lambda source, how: data)
    monkeypatch.undo()
    again = runs.resume(tmp_path / "run", lambda source, how: data)
    assert torch.equal(whole.method.codes, again.method.codes)


def test_the_command_line_says_in_one_sentence_that_a_run_diverged_and_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.random.default_rng(0).random((30, 8, 8)))
    small = ["--generator", "mlp", "--width", "8", "--epochs", "2", "--batch-size", "10"]
    assert main(["train", "x.npy", "--out", "run", "--learning-rate", "1e30", *small]) == 2
    error = capsys.readouterr().err
    assert "training diverged in epoch 1, step 1: a weight is 1e+30. Try a --learning-rate below" in error
    assert main(["resume", "run"]) == 2
    assert "training diverged in epoch 1, step 1" in capsys.readouterr().err


def test_a_model_that_is_not_a_number_has_no_score(digits):
    model = NeuroSQL(epochs=1, width=8).fit(digits[0][:30])
    good = model.score(digits[0][:5])
    next(model.run_.method.generator.parameters()).data.fill_(math.nan)
    assert good < 0 and math.isnan(model.score(digits[0][:5]))
