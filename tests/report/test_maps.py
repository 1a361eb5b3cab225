"""The map with the training images on it, and the strips of a class-conditional model."""

import numpy as np
import pytest
from PIL import Image, ImageFont

from neurosql import fit
from neurosql.report import maps, pictures
from neurosql.report.sheet import font_path

QUICK = dict(generator="mlp", width=16, epochs=1, every=1, validation_share=0.0)


@pytest.fixture(scope="module", params=[2, 5])
def run(request, digits):
    return fit(digits[0][:90], digits[1][:90], latent_dim=request.param, **QUICK)


def test_every_place_has_the_nearest_image_of_its_own_and_every_image_belongs_to_one_place(run):
    places = maps.chosen(run)
    shown = places[places >= 0]
    assert places.shape == (maps.MAP_SIDE, maps.MAP_SIDE) and len(set(shown.tolist())) == len(shown) > 20
    points, spanned = maps.plane(run)
    across, down = maps.grid(spanned)
    middles = np.stack(np.meshgrid(across, down), -1)
    # Codes belong to the place whose column and row are nearest.
    column = np.abs(points[:, :1] - across).argmin(1)
    row = np.abs(points[:, 1:] - down).argmin(1)
    far = ((points - middles[row, column]) ** 2).sum(1)
    for r, c in np.ndindex(places.shape):
        here = np.flatnonzero((row == r) & (column == c))
        assert places[r, c] == (-1 if len(here) == 0 else here[far[here].argmin()])


def test_up_and_right_on_the_map_are_up_and_right_in_the_plane(run):
    across, down = maps.grid(maps.plane(run)[1])
    assert (np.diff(across) > 0).all() and (np.diff(down) < 0).all()


def test_the_picture_has_each_image_at_its_place_and_nothing_elsewhere(run, digits, tmp_path):
    x = digits[0][:90, None].astype(np.float32) / digits[0].max()
    maps.own_images(run, x, tmp_path / "images.png")
    with Image.open(tmp_path / "images.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    side = maps.MAP_SIDE * maps.CELL
    assert pixels.shape == (side + maps.LEGEND, side, 3)
    cells = pixels[:side].reshape(maps.MAP_SIDE, maps.CELL, maps.MAP_SIDE, maps.CELL, 3).swapaxes(1, 2)
    blank = (cells == 255).all((2, 3, 4))
    assert np.array_equal(blank, maps.chosen(run) < 0)
    # 8 x 8 pixels, seven times enlarged, inside the frame.
    inside = cells[:, :, maps.FRAME :: 7, maps.FRAME :: 7, 0][:, :, :8, :8]
    for (row, column), i in np.ndenumerate(maps.chosen(run)):
        if i >= 0:
            np.testing.assert_array_equal(inside[row, column], (255 * x[i, 0]).round())


def test_the_decoded_map_has_the_same_places(run):
    decoded = maps.latent_map(run)
    assert len(decoded) == maps.MAP_SIDE**2
    if run.settings.generator.dim > 2:
        places = maps.chosen(run).ravel()
        again = run.reconstruct()
        np.testing.assert_allclose(decoded[places >= 0], again[places[places >= 0]], atol=1e-5)
        assert (decoded[places < 0] == 1).all()


def test_strips_have_a_row_for_each_class_that_has_training_images(digits, tmp_path):
    labels = np.where(digits[1][:60] % 2, "odd ones with a very long name indeed", "even")
    run = fit(digits[0][:60], labels, conditional=True, latent_dim=2, **QUICK)
    assert "images.png" not in pictures.captions(run) and "row per class" in pictures.captions(run)["samples.png"]
    drawn = pictures.draw_all(run, run.reconstruct(), tmp_path)
    with Image.open(tmp_path / "samples.png") as picture:
        pixels = np.asarray(picture.convert("L"))
    assert set(drawn) == {path.name for path in tmp_path.glob("*.png")}
    # Names are in ink on white, left of the samples: eight across, eight times enlarged.
    names = pixels[:, : -8 * (pictures.EACH * 10 + 2)]
    for half in np.array_split(names, 2):
        assert (half < 200).any() and half[:, -2:].min() == 255


def test_a_long_name_is_shortened_until_it_fits():
    font = ImageFont.truetype(font_path(), 20)
    short = maps.fitted("name " * 40, font, 100)
    assert short.endswith("…") and font.getlength(short) <= 100 and maps.fitted("a", font, 100) == "a"
