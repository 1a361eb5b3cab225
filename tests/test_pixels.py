"""Images that stay bytes: batches of them, and models trained on them, have the bits of images that were converted."""

import os
import signal

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from small_methods import build

from neurosql import encode, held, trained_on
from neurosql import run as runs
from neurosql.assign import start
from neurosql.data import ImageSet
from neurosql.methods import search
from neurosql.pixels import Pixels
from neurosql.settings import QuantileSettings, Settings
from neurosql.training import Stopped, Trainer

MINI = {"algorithm": "mini-batch", "generator": "mlp", "width": 32, "epochs": 3, "batch_size": 20, "validate_every": 1}


def mapped(tmp_path, n=90, seed=0):
    """n images in a file, blobs at random places, mapped."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:12, :12]
    centres = random.uniform(2, 10, (n, 2, 1, 1))
    values = np.exp(-((rows - centres[:, 0]) ** 2 + (columns - centres[:, 1]) ** 2) / 6)
    np.save(tmp_path / "x.npy", (255 * values[:, None]).astype(np.uint8))
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def test_what_is_taken_is_what_was_converted(tmp_path):
    values = mapped(tmp_path)
    converted = torch.from_numpy(ImageSet(values).x)
    places, random = np.arange(80, 5, -3), torch.Generator().manual_seed(0)
    for pixels, expected in [(Pixels(values), converted), (Pixels(values, places), converted[places.copy()])]:
        n = len(expected)
        assert (len(pixels), pixels.shape, pixels.ndim) == (n, expected.shape, expected.ndim)
        index = torch.randperm(n, generator=random)[:9]
        for chosen in (index, slice(3, 8), slice(None)):
            assert torch.equal(pixels[chosen], expected[chosen])
        assert torch.equal(pixels.only(index)[slice(None)], expected[index])
        assert np.array_equal(trained_on.digests(pixels), trained_on.digests(expected))


@pytest.mark.parametrize("own", [{"subset": "owned"}, {"subset": "partition", "conditional": True}, {"code_rate": 0.1}])
@pytest.mark.parametrize("validation_share", [0.0, 0.2])
def test_a_model_trained_on_bytes_has_the_bits_of_one_trained_on_numbers(tmp_path, monkeypatch, own, validation_share):
    images = ImageSet(mapped(tmp_path), np.arange(90) % 2, ("even", "odd"))
    settings = Settings.from_flat(MINI | {"start": "random", "validation_share": validation_share} | own)
    found = []
    for limit in (2**30, 0):
        monkeypatch.setattr(held, "STREAMED", limit)
        for module in (encode, search):
            monkeypatch.setattr(module, "IN_PARTS", 2**15 if limit else 7)
        run = runs.train(images, settings, tmp_path / str(limit))
        assert isinstance(run.method.x, Pixels) == (not limit)
        found.append((run, (tmp_path / str(limit) / "codes.safetensors").read_bytes()))
    (numbers, first), (pixels, second) = found
    assert first == second
    for name, weight in numbers.method.generator.state_dict().items():
        assert torch.equal(weight, pixels.method.generator.state_dict()[name])


def test_only_batches_are_ever_converted(tmp_path, monkeypatch):
    taken = []
    get = Pixels.__getitem__

    def counted(self, index):
        result = get(self, index)
        taken.append(len(result))
        return result

    monkeypatch.setattr(Pixels, "__getitem__", counted)
    monkeypatch.setattr(held, "STREAMED", 0)
    monkeypatch.setattr(start, "FITTED", 30)
    monkeypatch.setattr(start, "PART", 25)
    monkeypatch.setattr(trained_on, "CHUNK", 16)
    images = ImageSet(mapped(tmp_path, 200))
    run = runs.train(images, Settings.from_flat(MINI), tmp_path / "run")
    assert sorted(run.method.permutation.tolist()) == list(range(len(run.index)))
    assert max(taken) <= 30
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageSet, "x", property(lambda self: pytest.fail("all images were converted")))
        runs.train(images, Settings.from_flat(MINI | {"validation_share": 0.0}))


def test_scores_in_parts_are_the_principal_scores(tmp_path):
    values = mapped(tmp_path, 300)
    random = torch.Generator().manual_seed(0)
    found = start.scores_in_parts(Pixels(values), 3, random, lambda x: x)
    flat = ImageSet(values).x.reshape(300, -1).astype(np.float64)
    expected = PCA(3).fit_transform(flat)
    for j in range(3):
        assert abs(np.corrcoef(found[:, j], expected[:, j])[0, 1]) > 0.999
    few = start.scores_in_parts(Pixels(values[:, :, :1, :2]), 4, random, lambda x: x)
    assert few.shape == (300, 4) and np.abs(few[:, 2:].std(0) - 1).max() < 0.2


def test_the_nearest_code_in_parts_is_the_nearest_code(digits, monkeypatch):
    monkeypatch.setattr(encode, "IN_PARTS", 17)
    labels = torch.from_numpy(np.asarray(digits[1][:80])).long() % 3
    method = build(digits[0][:80, None], labels, dtype=torch.float32)
    x, made, classes = method.x[:30], method.decode(method.lattice, method.lattice_labels), method.lattice_labels
    for own, theirs in ((None, None), (labels[:30], classes)):
        expected = encode.nearest_code(method.cost, x, made, own, theirs)
        found = encode.nearest_in_parts(method.cost, x, lambda part: made[part], 80, own, theirs)
        assert torch.equal(found, expected)


def test_a_stopped_run_on_bytes_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(held, "STREAMED", 0)
    images, settings = ImageSet(mapped(tmp_path)), Settings.from_flat(MINI)
    whole = runs.train(images, settings, tmp_path / "whole")
    update, count = Trainer._update, iter(range(8))

    def stopping(self, name, loss):
        update(self, name, loss)
        if next(count, None) == 7:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_update", stopping)
    with pytest.raises(Stopped):
        runs.train(images, settings, tmp_path / "stopped")
    monkeypatch.setattr(Trainer, "_update", update)
    again = runs.resume(tmp_path / "stopped", lambda source, how: images)
    assert torch.equal(again.method.codes, whole.method.codes)
    assert torch.equal(again.method.permutation, whole.method.permutation)


def test_what_looks_at_all_images_at_once_does_not_stream():
    assert QuantileSettings(algorithm="mini-batch").streams
    for own in ({"algorithm": "full"}, {"components": 3}, {"fresh": 1.0}, {"shared_rate": 0.1}):
        assert not QuantileSettings(**{"algorithm": "mini-batch"} | own).streams
