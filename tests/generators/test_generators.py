"""Generators: shapes, ranges, initial weights, labels, gradients, and that each net can learn."""

import itertools
import json
import math

import pytest
import torch
from safetensors.torch import save_file

from neurosql import networks
from neurosql.errors import InputError
from neurosql.generators import make
from neurosql.generators.grid import pyramid
from neurosql.generators.resnet import load_matching, load_resnet18
from neurosql.settings import BACKBONES

CONVOLUTIONAL = ("convnet", "resnet", "unet")
IMAGE_NETS = (*CONVOLUTIONAL, "transformer")
SIDES = [(8, 8), (9, 13), (28, 28), (45, 37), (64, 64), (8, 100)]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Nets this small lose more by waking threads than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def codes(n, d=2, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def tiny(name, shape=(1, 12, 10), latent_dim=2, **settings):
    return make(name, shape, latent_dim, width=8, **settings)


def resnet18_state():
    """Tensors with the names and shapes of a ResNet-18's residual layers, each filled with its own number."""
    shapes = {"conv1.weight": (64, 3, 7, 7), "bn1.weight": (64,), "fc.weight": (1000, 512)}
    before = 64
    for layer, width in enumerate((64, 128, 256, 512), start=1):
        for block in range(2):
            for i, c in enumerate((before, width), start=1):
                shapes[f"layer{layer}.{block}.conv{i}.weight"] = (width, c, 3, 3)
                for part in ("weight", "bias", "running_mean", "running_var"):
                    shapes[f"layer{layer}.{block}.bn{i}.{part}"] = (width,)
            if before != width:
                shapes[f"layer{layer}.{block}.downsample.0.weight"] = (width, before, 1, 1)
            before = width
    return {name: torch.full(shape, float(i)) for i, (name, shape) in enumerate(shapes.items(), start=1)}


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("name", list(BACKBONES))
def test_images_have_their_shape_and_range(name, sides):
    for channels in (1, 3):
        shape = (channels, *sides)
        x = tiny(name, shape)(codes(3))
        assert x.shape == (3, *shape)
        assert x.is_contiguous()
        assert torch.isfinite(x).all()
        assert x.min() >= 0 and x.max() <= 1


@pytest.mark.parametrize("sides", [(96, 128), (256, 256)])
@pytest.mark.parametrize("name", list(BACKBONES))
def test_large_images_come_out_at_their_size(name, sides):
    generator = tiny(name, (2, *sides), latent_dim=1)
    with torch.no_grad():
        assert generator(codes(2, 1)).shape == (2, 2, *sides)


@pytest.mark.parametrize("shape", [(5,), (1,), (2, 30), (1, 4, 5, 6)])
def test_mlp_makes_any_shape(shape):
    assert make("mlp", shape, 3, width=8)(codes(4, 3)).shape == (4, *shape)


def test_unbounded_head_leaves_the_unit_interval():
    x = make("mlp", (20,), 2, bounded=False)(codes(256))
    assert x.min() < 0
    image = make("convnet", (1, 8, 8), 2, width=8, bounded=False)(codes(64))
    assert image.min() < 0


def test_mlp_works_in_float64():
    x = make("mlp", (5,), 2, bounded=False, classes=3).double()(codes(4).double(), torch.tensor([0, 1, 2, 0]))
    assert x.dtype == torch.float64


def test_pyramid_doubles_and_crops_at_most_one():
    for h in range(8, 257):
        sizes = pyramid((h, 264 - h), base=4)
        assert sizes[-1] == (h, 264 - h) and max(sizes[0]) <= 4
        for coarse, fine in itertools.pairwise(sizes):
            assert all(2 * a - b in (0, 1) for a, b in zip(coarse, fine))
    assert pyramid((28, 28), base=2, most=4) == [(2, 2), (4, 4), (7, 7), (14, 14), (28, 28)]
    assert pyramid((256, 256), base=2, most=4)[0] == (16, 16)


def test_convnet_presets_have_the_papers_sizes():
    assert networks.count(make("convnet", (1, 28, 28), 2)) == pytest.approx(0.2e6, rel=0.15)
    assert networks.count(make("convnet", (1, 28, 28), 2, size="paper")) == pytest.approx(2.8e6, rel=0.10)
    assert make("convnet", (3, 256, 256), 2, size="paper").widths == [512, 256, 128, 64, 32, 16, 16]


@pytest.mark.parametrize("name", list(BACKBONES))
def test_laptop_presets_are_small(name):
    assert 0.15e6 < networks.count(make(name, (1, 28, 28), 2)) < 0.5e6


@pytest.mark.parametrize("name", list(BACKBONES))
def test_same_seed_same_bits_and_another_seed_others(name):
    first, again, other = (tiny(name, classes=3, seed=seed).state_dict() for seed in (5, 5, 6))
    assert first.keys() == again.keys()
    for key in first:
        assert torch.isfinite(first[key]).all()
        assert torch.equal(first[key], again[key])
    # Constant fills (biases, norms) agree for any seed; everything drawn differs.
    for key in first:
        if first[key].numel() > 1 and first[key].float().std() > 0:
            assert not torch.equal(first[key], other[key])


@pytest.mark.parametrize("name", list(BACKBONES))
def test_initial_weights_do_not_depend_on_what_memory_held(name, monkeypatch):
    reference = tiny(name, classes=3).state_dict()
    hollow = torch.nn.Module.to_empty

    def to_nan(self, **where):
        hollow(self, **where)
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.data.fill_(math.nan if tensor.is_floating_point() else -7)
        return self

    monkeypatch.setattr(torch.nn.Module, "to_empty", to_nan)
    for key, tensor in tiny(name, classes=3).state_dict().items():
        assert torch.equal(tensor, reference[key]), key


@pytest.mark.parametrize("name", list(BACKBONES))
def test_global_random_state_is_neither_changed_nor_read(name):
    before = torch.get_rng_state()
    generator = tiny(name, classes=2)
    generator(codes(4), torch.tensor([0, 1, 0, 1]))
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(123)
        elsewhere = tiny(name, classes=2)
    assert all(torch.equal(a, b) for a, b in zip(generator.parameters(), elsewhere.parameters()))


@pytest.mark.parametrize("name", list(BACKBONES))
def test_first_biases_are_spread(name):
    assert make(name, (1, 28, 28), 2).entry.bias.std() > 0.5


@pytest.mark.parametrize("name", list(BACKBONES))
def test_output_starts_near_grey_and_varies_with_z(name):
    x = make(name, (1, 16, 16), 2)(codes(64))
    assert 0.3 < x.mean() < 0.7
    assert x.std(dim=0).mean() > 0.01


@pytest.mark.parametrize("name", list(BACKBONES))
def test_conditional_output_depends_on_the_label(name):
    generator = tiny(name, classes=3).eval()
    z = codes(4)
    zeros, ones = (generator(z, torch.full((4,), label)) for label in (0, 1))
    assert (zeros - ones).abs().max() > 1e-3


def test_labels_are_asked_for_where_they_belong():
    z = codes(2)
    with pytest.raises(InputError, match="with labels"):
        tiny("mlp", classes=3)(z)
    with pytest.raises(InputError, match="unconditional"):
        tiny("mlp")(z, torch.tensor([0, 1]))
    for label in (torch.tensor([0, 3]), torch.tensor([-1, 0])):
        with pytest.raises(InputError, match=r"0\.\.2"):
            tiny("mlp", classes=3)(z, label)
    for label in (torch.tensor([0.0, 1.0]), torch.tensor([0]), torch.tensor([[0], [1]])):
        with pytest.raises(InputError, match="int64"):
            tiny("mlp", classes=3)(z, label)
    assert tiny("mlp").embedding is None


@pytest.mark.parametrize("name", list(BACKBONES))
def test_gradient_reaches_every_parameter_and_z(name):
    generator = tiny(name, classes=2)
    z = codes(6).requires_grad_()
    x = generator(z, torch.tensor([0, 1, 0, 1, 0, 1]))
    target = torch.rand(x.shape, generator=torch.Generator().manual_seed(1))
    (x - target).square().sum().backward()
    assert z.grad is not None and (z.grad.abs().sum(dim=1) > 1e-6).all()
    for key, parameter in generator.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 1e-6, key


@pytest.mark.parametrize("name", list(BACKBONES))
def test_a_row_does_not_depend_on_the_rest_of_the_batch(name):
    generator = tiny(name)
    generator(codes(16))
    generator.eval()
    z = codes(7, seed=2)
    with torch.no_grad():
        assert torch.allclose(generator(z)[3:4], generator(z[3:4]), atol=1e-5)


@pytest.mark.parametrize("name", list(BACKBONES))
def test_config_rebuilds_the_architecture(name):
    generator = make(name, (3, 20, 33), 4, size="paper", width=24, classes=5, seed=3, bounded=False)
    config = json.loads(json.dumps(generator.config()))
    again = make(**config, seed=3)
    assert again.config() == generator.config()
    for a, b in zip(generator.state_dict().items(), again.state_dict().items()):
        assert a[0] == b[0] and torch.equal(a[1], b[1])


def test_resnet_tapers_unless_told():
    tapered = make("resnet", (1, 28, 28), 2, size="paper")
    assert [block.conv2.out_channels for block in tapered.blocks] == [512, 256, 128, 64]
    constant = make("resnet", (1, 28, 28), 2, width=24, taper=False)
    assert [block.conv2.out_channels for block in constant.blocks] == [24] * 4


def test_resnet_keeps_four_blocks_for_small_images():
    assert tiny("resnet", (1, 8, 8)).sizes == [(2, 2), (2, 2), (2, 2), (4, 4), (8, 8)]
    assert tiny("resnet", (1, 28, 28)).sizes == [(2, 2), (4, 4), (7, 7), (14, 14), (28, 28)]


@pytest.mark.parametrize("settings", [{"width": 128}, {"width": 64, "taper": False}])
def test_resnet18_weights_fill_matching_convolutions_once(settings):
    state = resnet18_state()
    generator = make("resnet", (1, 16, 16), 2, **settings)
    before = {key: value.clone() for key, value in generator.state_dict().items()}
    filled = load_matching(generator, state)
    after = generator.state_dict()
    assert len(filled) == len(set(filled))
    convolutions = [key for key in filled if ".conv" in key]
    sources = [after[key].flatten()[0].item() for key in convolutions]
    assert convolutions and len(sources) == len(set(sources))
    for key, value in after.items():
        assert torch.equal(value, before[key]) == (key not in filled), key
    names = list(state)
    for key in convolutions:
        source = names[int(after[key].flatten()[0]) - 1]
        assert state[source].shape == after[key].shape
        for part in ("weight", "bias"):
            norm = source.replace("conv", "bn").replace("weight", part)
            assert torch.equal(after[key.replace("conv", "bn").replace("weight", part)], state[norm])
    if settings["width"] == 64:
        assert len(convolutions) == 4


def test_resnet18_weights_that_fit_nowhere_are_refused():
    with pytest.raises(InputError, match="width 8"):
        load_matching(tiny("resnet"), resnet18_state())
    with pytest.raises(InputError, match="resnet generator only"):
        load_matching(tiny("convnet"), resnet18_state())


def test_resnet18_is_read_from_safetensors_only(tmp_path):
    state = resnet18_state()
    small = {key: value for key, value in state.items() if key.startswith("layer1")}
    save_file(small, tmp_path / "weights.safetensors")
    one, two = (make("resnet", (1, 8, 8), 2, width=64) for _ in range(2))
    assert load_resnet18(one, tmp_path / "weights.safetensors") == load_matching(two, small)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    (tmp_path / "broken.safetensors").write_bytes(b"not a header")
    for path, message in [
        ("weights.pth", "convert"),
        ("missing.safetensors", "can't read"),
        ("broken.safetensors", "can't read"),
    ]:
        with pytest.raises(InputError, match=message):
            load_resnet18(one, tmp_path / path)


@pytest.mark.parametrize("name", IMAGE_NETS)
@pytest.mark.parametrize("shape", [(1, 7, 28), (1, 28, 257), (28, 28), (5,), (1, 8, 8, 8)])
def test_shapes_that_are_no_image_are_refused(name, shape):
    with pytest.raises(InputError, match="mlp"):
        make(name, shape, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "gan"}, "convnet"),
        ({"size": "huge"}, "laptop, paper"),
        ({"latent_dim": 0}, "latent_dim must be at least 1, got 0"),
        ({"latent_dim": 2.5}, "whole number"),
        ({"width": 0}, "width must be at least 1"),
        ({"classes": 0}, "classes must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"shape": ()}, "shape"),
        ({"shape": (1, 0, 8)}, "shape"),
        ({"shape": 28}, "shape"),
        ({"taper": False}, "no option 'taper'"),
        ({"activation": "tanh"}, "silu, relu"),
        ({"depth": 0}, "depth"),
        ({"name": "transformer", "width": 10, "heads": 4}, "multiple of heads"),
        ({"name": "transformer", "patch": 0}, "patch"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, message):
    with pytest.raises(InputError, match=message):
        make(**{"name": "mlp", "shape": (1, 8, 8), "latent_dim": 2, **settings})


def test_codes_of_another_length_are_refused():
    with pytest.raises(InputError, match=r"\(n, 2\)"):
        tiny("mlp")(codes(3, d=4))


def test_transformer_has_at_most_256_tokens():
    for side in range(8, 257, 8):
        generator = make("transformer", (1, side, side), 2, width=8, depth=1, heads=1)
        assert generator.rows * generator.columns <= 256
    assert make("transformer", (1, 28, 28), 2).patch == 4
    assert make("transformer", (1, 28, 28), 2, patch=7).rows == 4


@pytest.mark.parametrize("name", list(BACKBONES))
def test_each_net_fits_a_few_smooth_images(name):
    rng = torch.Generator().manual_seed(0)
    coarse = torch.rand(16, 1, 4, 4, generator=rng)
    target = torch.nn.functional.interpolate(coarse, size=16, mode="bilinear")
    z = codes(16)
    generator = make(name, (1, 16, 16), 2, width=32)
    optimizer = torch.optim.AdamW(generator.parameters(), lr=3e-3)
    losses = []
    for _ in range(120):
        loss = (generator(z) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5
