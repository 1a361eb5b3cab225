"""Colour apart from brightness: the channels, the cost of colour images, and where it is chosen."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from skimage.color import rgb2ycbcr

from neurosql import InputError, colour, fit, open_run, presets
from neurosql.assign import candidates
from neurosql.assign.start import pca_permutation
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.cost import CHROMA, FAINT, NAMES, SEEN, Cost
from neurosql.data import from_array
from neurosql.metrics.colours import chroma_spread, mean_chroma
from neurosql.modality import COLOUR_IMAGE, IMAGE, MODALITIES, of_shape
from neurosql.report import again
from neurosql.similarity import ssim

QUICK = dict(generator="mlp", width=16, epochs=2, batch_size=20, validation_share=0.0)


def photographs(n, side=8, seed=0):
    """Patterns of brightness, each with a tint of its own that all its pixels share, (n, 3, side, side) in [0, 1]."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 3, side)
    waves = np.sin(random.uniform(1, 3, (n, 1, 1)) * x[:, None] + random.uniform(0, 6, (n, 1, 1)) + x)
    tint = random.uniform(-0.15, 0.15, (n, 3, 1, 1))
    return torch.from_numpy((0.5 + 0.25 * waves[:, None] + tint).clip(0, 1)).float()


def test_luma_and_chroma_are_those_of_scikit_image():
    x = torch.rand(3, 3, 6, 7, dtype=torch.float64)
    theirs = np.moveaxis(rgb2ycbcr(x.numpy(), channel_axis=1), 1, 0)
    # Theirs are in the range of video: Y from 16 to 235, Cb and Cr from 16 to 240.
    np.testing.assert_allclose(colour.luma(x)[:, 0], (theirs[0] - 16) / 219, atol=1e-5)
    np.testing.assert_allclose(colour.chroma(x).movedim(1, 0), (theirs[1:] - 128) / 224, atol=1e-5)


def test_grey_has_no_chroma_and_luma_is_its_brightness():
    grey = torch.rand(4, 1, 5, 6, dtype=torch.float64)
    x = grey.expand(-1, 3, -1, -1)
    torch.testing.assert_close(colour.luma(x), grey)
    assert colour.chroma(x).abs().max() < 1e-12
    every = torch.rand(500, 3, 2, 2)
    every[:250] = every[:250].round()
    assert colour.chroma(every).abs().max() <= 0.5 + 1e-6


@pytest.mark.parametrize("height, width", [(8, 12), (7, 5), (2, 1), (1, 1)])
def test_the_features_of_chroma_have_the_distances_of_pixels_and_of_squares(height, width):
    x, y = torch.rand(2, 5, 3, height, width, dtype=torch.float64)
    fine = colour.chroma(x - y)
    places = [(i, k) for i in range(0, height, 4) for k in range(0, width, 4)]
    squares = torch.stack([fine[:, :, i : i + 4, k : k + 4].mean((2, 3)) for i, k in places], 2)
    expected = 0.25 * fine.square().flatten(1).mean(1) + 0.75 * squares.square().flatten(1).mean(1)
    found = (colour.chroma_features(x) - colour.chroma_features(y)).square().sum(1)
    torch.testing.assert_close(found, expected)


def test_no_difference_of_chroma_is_left_out():
    """A grid of pixels that cancel each other within every square is seen too."""
    x = photographs(1, 8).double()
    grid = 0.1 * (-1.0) ** (torch.arange(8)[:, None] + torch.arange(8))
    tint = grid * torch.tensor([1.0, 0.0, -1.0]).view(3, 1, 1)
    other = x + tint - colour.luma(tint[None])
    assert Cost.named("colour").paired(x, other) > 0.05
    torch.testing.assert_close(colour.luma(other), colour.luma(x))


def test_the_cost_is_ssim_and_l1_of_luma_and_the_distance_of_chroma():
    x, y = torch.rand(5, 3, 14, 13, dtype=torch.float64), torch.rand(5, 3, 14, 13, dtype=torch.float64)
    a, b = colour.luma(x), colour.luma(y)
    apart = (colour.chroma_features(x) - colour.chroma_features(y)).square().sum(1)
    of_luma = 0.5 * (1 - ssim(a, b)) + 0.5 * (a - b).abs().flatten(1).mean(1)
    expected = of_luma + CHROMA * ((FAINT**2 + apart).sqrt() - FAINT)
    torch.testing.assert_close(Cost.named("colour").paired(x, y), expected)


def test_grey_pictures_cost_what_they_cost_in_one_channel():
    x, y = torch.rand(4, 1, 12, 12), torch.rand(6, 1, 12, 12)
    in_three = (t.expand(-1, 3, -1, -1).contiguous() for t in (x, y))
    torch.testing.assert_close(Cost.named("colour").matrix(*in_three), Cost().matrix(x, y), atol=2e-6, rtol=0)


def test_the_plain_path_equals_the_compiled_one(monkeypatch):
    x, y = photographs(20, 16), photographs(30, 16, seed=1)
    rows, columns = torch.arange(20), torch.arange(20).flip(0)
    cost, found = Cost.named("colour"), []
    for native in ("1", "0"):
        monkeypatch.setenv("NEUROSQL_NATIVE", native)
        found.append((cost.matrix(x, y), cost.matrix(x, y, stride=3), cost.entries(x, y, rows, columns)))
    for compiled, plain in zip(*found):
        torch.testing.assert_close(compiled, plain, atol=2e-6, rtol=1e-6)


