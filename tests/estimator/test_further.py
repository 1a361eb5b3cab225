"""More training of a fitted model, callbacks that stop it, and the device that it takes."""

import numpy as np
import pytest
import torch

from neurosql import InputError, NeuroSQL, data, fit, open_run, restoring, run
from neurosql.checkpoint import RunFolder
from neurosql.cli import main
from neurosql.training import Stopped

QUICK = dict(generator="mlp", width=16, epochs=4, batch_size=32)
PRESETS = ("plain", "paper", "map", "samples", "photographs")


def is_permutation(model):
    return np.array_equal(np.sort(model.permutation_), np.arange(len(model.train_index_)))


@pytest.fixture(scope="module")
def images(digits):
    return digits[0][:70]


@pytest.mark.parametrize("preset", PRESETS)
def test_warm_start_goes_on_from_the_present_model(preset, images):
    model = NeuroSQL(preset=preset, latent_dim=3, **QUICK, warm_start=True, random_state=1).fit(images[:60])
    before, codes, history = model.score(images[:60]), model.codes_, model.history_
    # So slow that nothing is learnt: what is seen is where the second training begins.
    still = {"learning_rate": 1e-12, "epochs": 1, "weight_decay": 0.0, "patience": 0}
    moving = {"code_rate": 1e-12} if preset in ("samples", "photographs") else {}
    moving |= {"shared_rate": 1e-12} if moving else {}
    model.set_params(**still, **moving).fit(images[:60])
    assert is_permutation(model)
    assert model.history_[: len(history)] == history and len(model.history_) == len(history) + 1
    afresh = NeuroSQL(**model.get_params() | {"warm_start": False}).fit(images[:60])
    assert abs(model.score(images[:60]) - before) < 0.5 * abs(afresh.score(images[:60]) - before)
    if preset in ("plain", "map"):
        # These end on the lattice, which is the same for the same images: some images swap places, none is lost.
        assert np.allclose(np.sort(model.lattice_, 0), np.sort(model.codes_[model.train_index_], 0))
        assert np.median(np.linalg.norm(model.codes_ - codes, axis=1)) < 1.0


@pytest.mark.parametrize("preset", PRESETS)
def test_more_images_join_the_model(preset, images):
    model = NeuroSQL(preset=preset, latent_dim=3, **QUICK, validation_share=0.2).fit(images[:50])
    heldout = np.setdiff1d(np.arange(50), model.train_index_)
    model.fit_more(images[50:], epochs=2)
    assert model.codes_.shape == (70, 3) and len(model.lattice_) == len(model.train_index_) == 56
    assert is_permutation(model) and np.isfinite(model.codes_).all()
    assert not set(heldout) & set(model.train_index_)
    assert [figures["epoch"] for figures in model.history_][-2:] == [1, 2]
    assert model.sample(3).shape == (3, 8, 8)
    if preset in ("plain", "map"):
        assert np.allclose(model.codes_[model.train_index_], model.lattice_[model.permutation_])


def test_the_model_learns_from_the_new_images(digits):
    zeros, ones = (digits[0][digits[1] == label] for label in (0, 1))
    model = NeuroSQL(**QUICK | {"epochs": 15}, validation_share=0).fit(zeros[:60])
    before = model.score(ones[60:100])
    model.fit_more(ones[:60])
    assert model.score(ones[60:100]) > before + 0.05
    assert model.codes_.shape == (120, 2)


def test_known_images_begin_at_their_codes_and_new_ones_are_encoded(images):
    model = NeuroSQL(preset="plain", **QUICK, validation_share=0).fit(images[:50])
    codes, encoded = model.codes_, model.transform(images[50:])
    begin = run.Beginning(model.run_, np.concatenate([codes, np.full((20, 2), np.nan, np.float32)]))
    found = begin.codes_of(model._images.joined(model._images.take(np.arange(20))), np.arange(50))
    assert np.array_equal(found, codes)
    model.fit_more(images[50:], epochs=1)
    # One epoch moves codes to lattice points near them: those of N(0, 1) are 3 apart on average.
    moved = np.linalg.norm(model.codes_ - np.concatenate([codes, encoded]), axis=1)
    assert np.median(moved) < 1.0


