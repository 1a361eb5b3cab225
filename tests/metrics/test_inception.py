"""Inception-v3 from the user's own file: its layers, and what is refused."""

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from neurosql import InputError
from neurosql.metrics import inception

# The convolutions of each block: name, inputs, outputs, kernel.
STEM = [
    ("1a_3x3", 3, 32, 3),
    ("2a_3x3", 32, 32, 3),
    ("2b_3x3", 32, 64, 3),
    ("3b_1x1", 64, 80, 1),
    ("4a_3x3", 80, 192, 3),
]


def convolutions():
    """Every convolution by name, with the shape of its kernel."""
    found = {f"Conv2d_{name}": (out, inputs, k, k) for name, inputs, out, k in STEM}

    def add(block, name, inputs, out, *kernel):
        found[f"{block}.{name}"] = (out, inputs, *(kernel * 2 if len(kernel) == 1 else kernel))

    for block, inputs, pooled in (("Mixed_5b", 192, 32), ("Mixed_5c", 256, 64), ("Mixed_5d", 288, 64)):
        add(block, "branch1x1", inputs, 64, 1)
        add(block, "branch5x5_1", inputs, 48, 1), add(block, "branch5x5_2", 48, 64, 5)
        add(block, "branch3x3dbl_1", inputs, 64, 1), add(block, "branch3x3dbl_2", 64, 96, 3)
        add(block, "branch3x3dbl_3", 96, 96, 3), add(block, "branch_pool", inputs, pooled, 1)
    add("Mixed_6a", "branch3x3", 288, 384, 3), add("Mixed_6a", "branch3x3dbl_1", 288, 64, 1)
    add("Mixed_6a", "branch3x3dbl_2", 64, 96, 3), add("Mixed_6a", "branch3x3dbl_3", 96, 96, 3)
    for block, c in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        add(block, "branch1x1", 768, 192, 1), add(block, "branch_pool", 768, 192, 1)
        (
            add(block, "branch7x7_1", 768, c, 1),
            add(block, "branch7x7_2", c, c, 1, 7),
            add(block, "branch7x7_3", c, 192, 7, 1),
        )
        for number, shape in enumerate([(768, c, 1, 1), (c, c, 7, 1), (c, c, 1, 7), (c, c, 7, 1), (c, 192, 1, 7)], 1):
            add(block, f"branch7x7dbl_{number}", *shape)
    add("Mixed_7a", "branch3x3_1", 768, 192, 1), add("Mixed_7a", "branch3x3_2", 192, 320, 3)
    for number, shape in enumerate([(768, 192, 1, 1), (192, 192, 1, 7), (192, 192, 7, 1), (192, 192, 3, 3)], 1):
        add("Mixed_7a", f"branch7x7x3_{number}", *shape)
    for block, inputs in (("Mixed_7b", 1280), ("Mixed_7c", 2048)):
        add(block, "branch1x1", inputs, 320, 1), add(block, "branch_pool", inputs, 192, 1)
        add(block, "branch3x3_1", inputs, 384, 1), add(block, "branch3x3dbl_1", inputs, 448, 1)
        add(block, "branch3x3dbl_2", 448, 384, 3)
        for name in ("branch3x3_2", "branch3x3dbl_3"):
            add(block, f"{name}a", 384, 384, 1, 3), add(block, f"{name}b", 384, 384, 3, 1)
    return found


@pytest.fixture(scope="module")
def weights():
    random = torch.Generator().manual_seed(0)
    found = {}
    for name, shape in convolutions().items():
        spread = (2 / (shape[1] * shape[2] * shape[3])) ** 0.5
        found[f"{name}.conv.weight"] = spread * torch.randn(shape, generator=random)
        for part, low, high in (("weight", 0.5, 1.5), ("bias", -0.1, 0.1), ("running_mean", -0.1, 0.1)):
            found[f"{name}.bn.{part}"] = low + (high - low) * torch.rand(shape[0], generator=random)
        found[f"{name}.bn.running_var"] = 0.5 + torch.rand(shape[0], generator=random)
    return found


def test_the_network_has_as_many_weights_as_published(weights):
    # 23.9 million with the two classifiers' heads; 21.8 without.
    assert len(convolutions()) == 94
    assert sum(w.numel() for name, w in weights.items() if "running" not in name) == 21_785_568


def test_a_convolution_is_followed_by_its_batch_normalisation(weights):
    name = "Mixed_6b.branch7x7_2"
    layers = nn.Sequential(
        nn.Conv2d(128, 128, (1, 7), padding=(0, 3), bias=False), nn.BatchNorm2d(128, eps=1e-3), nn.ReLU()
    )
    layers[0].weight.data = weights[f"{name}.conv.weight"]
    norm = {k.rpartition(".")[2]: v for k, v in weights.items() if k.startswith(f"{name}.bn.")}
    layers[1].load_state_dict(norm, strict=False)
    x = torch.randn(2, 128, 9, 9, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(inception.Inception(weights).conv(x, name), layers.eval()(x), atol=1e-5, rtol=1e-5)


def test_features_of_an_image_do_not_depend_on_the_others(weights, tmp_path):
    safetensors.torch.save_file(weights, tmp_path / "inception.safetensors")
    net = inception.load(tmp_path / "inception.safetensors")
    images = np.random.default_rng(0).random((3, 1, 28, 28), np.float32)
    together = net(images)
    assert together.shape == (3, 2048) and together.std(0).max() > 0
    np.testing.assert_array_equal(net(images[1:2]), together[1:2])


def test_files_that_are_not_its_weights_are_refused(tmp_path):
    for name, match in (("a.pth", "run code"), ("none.safetensors", "no such file")):
        with pytest.raises(InputError, match=match):
            inception.load(tmp_path / name)
    (tmp_path / "b.safetensors").write_bytes(b"<html>")
    with pytest.raises(InputError, match="can't be read"):
        inception.load(tmp_path / "b.safetensors")
    safetensors.torch.save_file({"Conv2d_1a_3x3.conv.weight": torch.zeros(32, 3, 3, 3)}, tmp_path / "c.safetensors")
    with pytest.raises(InputError, match="does not hold the weights"):
        inception.load(tmp_path / "c.safetensors")
