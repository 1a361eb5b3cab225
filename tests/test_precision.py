"""Training steps in bfloat16: what is cast, what is not, and that a run is repeated and resumed bit for bit."""

import numpy as np
import pytest
import torch
from torch import nn

import neurosql
from neurosql import generators, precision, presets
from neurosql.data import from_array
from neurosql.settings import Settings
from neurosql.training import Stopped

IMAGES = from_array(np.random.default_rng(0).random((48, 12, 12)))
QUICK = {"generator": "convnet", "width": 16, "batch_size": 16, "epochs": 3, "precision": "bfloat16"}


def chosen(has, **own):
    return precision.resolved(presets.settings(**own).resolve("image"), has).training.precision


@pytest.mark.parametrize("generator", ["convnet", "resnet", "unet", "transformer", "mlp"])
def test_auto_is_bfloat16_where_processor_and_generator_gain(generator):
    gains = generator in ("convnet", "resnet", "unet")
    assert chosen(True, generator=generator) == ("bfloat16" if gains else "float32")
    assert chosen(False, generator=generator) == "float32"
    for named in ("float32", "bfloat16"):
        assert chosen(True, generator=generator, precision=named) == named
    assert chosen(True, generator=generator, preset="paper") == "float32"


def test_other_devices_are_not_assumed_to_gain():
    assert not precision.has_bfloat16(torch.device("cuda"))
    assert not precision.has_bfloat16(torch.device("mps"))


def test_a_run_that_does_not_name_its_precision_had_float32():
    sections = presets.settings().resolve("image").sections()
    del sections["training"]["precision"]
    assert Settings.from_sections("neurosql", sections).training.precision == "float32"


def test_the_precision_of_a_run_is_recorded_and_never_auto():
    run = neurosql.fit(IMAGES, **QUICK | {"precision": "auto", "epochs": 1})
    assert run.settings.training.precision in ("float32", "bfloat16")


def test_layers_are_cast_in_training_mode_alone_and_results_are_float32():
    net = generators.make("convnet", (1, 12, 12), 2, width=16)
    seen = []
    net.stages[0].register_forward_hook(lambda module, given, made: seen.append(made.dtype))
    z = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    expected = net.eval()(z)
    own = net.forward
    with precision.casting([net], "bfloat16"):
        assert torch.equal(net(z), expected)
        made = net.train()(z)
        made.mean().backward()
    assert seen == [torch.float32, torch.float32, torch.bfloat16]
    assert made.dtype == torch.float32
    assert {p.grad.dtype for p in net.parameters()} == {torch.float32} == {p.dtype for p in net.parameters()}
    assert net.forward == own


def test_float32_leaves_the_networks_alone():
    net = nn.Linear(2, 2)
    for name in ("float32", "auto"):
        with precision.casting([net], name):
            assert "forward" not in vars(net)


@pytest.mark.parametrize("generator", ["convnet", "resnet", "unet"])
def test_gradients_point_where_those_of_float32_do(generator):
    net = generators.make(generator, (1, 12, 12), 2, width=16)
    random = torch.Generator().manual_seed(0)
    z, x = torch.randn(16, 2, generator=random), torch.rand(16, 1, 12, 12, generator=random)

    def gradient(named):
        net.zero_grad()
        with precision.casting([net], named):
            (net.train()(z) - x).square().mean().backward()
        return torch.cat([p.grad.flatten() for p in net.parameters()])

    exact, quick = gradient("float32"), gradient("bfloat16")
    assert not torch.equal(exact, quick)
    # bfloat16 has 8 significant bits.
    assert torch.cosine_similarity(exact, quick, dim=0) > 0.99
    assert abs(quick.norm() / exact.norm() - 1) < 0.05


@pytest.mark.parametrize("method", ["neurosql", "vae", "gan", "ddpm", "rae"])
def test_a_run_is_repeated_and_resumed_bit_for_bit(method, tmp_path):
    def stop_early(figures):
        if figures["epoch"] == 2:
            raise KeyboardInterrupt

    settings = QUICK | {"checkpoint_every": 1}
    whole = neurosql.fit(IMAGES, method=method, **settings)
    again = neurosql.fit(IMAGES, method=method, out=tmp_path / "whole", **settings)
    with pytest.raises((KeyboardInterrupt, Stopped)):
        neurosql.fit(IMAGES, method=method, out=tmp_path / "run", callback=stop_early, **settings)
    resumed = neurosql.run.resume(tmp_path / "run", lambda *_: IMAGES)
    for other in (again, resumed):
        assert other.settings.training.precision == "bfloat16"
        ours, theirs = whole.method.state(), other.method.state()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