def test_a_conditional_model_takes_more_images_of_its_classes(digits):
    images, names = digits[0][:80], np.array(["even", "odd"])[digits[1][:80] % 2]
    model = NeuroSQL(**QUICK, conditional=True, validation_share=0).fit(images[:60], names[:60])
    model.fit_more(images[60:], names[60:], epochs=1)
    assert is_permutation(model) and model.run_.labels.tolist() == (names == "odd").astype(int).tolist()
    labels = model.run_.method.lattice_labels[model.permutation_].cpu().numpy()
    assert np.array_equal(labels, model.run_.labels)
    with pytest.raises(InputError, match="give y"):
        model.fit_more(images[60:])
    with pytest.raises(InputError, match="no class 'prime'"):
        model.fit_more(images[60:62], ["prime", "odd"])


def test_vectors_keep_the_units_of_the_first_table():
    random = np.random.default_rng(0)
    first, second = random.normal(100, 5, (60, 3)), random.normal(130, 5, (30, 3))
    model = NeuroSQL(latent_dim=2, epochs=3, width=16, validation_share=0).fit(first)
    mean = model.run_.like.mean
    model.fit_more(second, epochs=3)
    assert np.array_equal(model.run_.like.mean, mean)
    assert np.allclose(model.run_.like.restore(model._images.x), np.concatenate([first, second]), atol=1e-3)
    assert np.allclose(model.run_.like.columns.high, np.concatenate([first, second]).max(0))


def test_warm_start_takes_other_images(images):
    model = NeuroSQL(**QUICK, warm_start=True, validation_share=0).fit(images[:40])
    model.fit(images[30:])
    assert model.codes_.shape == (40, 2) and is_permutation(model)


def test_labels_that_do_not_enter_the_training_may_change(images):
    model = NeuroSQL(**QUICK, warm_start=True, validation_share=0).fit(images, np.arange(70) % 2)
    model.fit(images, np.array(["a", "b", "c"])[np.arange(70) % 3])
    assert list(model.classes_) == ["a", "b", "c"]
    model.fit_more(images[:9], epochs=1)
    assert model.codes_.shape == (79, 2) and not hasattr(model, "classes_")


def test_the_parts_of_a_set_all_change_their_units():
    values = np.random.default_rng(0).normal(5, 3, (60, 2))
    model = NeuroSQL(latent_dim=1, epochs=1, width=16, warm_start=True).fit(values + 100)
    parts = data.from_array(values).divide(0.2, 0.2, seed=0)
    model.fit(parts)
    like = model.run_.like
    for part in parts.in_units_of(like).parts.values():
        assert np.allclose(part.x * like.std + like.mean, values[part.rows], atol=1e-3)
    assert model.run_.data.heldout == 12 and np.abs(like.mean - 105).max() < 2


def test_a_loaded_model_goes_on_with_all_its_images(images, tmp_path):
    NeuroSQL(**QUICK).fit(images).save(tmp_path / "run")
    model = NeuroSQL.load(tmp_path / "run")
    with pytest.raises(InputError, match=r"set_params\(warm_start=True\)"):
        model.fit_more(images)
    epochs = len(model.history_)
    model.set_params(warm_start=True, epochs=1).fit(images)
    assert len(model.history_) == epochs + 1 and is_permutation(model)


def test_another_architecture_is_refused(images):
    model = NeuroSQL(**QUICK, warm_start=True).fit(images)
    with pytest.raises(InputError, match="width of a trained model can't change from 16 to 32"):
        model.set_params(width=32).fit(images)
    with pytest.raises(InputError, match="shape"):
        model.set_params(width=16).fit(np.zeros((9, 5, 5)))


