"""All methods on equal terms: one generator, one budget, one way to use the result."""

import json

import numpy as np
import pytest
import torch

import neurosql
from neurosql import methods, presets
from neurosql.cli import main
from neurosql.methods.base import Task
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.settings import METHODS

SHAPE = (1, 12, 12)


def task(method, **settings):
    preset = "plain" if method == "neurosql" else "recommended"
    common = {"generator": "convnet", "width": 16, "latent_dim": 3, "cost": "ssim+l1", "seed": 5}
    chosen = presets.settings(method, preset, **common | settings)
    return Task(chosen, SHAPE)


WITH_GENERATOR = [name for name in METHODS if "generator" in methods.make(task(name)).networks]


def test_all_but_the_denoisers_have_the_generator():
    assert set(METHODS) - set(WITH_GENERATOR) == {"ddpm", "ot-cfm"}


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_the_generator_begins_from_the_same_bits(name):
    expected = methods.make(task("neurosql")).networks["generator"].state_dict()
    before = torch.get_rng_state()
    found = methods.make(task(name)).networks["generator"].state_dict()
    assert torch.equal(before, torch.get_rng_state())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("name", ["ddpm", "ot-cfm"])
@pytest.mark.parametrize("generator", ["mlp", "convnet", "resnet"])
def test_denoisers_are_of_the_generators_size(name, generator):
    settings = presets.settings(name, generator=generator, latent_dim=8, cost="ssim+l1")
    chosen = Task(settings, (1, 28, 28))
    size = sum(p.numel() for p in chosen.generator().parameters())
    assert methods.make(chosen).parameters() == pytest.approx(size, rel=0.1)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    from sklearn.datasets import load_digits

    bunch = load_digits()
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(path, images=(bunch.images * 15.9).astype(np.uint8)[:90], labels=bunch.target[:90])
    return str(path)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_runs_from_the_command_line(name, small, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ["--generator", "mlp", "--width", "32", "--latent-dim", "3", "--seed", "2"]
    assert main(["train", small, "--method", name, "--budget", "smoke", "--out", str(out), *arguments]) == 0
    assert main(["sample", str(out), "-n", "4"]) == 0
    assert main(["info", str(out)]) == 0
    assert f"method     {name}" in capsys.readouterr().out
    used = json.loads((out / "used.json").read_text())
    assert used["steps"] > 0 and used["parameters_sampling"] <= used["parameters_trained"]
    run = neurosql.open_run(out)
    images, _ = run.sample(3, seed=1)
    assert images.shape == (3, 1, 8, 8) and images.min() >= 0 and images.max() <= 1
    if run.has_codes:
        assert run.reconstruct().shape[1:] == (1, 8, 8)
        assert (out / "latent.png").exists()
        codes, _, losses = run.encode(images)
        assert codes.shape == (3, 3) and np.isfinite(losses).all()
    else:
        assert not (out / "latent.png").exists()
    assert (out / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_sees_as_many_images(name, small):
    digits = neurosql.data.load(small)
    run = neurosql.fit(
        digits, method=name, budget="smoke", generator="mlp", width=16, latent_dim=2, validation_share=0.0
    )
    assert run.used.steps == 2 * 2 and run.used.images == 2 * 90


def test_the_notes_of_quantile_assignment_are_its_own():
    assert isinstance(methods.make(task("neurosql")), QuantileAssignment)
    assert {methods.make(task(name)).name for name in METHODS} == set(METHODS)
