"""Encoders: any shape in, (n, k) out; weights from the seed alone; no image depends on the others."""

import pytest
import torch

from neurosql import InputError, networks
from neurosql.methods import encoders
from neurosql.methods.base import Task
from neurosql.settings import Settings


def task(shape, classes=None, **settings):
    settings = {"method": "vae", "latent_dim": 3, "generator": "mlp" if len(shape) != 3 else "convnet"} | settings
    return Task(Settings.from_flat(settings), shape, classes)


def make(name, shape, classes=None, outputs=6, **settings):
    its = task(shape, classes, **settings)
    return encoders.make(name, its, outputs, its.generator())


def images(n, shape):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("classes", [None, 4])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 13, 9), (1, 28, 28), (2, 33, 64), (1, 50), (1, 6, 7, 8), (5,)])
@pytest.mark.parametrize("name", list(encoders.KINDS))
def test_any_shape_gives_rows_of_outputs(name, shape, classes):
    encoder = make(name, shape, classes)
    label = None if classes is None else torch.tensor([0, 1, 3])
    found = encoder(images(3, shape), label)
    assert found.shape == (3, 6) and torch.isfinite(found).all()
    assert isinstance(encoder, encoders.ConvEncoder if name == "conv" and len(shape) == 3 else encoders.MLPEncoder)


def test_large_images_fit_too():
    assert make("conv", (1, 256, 256), width=32)(images(1, (1, 256, 256))).shape == (1, 6)


@pytest.mark.parametrize(
    ("shape", "settings"), [((1, 28, 28), {}), ((3, 64, 64), {}), ((1, 28, 28), {"size": "paper"})]
)
@pytest.mark.parametrize("generator", ["convnet", "resnet", "mlp"])
def test_the_convolutional_encoder_is_about_as_large_as_the_generator(generator, shape, settings):
    its = task(shape, generator=generator, **settings)
    generator = its.generator()
    ratio = networks.count(encoders.make("conv", its, 6, generator)) / networks.count(generator)
    assert 0.8 < ratio < 1.25


def test_the_mlp_on_vectors_mirrors_the_mlp_generator():
    its = task((5,), width=40)
    encoder, generator = encoders.make("mlp", its, 3, its.generator()), its.generator()
    assert networks.count(encoder) == pytest.approx(networks.count(generator), rel=0.05)


@pytest.mark.parametrize("name", list(encoders.KINDS))
def test_weights_are_a_function_of_the_seed_alone(name):
    before = torch.get_rng_state()
    first, second, other = (make(name, (1, 8, 8), 3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    a, b, c = (encoder.state_dict() for encoder in (first, second, other))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not torch.equal(a["head.weight"], c["head.weight"])
    assert networks.seed_of(1, "encoder") != networks.seed_of(1, "generator")


@pytest.mark.parametrize("name", list(encoders.KINDS))
def test_an_image_does_not_see_the_rest_of_its_batch(name):
    encoder, x = make(name, (1, 12, 12)).double(), images(5, (1, 12, 12)).double()
    assert torch.allclose(encoder.train()(x)[2:3], encoder.eval()(x[2:3]), atol=1e-12)


@pytest.mark.parametrize("name", list(encoders.KINDS))
def test_chunks_give_the_same_as_one_pass(name):
    encoder, x, label = make(name, (1, 9, 9), 3), images(10, (1, 9, 9)), torch.arange(10) % 3
    encoder.train()
    assert torch.allclose(encoders.outputs(encoder, x, label, chunk=4), encoder(x, label), atol=1e-5)
    assert encoder.training
    assert encoders.outputs(encoder, x[:0], label[:0]).shape == (0, 6)


@pytest.mark.parametrize("name", list(encoders.KINDS))
def test_the_label_matters_and_must_be_there(name):
    encoder, x = make(name, (1, 8, 8), 3), images(2, (1, 8, 8))
    first, second = (encoder(x, torch.full((2,), label)) for label in (0, 1))
    assert not torch.allclose(first, second)
    with pytest.raises(InputError, match="conditional on 3 classes"):
        encoder(x)
    with pytest.raises(InputError, match="must have shape"):
        encoder(x[:, :, :5], torch.zeros(2, dtype=torch.int64))


def test_an_unknown_encoder_is_refused():
    with pytest.raises(InputError, match="encoder must be one of"):
        make("resnet", (1, 8, 8))
