"""The latent dimension that is chosen by the data: the estimate, the rule, and where the number ends up."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import make_swiss_roll
from sklearn.neighbors import NearestNeighbors

from neurosql import InputError, NeuroSQL, dimension, fit, open_run, presets, prior
from neurosql.checkpoint import CHECKPOINT, CODES, MODEL
from neurosql.cli import main
from neurosql.cost import Cost
from neurosql.data import from_array
from neurosql.settings import METHODS, GeneratorSettings, Settings

QUICK = dict(generator="mlp", width=16, epochs=2, batch_size=64, validation_share=0.0)
L2 = Cost.named("l2")


@pytest.fixture
def noise():
    """Images that have far more dimensions than a few hundred of them can fill."""
    return np.random.default_rng(0).random((200, 8, 8)).astype(np.float32)


def embedded(points, width=30, seed=0):
    """Points (n, m) in a space of more dimensions, turned and moved."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, points.shape[1])))[0]
    return torch.from_numpy(points @ turn.T + 3.0)


def ball_surface(n, dim, seed=0):
    """n points on the sphere of that dimension, (n, dim + 1)."""
    points = np.random.default_rng(seed).normal(size=(n, dim + 1))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_the_estimate_is_that_of_the_set_the_points_lie_on(dim):
    flat = np.random.default_rng(dim).random((1500, dim))
    assert dimension.intrinsic(embedded(flat)) == pytest.approx(dim, rel=0.12)
    assert dimension.intrinsic(embedded(ball_surface(1500, dim))) == pytest.approx(dim, rel=0.06)


def test_a_rolled_up_sheet_has_two_dimensions():
    roll, _ = make_swiss_roll(2000, random_state=0)
    assert dimension.intrinsic(torch.from_numpy(roll)) == pytest.approx(2, rel=0.05)


def test_the_estimate_is_its_definition_with_the_neighbours_of_scikit_learn():
    points = np.random.default_rng(0).normal(size=(300, 4)) @ np.random.default_rng(1).normal(size=(4, 9))
    nearest = NearestNeighbors(n_neighbors=20).fit(points).kneighbors()[0]
    estimates = []
    for k in range(10, 21):
        estimates.append(1 / np.mean([np.log(row[k - 1] / row[: k - 1]).mean() for row in nearest]))
    assert dimension.intrinsic(torch.from_numpy(points)) == pytest.approx(np.mean(estimates), rel=1e-9)


def test_the_estimate_does_not_depend_on_units_order_or_place():
    points = embedded(ball_surface(400, 3))
    found = dimension.intrinsic(points)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    for same in (1e3 * points, 1e-3 * points, points[order], points - 20, points.reshape(400, 2, 3, 5)):
        assert dimension.intrinsic(same) == pytest.approx(found, rel=1e-6)


def test_copies_count_once():
    points = embedded(ball_surface(200, 3)).float()
    assert dimension.intrinsic(points.repeat(5, 1)) == pytest.approx(dimension.intrinsic(points), rel=1e-9)
    assert dimension.intrinsic(torch.ones(100, 7)) is None
    assert dimension.intrinsic(points[:24].repeat(9, 1)) is None


def test_the_estimate_is_never_above_the_number_of_values():
    # All distances are equal: nothing bounds the estimate but the space itself.
    assert dimension.intrinsic(torch.eye(60)) == pytest.approx(60)
    assert dimension.intrinsic(torch.randn(300, 1, generator=torch.Generator().manual_seed(0))) <= 1


@pytest.mark.parametrize("n, dim", [(500, 8), (2000, 10), (60_000, 15)])
def test_n_codes_leave_two_on_each_axis(n, dim):
    assert dimension.affordable(n) == dim
    assert n ** (1 / dim) >= dimension.PER_AXIS > n ** (1 / (dim + 1))


def test_the_smaller_of_the_two_dimensions_is_chosen_but_two_at_least():
    random = np.random.default_rng(0)
    wide, sheet, line = (embedded(random.random((600, m)), 40).float() for m in (20, 3, 1))
    dim, why = dimension.choose(wide, L2)
    assert dim == dimension.affordable(600) == 9
    assert why.startswith("latent dimension 9: about 2 codes per axis for 600 vectors; the data have about 1")
    assert dimension.choose(sheet, L2) == (3, "latent dimension 3: the data have about 3; 600 vectors would allow 9")
    dim, why = dimension.choose(line, L2)
    assert dim == 2 and why.startswith("latent dimension 2, the least that is chosen: the data have about 1")


def test_few_samples_are_not_enough_for_an_estimate():
    sheet = embedded(np.random.default_rng(0).random((24, 1))).float()
    dim, why = dimension.choose(sheet, L2)
    assert dim == dimension.affordable(24) == 4 and "too few" in why
    assert [dimension.choose(sheet[:n], L2)[0] for n in (1, 2, 7)] == [2, 2, 2]


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("n", [20, 400])
def test_vectors_never_get_more_dimensions_than_columns(columns, n):
    x = torch.randn(n, columns, generator=torch.Generator().manual_seed(0))
    assert dimension.choose(x, L2)[0] == columns