def test_other_methods_say_that_they_can_not_go_on(images):
    trained = fit(images, method="vae", **QUICK)
    with pytest.raises(InputError, match="vae can't go on"):
        run.train(trained.like, trained.settings, begin=run.Beginning(trained, np.zeros((0, 2), np.float32)))


@pytest.mark.parametrize("preset", ("map", "samples"))
def test_a_run_that_goes_on_can_be_stopped_and_resumed(preset, images, tmp_path):
    np.save(tmp_path / "some.npy", images[:50])
    np.save(tmp_path / "all.npy", images)
    given = dict(preset=preset, latent_dim=3, **QUICK, checkpoint_every=1)
    first = fit(tmp_path / "some.npy", **given)
    settings = first.settings

    def train(out, stop=None):
        def hear(figures):
            if stop and figures["epoch"] == stop:
                raise Stopped

        images = run.images_of(tmp_path / "all.npy", None, settings)
        return run.train(images, settings, out, hear=hear, begin=run.Beginning(first))

    whole = train(tmp_path / "whole")
    with pytest.raises(Stopped):
        train(tmp_path / "part", stop=3)
    assert main(["resume", str(tmp_path / "part")]) == 0
    again, whole = open_run(tmp_path / "part"), open_run(tmp_path / "whole")
    assert torch.equal(again.method.codes, whole.method.codes)
    assert np.array_equal(again.sample(3, seed=0)[0], whole.sample(3, seed=0)[0])
    assert len(again.history) == len(whole.history) == len(first.history) + settings.training.epochs


def test_a_callback_hears_each_epoch_and_can_not_change_it(images):
    heard = []

    def callback(figures):
        heard.append(dict(figures))
        figures.clear()

    model = NeuroSQL(**QUICK).fit(images, callback=callback)
    assert heard == model.history_ and len(heard) == 4
    assert all(type(figures["loss"]) is float for figures in heard)
    assert np.array_equal(model.codes_, NeuroSQL(**QUICK).fit(images).codes_)


def test_a_callback_stops_the_training_and_the_model_is_kept(images, tmp_path):
    model = NeuroSQL(**QUICK | {"epochs": 50}).fit(
        images, out=tmp_path / "run", callback=lambda figures: figures["epoch"] == 3
    )
    assert model.n_iter_ == 3 and is_permutation(model)
    again = NeuroSQL.load(tmp_path / "run")
    assert np.array_equal(again.sample(2, random_state=0), model.sample(2, random_state=0))
    assert run.is_finished(RunFolder.existing(tmp_path / "run")) and again.n_iter_ == 3


def test_a_callback_stops_any_method_and_the_closing_epochs(images):
    assert len(fit(images, method="vae", **QUICK, callback=lambda figures: True).history) == 1
    ended = fit(images, preset="plain", **QUICK, snap=9, callback=lambda figures: figures["phase"] == "closing")
    assert [figures["phase"] for figures in ended.history] == ["main"] * 4 + ["closing"]


def test_auto_is_the_first_device_that_there_is(monkeypatch, images, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    model = NeuroSQL(**QUICK, device="auto").fit(images, out=tmp_path / "run")
    assert model.run_.method.device.type == "cpu"
    assert open_run(tmp_path / "run", device="auto").method.device.type == "cpu"
    asked = []
    monkeypatch.setattr(torch, "empty", lambda size, device: asked.append(str(device)))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert restoring.device_of("auto").type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert restoring.device_of("auto").type == "cuda"
    assert asked == ["mps", "cuda"]


def test_the_command_line_takes_auto(tmp_path):
    arguments = ["--device", "auto", "--budget", "smoke", "--limit", "30", "--generator", "mlp", "--width", "16"]
    assert main(["train", "mnist-sample", *arguments, "--out", str(tmp_path / "run")]) == 0
    assert open_run(tmp_path / "run").settings.training.device == "auto"
