"""The estimator: scikit-learn's conventions, the shapes it takes, and codes for new samples."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from neurosql import InputError, NeuroSQL, data, presets, prior
from neurosql.settings import BACKBONES, METHODS, section_classes

QUICK = dict(generator="mlp", width=32, epochs=4, batch_size=32, every=2)


@parametrize_with_checks(
    [
        NeuroSQL(latent_dim=1, width=16, epochs=2, every=1, validation_share=0.0),
        NeuroSQL(latent_dim=2, width=16, epochs=2, algorithm="mini-batch"),
    ],
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_constructor_has_every_setting_and_takes_the_presets_where_none_is_given():
    sections = [*section_classes("neurosql").values(), *(BACKBONES[name].settings for name in BACKBONES)]
    names = {f.name for section in sections for f in dataclasses.fields(section)}
    parameters = NeuroSQL().get_params()
    own = {"random_state", "verbose", "warm_start", "preset"}
    assert parameters.keys() == names - {"seed"} | own | {"holdout"}
    assert {name for name, value in parameters.items() if value is not None} == own
    for preset in METHODS["neurosql"].presets():
        assert NeuroSQL(preset=preset).settings() == presets.settings(preset=preset)
    assert NeuroSQL(preset="map", components=1, mapping=0).settings().flat()["components"] == 1


def test_clone_and_set_params():
    model = NeuroSQL(latent_dim=3, momentum=0.5).set_params(epochs=7, every=1)
    twin = clone(model)
    assert twin is not model and twin.get_params() == model.get_params()
    assert twin.settings().quantile.momentum == 0.5 and twin.settings().training.epochs == 7


@pytest.fixture(scope="module")
def fitted(digits):
    images, labels = digits
    return NeuroSQL(**QUICK | {"epochs": 12}, latent_dim=2, validation_share=0.0).fit(images[:200], labels[:200])


LAYOUTS = {
    "grey": lambda x: x,
    "channels last": lambda x: x[..., None],
    "channels first": lambda x: x[:, None],
    "colour, last": lambda x: np.repeat(x[..., None], 3, -1),
    "colour, first": lambda x: np.repeat(x[:, None], 3, 1),
    "vectors": lambda x: x.reshape(len(x), -1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["uint8", "float32", "float64", "torch"])
def test_every_layout_and_type_comes_back_as_it_was_given(digits, layout, kind):
    x = LAYOUTS[layout](digits[0][:40])
    given = (x * 255).round().astype(np.uint8) if kind == "uint8" else x.astype(kind if kind != "torch" else np.float32)
    given = torch.from_numpy(given) if kind == "torch" else given
    model = NeuroSQL(**QUICK, validation_share=0.0).fit(given)
    assert model.codes_.shape == (40, 2)
    assert model.sample(5, random_state=0).shape == (5, *x.shape[1:])
    assert model.inverse_transform(model.codes_).shape == x.shape
    assert model.transform(given[:3]).shape == (3, 2)
    expected = {"vectors": "vectors of 64", "grey": "40 grey images of 8 x 8", "colour, last": "colour images of 8 x 8"}
    assert expected.get(layout, "images of 8 x 8") in model.input_


def test_uint8_and_float_are_the_same_images(digits):
    byte = (digits[0][:40] * 255).round().astype(np.uint8)
    a = NeuroSQL(**QUICK).fit(byte)
    b = NeuroSQL(**QUICK).fit(byte.astype(np.float64) / 255)
    assert np.array_equal(a.codes_, b.codes_)


def test_codes_are_a_permutation_of_the_lattice(fitted):
    assert np.array_equal(np.sort(fitted.permutation_), np.arange(200))
    assert np.allclose(fitted.codes_, fitted.lattice_[fitted.permutation_])


def test_held_out_samples_get_codes_too(digits):
    model = NeuroSQL(**QUICK, validation_share=0.25).fit(digits[0][:80])
    assert model.codes_.shape == (80, 2) and len(model.train_index_) == 60
    rest = np.setdiff1d(np.arange(80), model.train_index_)
    assert np.allclose(model.codes_[rest], model.transform(digits[0][:80][rest]), atol=1e-5)


def test_transform_does_not_depend_on_the_batch(fitted, digits):
    images = digits[0][300:400]
    together = fitted.transform(images)
    for size in (1, 7, 64):
        apart = np.concatenate([fitted.transform(images[i : i + size]) for i in range(0, 21, size)])
        assert np.abs(apart - together[: len(apart)]).max() <= 1e-5
    assert np.abs(fitted.transform(images[::-1])[::-1] - together).max() <= 1e-5


def test_transform_of_a_convnet_does_not_depend_on_the_batch(digits):
    model = NeuroSQL(generator="convnet", width=16, epochs=4, batch_size=32, every=2).fit(digits[0][:150])
    together = model.transform(digits[0][300:340])
    apart = np.concatenate([model.transform(digits[0][i : i + 1]) for i in range(300, 310)])
    assert np.abs(apart - together[:10]).max() <= 1e-5


def test_refinement_improves_on_the_nearest_lattice_code(fitted, digits):
    x = torch.from_numpy(digits[0][300:400, None])
    method = fitted.run_.method
    nearest = method.encode(x, steps=0)[2]
    refined = method.encode(x)[2]
    assert (refined <= nearest + 0.02).all()
    assert refined.mean() < 0.99 * nearest.mean()


def test_refinement_finds_the_code_of_a_generated_image(fitted):
    """Images that the generator made are explained almost perfectly."""
    made = fitted.sample(30, random_state=1)
    assert fitted.score(made) > -0.03
    assert fitted.score(made) > fitted.score(np.clip(made[::-1] * 0.5 + 0.25, 0, 1))


def test_score_is_minus_the_mean_loss(fitted, digits):
    images = digits[0][300:340]
    losses = fitted.run_.method.encode(torch.from_numpy(images[:, None]))[2]
    assert fitted.score(images) == pytest.approx(-float(losses.mean()), abs=1e-6)


def test_sampling_is_seeded(fitted):
    assert np.array_equal(fitted.sample(4, random_state=5), fitted.sample(4, random_state=5))
    assert not np.array_equal(fitted.sample(4, random_state=5), fitted.sample(4, random_state=6))
    assert not np.array_equal(fitted.sample(4), fitted.sample(4))
    state = np.random.RandomState(0)
    assert not np.array_equal(fitted.sample(2, random_state=state), fitted.sample(2, random_state=state))


def test_save_and_load_give_the_same_model(fitted, digits, tmp_path):
    fitted.save(tmp_path / "run")
    again = NeuroSQL.load(tmp_path / "run")
    images = digits[0][300:320]
    assert again.settings() == fitted.run_.settings
    for name in ("codes_", "lattice_", "permutation_"):
        assert np.array_equal(getattr(again, name), getattr(fitted, name))
    assert again.history_ == fitted.history_
    assert np.array_equal(again.sample(3, random_state=0), fitted.sample(3, random_state=0))
    assert np.array_equal(again.transform(images), fitted.transform(images))
    with pytest.raises(InputError, match="holds another run"):
        fitted.save(tmp_path / "run")


def test_vectors_keep_their_units_through_save_and_load(tmp_path):
    random = np.random.default_rng(0)
    x = np.column_stack([random.normal(1e4, 50, 120), random.normal(-3, 0.01, 120), np.full(120, 7.0)])
    model = NeuroSQL(latent_dim=2, epochs=30, width=32, validation_share=0.0).fit(x)
    model.save(tmp_path / "run")
    made = NeuroSQL.load(tmp_path / "run").sample(500, random_state=0)
    assert np.abs(made.mean(0) - x.mean(0)).max() < 20
    assert made[:, 0].std() == pytest.approx(50, rel=0.4)
    assert made[:, 2] == pytest.approx(7.0, abs=0.5)


def test_a_conditional_model_samples_the_class_that_is_asked_for(digits):
    images, labels = digits
    few = np.flatnonzero(labels < 3)[:150]
    names = np.array(["zero", "one", "two"])[labels[few]]
    model = NeuroSQL(**QUICK | {"epochs": 25}, conditional=True, validation_share=0.0).fit(images[few], names)
    assert list(model.classes_) == ["one", "two", "zero"]
    centres = {name: images[few][names == name].mean(0) for name in model.classes_}
    for name in model.classes_:
        mean = model.sample(40, label=name, random_state=0).mean(0)
        distances = {other: np.abs(mean - centre).mean() for other, centre in centres.items()}
        assert min(distances, key=distances.get) == name
    new = np.flatnonzero(labels < 3)[150:190]
    truth = np.array(["zero", "one", "two"])[labels[new]]
    guessed = model._encode(images[new], None)[1]
    assert (model.classes_[guessed] == truth).mean() > 0.8
    given = model._encode(images[new], truth)
    assert (model.classes_[given[1]] == truth).all()
    assert model.inverse_transform(given[0], truth).shape == (40, 8, 8)
    with pytest.raises(InputError, match="no class 'four'"):
        model.sample(1, label="four")
    with pytest.raises(InputError, match="give y"):
        model.inverse_transform(given[0])


def test_a_class_without_training_images_is_left_out_of_the_validation():
    digits = data.load("mnist-sample", limit=12)
    assert len(set(digits.labels)) < 10 == len(digits.classes)
    model = NeuroSQL(**QUICK, conditional=True).fit(digits)
    assert "heldout_loss" in model.history_[-1]
    missing = next(iter(set(digits.classes) - {digits.classes[i] for i in digits.labels}))
    with pytest.raises(InputError, match="class"):
        model.sample(1, label=missing)
    with pytest.raises(InputError, match="not trained on"):
        model.transform(digits.x[:2, 0], [missing, missing])


def test_labels_alone_do_not_change_the_training(digits):
    images, labels = digits[0][:60], digits[1][:60]
    a = NeuroSQL(**QUICK, validation_share=0.0).fit(images)
    b = NeuroSQL(**QUICK, validation_share=0.0).fit(images, labels)
    assert np.array_equal(a.codes_, b.codes_)
    with pytest.raises(InputError, match="not class-conditional"):
        b.sample(1, label=3)


def test_a_prior_of_the_users_own(digits, tmp_path):
    def ring(n, generator):
        angle = 2 * torch.pi * torch.rand(n, generator=generator, dtype=torch.float64)
        radius = 1 + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
        return torch.stack([radius * angle.cos(), radius * angle.sin()], 1)

    law = prior.Sampled(ring, 2, draws=400)
    model = NeuroSQL(**QUICK, prior=law, validation_share=0.0).fit(digits[0][:100])
    assert np.linalg.norm(model.lattice_, axis=1).min() > 0.6
    assert model.transform(digits[0][:5]).shape == (5, 2)
    model.save(tmp_path / "run")
    with pytest.raises(InputError, match="give prior="):
        NeuroSQL.load(tmp_path / "run")
    again = NeuroSQL.load(tmp_path / "run", prior=law)
    assert np.array_equal(again.sample(3, random_state=0), model.sample(3, random_state=0))


def test_fit_takes_an_image_set_and_leaves_a_run(digits, tmp_path):
    images = data.from_array(digits[0][:60], digits[1][:60])
    model = NeuroSQL(**QUICK).fit(images, out=tmp_path / "run")
    assert np.array_equal(NeuroSQL.load(tmp_path / "run").lattice_, model.lattice_)


def test_verbose_says_what_the_shape_was_taken_for(digits, capsys):
    NeuroSQL(**QUICK, verbose=1).fit(digits[0][:30])
    assert "30 grey images of 8 x 8 pixels" in capsys.readouterr().out


@pytest.mark.parametrize(
    "bad, words",
    [
        (np.zeros((1, 8, 8)), "n_samples = 1"),
        (np.full((4, 8, 8), np.nan), "NaN in sample 0"),
        (np.full((4, 8, 8), 255.0), "got values from 255 to 255"),
        (np.full((4, 8, 8), -0.5), "must lie in"),
        (np.zeros((4, 8, 8, 5)), "can't tell which axis"),
        (np.zeros((4, 2, 8, 8, 8)), "5 dimension"),
        (np.zeros((4, 8, 8), dtype="U1"), "uint8 or float"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(bad, words):
    with pytest.raises(InputError, match=words) as caught:
        NeuroSQL(**QUICK).fit(bad)
    assert "\n" not in str(caught.value)


def test_using_an_unfitted_or_unfitting_model_is_refused(fitted, digits):
    with pytest.raises(NotFittedError):
        NeuroSQL().sample(1)
    with pytest.raises(InputError, match="shape"):
        fitted.transform(np.zeros((3, 9, 9)))
    with pytest.raises(InputError, match="codes must have shape"):
        fitted.inverse_transform(np.zeros((3, 5)))
    with pytest.raises(InputError, match="at least 1"):
        fitted.sample(0)