def test_of_many_or_large_samples_some_are_looked_at():
    assert len(dimension._some(torch.zeros(5000, 3))) == dimension.MOST
    assert len(dimension._some(torch.zeros(1, 1).expand(600, 3000))) == 600
    assert len(dimension._some(torch.zeros(1, 1).expand(600, 200_000))) == dimension.SOME
    looked = dimension._some(torch.arange(5000.0)[:, None])[:, 0]
    assert looked[0] == 0 and looked[-1] == 4999 and set(looked.diff().tolist()) == {2, 3}


def test_colour_images_are_compared_as_their_cost_sees_them():
    x = torch.rand(300, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    x = x.mean((2, 3), keepdim=True) + 0.05 * x.mean(1, keepdim=True)
    cost = Cost.named("colour")
    own = [dimension.intrinsic(cost.seen(x)), dimension.intrinsic(x)]
    assert abs(own[0] - own[1]) > 1
    assert [f"about {found:.0f}" in dimension.choose(x, cost)[1] for found in own] == [True, False]


@pytest.mark.parametrize("preset, default", [("recommended", 2), ("paper", 2), ("map", 2), ("samples", "auto")])
def test_only_the_preset_for_samples_chooses_by_the_data(preset, default):
    assert presets.settings(preset=preset).generator.latent_dim == default
    assert presets.settings(preset=preset, latent_dim=5).generator.dim == 5


def test_a_dimension_is_a_whole_number_or_auto():
    for bad in ("many", ""):
        with pytest.raises(InputError, match="latent_dim must be a whole number or auto"):
            GeneratorSettings(latent_dim=bad).check()
    with pytest.raises(InputError, match="latent_dim must be at least 1, got 0"):
        GeneratorSettings(latent_dim=0).check()
    GeneratorSettings(latent_dim=np.int64(3)).check()
    settings = Settings(generator=GeneratorSettings(latent_dim="auto"))
    assert Settings.from_flat(settings.flat()) == settings
    with pytest.raises(InputError, match="chosen by the training images"):
        _ = settings.generator.dim


def test_a_run_holds_the_number_and_is_the_run_of_that_number(tmp_path, noise):
    images = from_array(noise)
    chosen = fit(images, latent_dim="auto", out=tmp_path / "run", **QUICK)
    given = fit(images, latent_dim=7, **QUICK)
    assert chosen.settings == given.settings and torch.equal(chosen.method.codes, given.method.codes)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["generator"]["latent_dim"] == 7
    again = open_run(tmp_path / "run")
    assert again.settings.generator.latent_dim == 7
    assert np.array_equal(again.sample(4, seed=0)[0], given.sample(4, seed=0)[0])


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_takes_it_and_those_without_a_latent_dimension_say_nothing(method, noise):
    run = fit(from_array(noise[:100]), method=method, latent_dim="auto", **QUICK | {"epochs": 1})
    assert run.settings.generator.latent_dim == 6
    assert [note.split(":")[0] for note in run.notes] == ["latent dimension 6"] * METHODS[method].latent


def test_the_estimator_chooses_and_says_so(noise, capsys):
    model = NeuroSQL("auto", **QUICK, verbose=1).fit(noise)
    assert model.latent_dim == "auto" and model.get_params()["latent_dim"] == "auto"
    assert model.codes_.shape == (200, 7) and model.transform(noise[:2]).shape == (2, 7)
    assert model.inverse_transform(model.codes_[:2]).shape == (2, 8, 8)
    note = "note       latent dimension 7: about 2 codes per axis for 200 images; the data have about"
    assert note in capsys.readouterr().out


def test_the_estimator_loads_the_number(tmp_path, noise):
    NeuroSQL("auto", **QUICK).fit(noise[:60]).save(tmp_path / "run")
    assert NeuroSQL.load(tmp_path / "run").latent_dim == 5


def test_a_prior_of_the_callers_own_has_its_dimension(noise, capsys):
    model = NeuroSQL("auto", prior=prior.Ball(3), **QUICK, verbose=1).fit(noise[:60])
    assert model.codes_.shape == (60, 3)
    assert "latent dimension 3: that of the prior" in capsys.readouterr().out


def test_the_command_line_says_it_once_and_the_folder_has_the_number(tmp_path, capsys):
    options = ["--generator", "mlp", "--width", "8", "--budget", "smoke", "--limit", "100"]
    path = str(tmp_path / "run")
    assert main(["train", "mnist-sample", *options, "--preset", "samples", "--out", path]) == 0
    printed = capsys.readouterr().out
    assert printed.count("note       latent dimension 6: about 2 codes per axis for 100 images; the data have") == 1
    assert main(["info", path]) == 0
    assert "latent dimension 6," in capsys.readouterr().out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "latent dimension 6" in page and "--latent-dim 6" in page and "auto" not in page.split("latent_dim")[1][:20]
    assert main(["sample", path, "-n", "4"]) == 0


def test_a_run_that_was_killed_begins_again_with_the_number(tmp_path, capsys):
    path = tmp_path / "run"
    options = ["--generator", "mlp", "--width", "8", "--budget", "smoke", "--limit", "100", "--latent-dim", "auto"]
    assert main(["train", "mnist-sample", *options, "--out", str(path)]) == 0
    whole = (path / CODES).read_bytes()
    for name in (CHECKPOINT, MODEL, CODES):
        (path / name).unlink()
    capsys.readouterr()
    assert main(["resume", str(path)]) == 0
    assert (path / CODES).read_bytes() == whole and "latent dimension 5:" not in capsys.readouterr().out
