"""What the server answers: the same numbers as Python, and nothing about anything but its run."""

import io
import json

import numpy as np
import pytest
from asking import unpacked
from PIL import Image

from neurosql.app.explorer import Opened, describe
from neurosql.cli import main

N = 120


def ask(client, what, **body):
    status, _, content = client(f"/api/runs/0/{what}", body)
    assert status == 200, content
    return unpacked(content)


def test_the_description_says_what_the_run_is(client, opened):
    status, headers, content = client("/api/runs/0")
    found = json.loads(content)
    assert status == 200 and headers["content-type"] == "application/json"
    assert (found["kind"], found["shape"], found["dim"], found["count"]) == ("image", [1, 8, 8], 2, N)
    assert found["classes"] == ["<b>one</b>", "=two", "zero"] and not found["conditional"]
    assert all(found["capabilities"][name] for name in ("points", "decode", "images", "sample", "nearest", "locate"))
    assert dict(found["facts"])["data"] == opened.run.data.description
    codes = opened.run.method.codes.numpy()
    for (low, high), z in zip(found["range"], codes.T):
        assert low <= z.min() and z.max() <= high


def test_points_are_the_codes_of_the_run_with_what_is_known_of_each(client, opened):
    plain, arrays = unpacked(client("/api/runs/0/points")[2])
    table = opened.run.code_table()
    np.testing.assert_array_equal(arrays["codes"], table["codes"].astype(np.float32))
    np.testing.assert_array_equal(np.array(opened.run.like.classes)[arrays["labels"]], table["labels"])
    np.testing.assert_array_equal(arrays["losses"], table["losses"])
    np.testing.assert_array_equal(arrays["positions"], table["positions"])
    assert plain["names"] is None and np.isfinite(arrays["density"]).all()


def test_decoding_gives_the_images_of_the_model(client, opened):
    codes = opened.run.method.codes[:5].numpy()
    made = ask(client, "decode", codes=codes.tolist())[1]["samples"]
    expected = (opened.run.decode(codes) * 255).round().astype(np.uint8)
    np.testing.assert_allclose(made.astype(int), expected.astype(int), atol=1)


def test_images_are_the_training_samples_and_can_be_smaller(client, digits, opened):
    _, arrays = ask(client, "images", indices=[3, 0])
    positions = opened.run.code_table()["positions"]
    np.testing.assert_array_equal(arrays["samples"][:, 0], (digits[0][positions[[3, 0]]] * 255).round())
    assert ask(client, "images", indices=[3], side=4)[1]["samples"].shape == (1, 1, 4, 4)


def test_neighbours_are_those_of_the_least_loss(client, opened):
    status, _, content = client("/api/runs/0/neighbours", {"index": 7, "count": 5})
    found = json.loads(content)
    x = opened.train().x
    losses = opened.run.method.cost.matrix(x[7:8], x)[0].numpy()
    losses[7] = np.inf
    assert status == 200 and found["indices"] == np.argsort(losses, kind="stable")[:5].tolist()
    np.testing.assert_allclose(found["losses"], np.sort(losses)[:5], atol=1e-5)


def test_samples_are_those_of_the_command_each_with_its_nearest_training_sample(client, opened):
    plain, arrays = ask(client, "sample", count=6, seed=5)
    expected = opened.run.sample(6, seed=5)[0]
    np.testing.assert_allclose(arrays["samples"] / 255, expected, atol=1 / 254)
    costs = opened.run.method.cost.matrix(expected, opened.train().x).numpy()
    np.testing.assert_array_equal(arrays["nearest"], costs.argmin(1))
    np.testing.assert_allclose(arrays["losses"], costs.min(1), atol=1e-5)
    assert set(arrays["suspicious"].tolist()) <= {0, 1} and "suspiciously close" in plain["verdict"]
    again, other = (ask(client, "sample", count=6, seed=seed)[1]["samples"] for seed in (5, 6))
    assert np.array_equal(again, arrays["samples"]) and not np.array_equal(other, again)


def test_a_sampler_can_be_chosen_and_an_unknown_one_is_refused_in_a_sentence(client, opened):
    near = ask(client, "sample", count=4, seed=1, sampler="near", fraction=0.0)[1]
    codes = opened.run.method.codes.numpy()
    far = np.abs(near["codes"][:, None] - codes[None]).sum(2).min(1)
    np.testing.assert_allclose(far, 0, atol=1e-5)
    status, _, content = client("/api/runs/0/sample", {"count": 4, "seed": 1, "sampler": "nothing"})
    assert status == 400 and "nothing" in json.loads(content)["error"]


def png(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def test_a_training_image_lands_on_its_own_point(client, opened):
    pixels = (opened.train().x[11, 0] * 255).round().astype(np.uint8)
    status, _, content = client("/api/runs/0/locate", png(pixels), {"content-type": "application/octet-stream"})
    plain, arrays = unpacked(content)
    assert status == 200 and plain["known"] == plain["nearest"][0] == 11
    np.testing.assert_array_equal(arrays["samples"][0, 0], pixels)
    np.testing.assert_array_equal(arrays["code"], opened.run.method.codes[11].numpy())


def test_a_large_colour_photograph_is_brought_to_the_shape_of_the_model(client):
    photograph = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    content = client("/api/runs/0/locate", png(photograph), {"content-type": "application/octet-stream"})[2]
    plain, arrays = unpacked(content)
    assert arrays["samples"].shape == (1, 1, 8, 8) and arrays["code"].shape == (2,) and plain["known"] == -1
    assert "60 x 40 to 8 x 8" in plain["notes"][0]


def test_a_run_whose_images_are_gone_says_what_to_do_and_takes_them_from_elsewhere(folder, tmp_path):
    moved = tmp_path / "moved.npz"
    (folder / "digits.npz").rename(moved)
    try:
        lost, found = Opened(folder / "run"), Opened(folder / "run", str(moved))
        assert lost.images().train is None and "--data PATH" in lost.images().why
        shown = describe(lost)
        assert not shown["capabilities"]["images"] and shown["capabilities"]["decode"] and len(shown["notes"]) == 1
        assert len(found.train()) == N and describe(found)["capabilities"]["images"]
    finally:
        moved.rename(folder / "digits.npz")


@pytest.mark.parametrize("arguments", [[], ["missing"], ["RUN", "--port", "99999"], ["RUN", "RUN", "--data", "x"]])
def test_the_command_refuses_what_it_cannot_do_in_one_sentence(arguments, folder, capsys):
    given = [str(folder / "run") if word == "RUN" else word for word in arguments]
    try:
        status = main(["explore", *given])
    except SystemExit as stop:
        status = stop.code
    assert status and "Traceback" not in capsys.readouterr().err
