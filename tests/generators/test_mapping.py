"""The mapping network in front of a backbone: every backbone takes one, and what it adds is only that."""

import pytest
import torch

from neurosql import fit, networks, open_run, presets
from neurosql.data import from_array
from neurosql.errors import InputError
from neurosql.generators import make
from neurosql.settings import BACKBONES, Settings


def codes(n, d=2, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", list(BACKBONES))
def test_every_backbone_takes_one(name):
    generator = make(name, (3, 12, 10), 2, width=8, mapping=2, mapping_width=16)
    x = generator(codes(5))
    assert x.shape == (5, 3, 12, 10) and x.min() >= 0 and x.max() <= 1
    x.sum().backward()
    assert all(parameter.grad is not None for parameter in generator.mapping.parameters())


@pytest.mark.parametrize("name", list(BACKBONES))
def test_the_config_makes_the_same_network(name):
    generator = make(name, (1, 12, 12), 3, width=8, mapping=1, mapping_width=20, classes=4, seed=5)
    again = make(**generator.config(), seed=5)
    label = torch.tensor([0, 1, 2, 3])
    assert torch.equal(generator(codes(4, 3), label), again(codes(4, 3), label))


@pytest.mark.parametrize(("hidden", "width"), [(1, 16), (3, 40)])
def test_its_parameters_are_those_of_the_layers_and_of_a_wider_entry(hidden, width):
    plain = make("convnet", (1, 28, 28), 2)
    mapped = make("convnet", (1, 28, 28), 2, mapping=hidden, mapping_width=width)
    values = width // 4
    layers = (2 + 1) * width + (hidden - 1) * (width + 1) * width + (width + 1) * values
    entry = (values - 2) * plain.entry.out_features
    assert networks.count(mapped) == networks.count(plain) + layers + entry


def test_the_backbone_never_reads_fewer_values_than_the_code_has():
    assert make("mlp", (5,), 12, mapping=1, mapping_width=16).backbone.latent_dim == 12


@pytest.mark.parametrize("d", [1, 2, 8, 64])
def test_mapped_codes_start_as_large_as_codes(d):
    generator = make("mlp", (5,), d, mapping=3, mapping_width=256, seed=1)
    mapped = []
    generator.backbone.entry.register_forward_hook(lambda module, inputs, output: mapped.append(inputs[0]))
    generator(codes(2000, d))
    # The mean square, not the variance: part of it is the same for all codes, as a bias is.
    assert 0.5 < mapped[0].square().mean().sqrt() < 2
    assert mapped[0].std(0).mean() > 0.3


def test_labels_enter_the_mapping_network():
    generator = make("convnet", (1, 8, 8), 2, width=8, mapping=1, mapping_width=16, classes=3).eval()
    z = codes(1).expand(2, 2)
    first, second = generator(z, torch.tensor([0, 2]))
    assert not torch.allclose(first, second)
    assert generator.backbone.classes is None
    with pytest.raises(InputError, match="conditional on 3 classes"):
        generator(z)


def test_it_is_off_unless_it_is_asked_for():
    assert Settings().generator.mapping == 0
    assert presets.settings(preset="paper").generator.mapping == 0


@pytest.mark.parametrize("method", ["neurosql", "vae", "gan", "glo", "rae", "imle"])
def test_every_method_with_codes_trains_with_it_and_comes_back(method, tmp_path, digits):
    images = from_array(digits[0][:40])
    run = fit(images, method=method, budget="smoke", width=16, mapping=1, mapping_width=16, out=tmp_path / "run")
    again = open_run(tmp_path / "run")
    assert (run.sample(4, seed=0)[0] == again.sample(4, seed=0)[0]).all()
    assert again.method.networks["generator"].mapping[0].out_features == 16
