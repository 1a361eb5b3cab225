"""The networks of diffusion and flow matching: as large as the generator, of any size, from one seed."""

import pytest
import torch

from neurosql import InputError, generators, networks
from neurosql.methods import denoisers
from neurosql.methods.denoisers import MLP, UNet, make, matched, matched_width
from neurosql.registry import imported
from neurosql.settings import BACKBONES

IMAGES = [(1, 28, 28), (3, 64, 64), (1, 128, 128)]


def size_of_generator(name, shape, size, classes=None, latent_dim=2):
    kind = imported(BACKBONES[name].implementation)
    with torch.device("meta"):
        bounded = len(shape) > 1
        return networks.count(kind(shape, latent_dim, classes=classes, bounded=bounded, **kind.presets[size]))


def assert_matched(shape, target, classes=None):
    with torch.device("meta"):
        network = matched(shape, classes, target)()
    assert networks.count(network) == pytest.approx(target, rel=denoisers.TOLERANCE)
    return network


@pytest.mark.parametrize("size", generators.SIZES)
@pytest.mark.parametrize("name", list(BACKBONES))
@pytest.mark.parametrize("shape", IMAGES)
def test_the_unet_is_as_large_as_the_generator(name, size, shape):
    assert_matched(shape, size_of_generator(name, shape, size))


@pytest.mark.parametrize("latent_dim, classes", [(2, None), (8, None), (16, 10), (128, 10)])
def test_the_unet_follows_the_generator_that_grows_with_codes_and_classes(latent_dim, classes):
    target = size_of_generator("convnet", (1, 28, 28), "laptop", classes, latent_dim)
    network = assert_matched((1, 28, 28), target, classes)
    assert network.width <= 16 or network.width % 8 == 0


@pytest.mark.parametrize("size", generators.SIZES)
@pytest.mark.parametrize("shape", [(2,), (30,), (1, 100), (1, 12, 12, 12)])
def test_the_mlp_is_as_large_as_the_generator(size, shape):
    assert isinstance(assert_matched(shape, size_of_generator("mlp", shape, size), 3), MLP)


def test_the_matched_width_is_the_nearest_or_a_round_one_within_half_the_tolerance():
    def square(width):
        return torch.nn.Linear(width, width, bias=False)

    assert matched_width(square, 33**2) == 33
    assert matched_width(square, 32**2 + 30) == 32
    assert matched_width(square, 101**2) == 100
    assert matched_width(square, 1) == 1


def test_a_given_base_width_is_taken():
    network = matched((1, 28, 28), None, 100_000, width=32)()
    assert network.widths == [32, 64, 64]


@pytest.mark.parametrize("sides", [(8, 8), (9, 13), (28, 28), (31, 33), (64, 48), (100, 17)])
def test_images_of_any_size_keep_it(sides):
    network = make(lambda: UNet((2, *sides), 4, classes=3), seed=0)
    for layer in network.zero_layers():
        torch.nn.init.constant_(layer.weight, 0.01)
    x, t, label = torch.randn(3, 2, *sides), torch.rand(3), torch.tensor([0, 1, 2])
    assert network(x, t, label).shape == x.shape
    assert max(network.sizes[-1]) <= 8


def test_256_pixels_are_six_levels():
    network = make(lambda: UNet((1, 256, 256), 2), seed=0)
    with torch.no_grad():
        assert network(torch.zeros(1, 1, 256, 256), torch.zeros(1)).shape == (1, 1, 256, 256)
    assert [size[0] for size in network.sizes] == [256, 128, 64, 32, 16, 8]


@pytest.mark.parametrize("shape, kind", [((1, 28, 28), UNet), ((1, 4, 4), MLP), ((3,), MLP), ((2, 50), MLP)])
def test_images_get_a_unet_and_everything_else_an_mlp(shape, kind):
    network = matched(shape, None, 20_000)()
    assert type(network) is kind
    assert network(torch.zeros(2, *shape), torch.zeros(2)).shape == (2, *shape)


@pytest.mark.parametrize("build", [lambda: UNet((1, 12, 12), 8, 4), lambda: MLP((5,), 32, 4)])
class TestEveryNetwork:
    def data(self, build, n=6):
        network = make(build, seed=1)
        return network, torch.randn(n, *network.shape), torch.linspace(0, 1, n), torch.arange(n) % 4

    def test_starts_as_the_zero_function_that_learns(self, build):
        network, x, t, label = self.data(build)
        out = network(x, t, label)
        assert not out.any()
        (out - x).square().mean().backward()
        assert network.head.weight.grad.abs().max() > 0

    def test_every_parameter_gets_a_gradient_once_the_last_layers_have_moved(self, build):
        network, x, t, label = self.data(build)
        for layer in network.zero_layers():
            torch.nn.init.normal_(layer.weight, std=0.1)
        (network(x, t, label) - x).square().mean().backward()
        still = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.any()]
        assert not still

    def test_output_depends_on_time_and_label_and_on_its_own_row_only(self, build):
        network, x, t, label = self.data(build)
        for layer in network.zero_layers():
            torch.nn.init.normal_(layer.weight, std=0.1)
        out = network(x, t, label)
        assert not torch.allclose(out, network(x, 1 - t, label), atol=1e-4)
        assert not torch.allclose(out, network(x, t, 3 - label), atol=1e-4)
        assert torch.allclose(out[:2], network(x[:2], t[:2], label[:2]), atol=1e-5)

    def test_weights_come_from_the_seed_and_the_name_alone(self, build):
        state = torch.get_rng_state()
        first, again = make(build, 3), make(build, 3)
        other, named = make(build, 4), make(build, 3, "another")
        assert torch.equal(torch.get_rng_state(), state)
        for key, value in first.state_dict().items():
            assert torch.equal(value, again.state_dict()[key])
        for another in (other, named):
            assert not torch.equal(first.entry.weight, another.entry.weight)

    def test_labels_are_asked_for_where_they_belong(self, build):
        network, x, t, _ = self.data(build)
        with pytest.raises(InputError, match="takes labels if"):
            network(x, t)


@pytest.mark.parametrize("channels", range(1, 80))
def test_groups_divide_the_channels(channels):
    groups = denoisers.groups(channels)
    assert channels % groups == 0 and 1 <= groups <= 8
    assert groups == 1 or channels // groups >= 4


def test_a_wide_sample_is_not_squeezed_through_few_units():
    """a(t) x: with fewer hidden units than values the network can still follow noise in every direction."""
    network = make(lambda: MLP((200,), 8), seed=0)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    random = torch.Generator().manual_seed(0)
    for _ in range(150):
        x = torch.randn(64, 200, generator=random)
        loss = (network(x, torch.rand(64, generator=random)) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