def test_colour_counts_for_more_than_channel_by_channel_but_never_without_bound():
    x = photographs(1).double().expand(6, -1, -1, -1)
    tints = torch.zeros(6, 3, 1, 1, dtype=torch.float64)
    tints[:, 0] = torch.linspace(0, 0.5, 6).view(-1, 1, 1)
    x = x + tints - colour.luma(tints)
    by_colour, by_channel = (cost.paired(x[:1].expand_as(x), x) for cost in (Cost.named("colour"), Cost()))
    assert (by_colour[1:] > 1.5 * by_channel[1:]).all()
    # Quadratic, then linear: the slope grows to the weight times the distance, and no further.
    rises, distance = by_colour.diff(), colour.chroma_features(x[1:2] - x[:1]).norm()
    assert (rises.diff() > 0).all() and rises[-1] < CHROMA * distance


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 8, 8), (4, 8, 8), (3, 8), (3, 8, 8, 8), (3,)])
def test_what_has_no_three_channels_has_no_colour(shape):
    x = torch.zeros(2, *shape)
    for compare in (Cost.named("colour").paired, Cost.named("colour").matrix):
        with pytest.raises(InputError, match="three channels"):
            compare(x, x)


@pytest.mark.parametrize("side", [8, 7])
def test_squared_distances_of_what_is_seen_are_those_of_luma_and_of_chroma(side):
    x, y = photographs(5, side).double(), photographs(5, side, seed=1).double()
    cost = Cost.named("colour")
    found = (cost.seen(x) - cost.seen(y)).square().sum(1) / side**2
    luma = (colour.luma(x) - colour.luma(y)).square().flatten(1).mean(1)
    chroma = (colour.chroma_features(x) - colour.chroma_features(y)).square().sum(1)
    torch.testing.assert_close(found, luma + SEEN * chroma)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "colour"])
def test_other_costs_see_images_as_they_are(name):
    x = torch.rand(3, 3, 8, 8)
    assert Cost.named(name).seen(x) is x


def tinted(n):
    """Images of nearly the same brightness whose red, less blue, grows from the first to the last."""
    noise = 0.02 * torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    slope = torch.linspace(-0.1, 0.1, n).view(-1, 1, 1)
    tint = torch.stack([slope, torch.zeros_like(slope), -slope], 1)
    return 0.5 + noise + tint - colour.luma(tint)


def test_the_first_permutation_and_the_candidates_follow_colour():
    x, cost = tinted(40), Cost.named("colour")
    lattice = torch.linspace(-2, 2, 40).view(-1, 1)
    match = pca_permutation(cost.seen(x), lattice, torch.Generator().manual_seed(0))
    assert match.tolist() in (list(range(40)), list(range(39, -1, -1)))
    found = candidates.solve(cost, x, x.flip(0), k=4)
    assert found.permutation.tolist() == list(range(39, -1, -1))


def test_auto_is_colour_for_three_channels_and_paper_never_is():
    settings, paper = presets.settings(), presets.settings(preset="paper")
    assert of_shape((3, 8, 8)) is COLOUR_IMAGE and COLOUR_IMAGE.name == IMAGE.name
    assert settings.resolve(of_shape((3, 8, 8))).latent.cost == "colour"
    assert paper.resolve(of_shape((3, 8, 8))).latent.cost == "ssim+l1"
    for shape in [(1, 8, 8), (2, 8, 8), (4, 8, 8), (3, 8), (3, 8, 8, 8), (3,)]:
        modality = of_shape(shape)
        assert modality is MODALITIES[modality.name]
        usual = "l2" if len(shape) == 1 else "ssim+l1"
        assert settings.resolve(modality).latent.cost == paper.resolve(modality).latent.cost == usual
        with pytest.raises(InputError, match="three channels: use"):
            presets.settings(cost="colour").resolve(modality)


def test_a_run_keeps_the_cost_that_it_was_trained_with(tmp_path):
    images = from_array(photographs(40).numpy(), layout="nchw")
    for given, recorded in (({}, "colour"), ({"preset": "paper"}, "ssim+l1"), ({"cost": "ssim+l1"}, "ssim+l1")):
        folder = tmp_path / "-".join(given) / "run"
        fit(images, out=folder, **QUICK | given)
        assert json.loads((folder / "config.json").read_text())["settings"]["latent"]["cost"] == recorded
        run = open_run(folder)
        assert run.method.cost == Cost.named(recorded)
        assert {word for word in ("cost", "preset") if f"{word}=" in again.how(run, folder)} == set(given)


def test_samples_keep_the_colours_that_brightness_alone_would_lose():
    images = from_array(photographs(120, 16).numpy(), layout="nchw")
    found = {}
    for cost in ("colour", "ssim+l1"):
        own = dict(latent_dim=4, epochs=60, batch_size=20, width=32, validation_share=0.0, patience=0, cost=cost)
        made, _ = fit(images, **own).sample(100, seed=0)
        found[cost] = chroma_spread(mean_chroma(made), mean_chroma(images.x)).value
    assert found["colour"] > 0.6 and found["ssim+l1"] < 0.2


def test_only_runs_whose_cost_became_another_get_another_hash():
    """A run with the cost that it always had is known again; one with another cost is another run."""

    def configs(data, preset, cost):
        job = next(EXPERIMENTS["mnist"].jobs("laptop", 1))
        return replace(job, data=data, settings=presets.settings(preset=preset, **cost)).config

    for data in ("mnist", "oasis"):
        plain = configs(data, "recommended", {})
        assert plain == configs(data, "recommended", {"cost": "paper"}) != configs(data, "recommended", {"cost": "l2"})
    for data in ("celeba", "afhq"):
        explicit = configs(data, "recommended", {"cost": "colour"})
        assert configs(data, "recommended", {}) == explicit != configs(data, "recommended", {"cost": "paper"})
