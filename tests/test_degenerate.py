"""Data that carry next to nothing, and numbers at the edge: a run works, or one sentence says why it can't."""

import warnings

import numpy as np
import pytest
import torch

from neurosql import InputError, data, fit
from neurosql.cli import main
from neurosql.settings import METHODS

TINY = dict(generator="mlp", width=8, epochs=2, batch_size=16, validate_every=1)
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.random((24, 8, 8)).astype(np.float32)
TABLE = RANDOM.normal(size=(24, 4))
HOW = [("neurosql", preset) for preset in ("plain", "map", "samples", "photographs")]
HOW += [(name, "recommended") for name in METHODS if METHODS[name].implementation.startswith("neurosql.")][1:]


def constant_column(table):
    changed = table.copy()
    changed[:, 1] = 3
    return changed


DATA = {
    "all images black": np.zeros((24, 8, 8), np.float32),
    "all images equal": np.repeat(IMAGES[:1], 24, 0),
    "two images": IMAGES[:2],
    "one image": IMAGES[:1],
    "fewer images than dimensions": IMAGES[:5],
    "half floats": IMAGES.astype(np.float16),
    "a constant column": constant_column(TABLE),
    "nothing but constant columns": np.full((24, 4), 2.0),
    "huge values": TABLE * 1e30,
}


@pytest.mark.parametrize("method, preset", HOW)
@pytest.mark.parametrize("kind", DATA)
def test_a_model_of_degenerate_data_is_finite(method, preset, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dim = 8 if kind.startswith("fewer") else 3
        run = fit(DATA[kind], method=method, preset=preset, latent_dim=dim, **TINY)
        assert np.isfinite(run.sample(3, seed=0)[0]).all()
        if run.has_codes:
            assert np.isfinite(run.method.codes.numpy()).all()
            assert np.isfinite(run.encode(run.reconstruct())[2]).all()


@pytest.mark.parametrize("method, preset", HOW)
def test_a_class_may_have_a_single_image(method, preset):
    run = fit(IMAGES, np.arange(24) == 7, method=method, preset=preset, latent_dim=3, conditional=True, **TINY)
    assert np.isfinite(run.sample(3, label="True", seed=0)[0]).all()


def test_values_too_large_to_standardise_are_refused_with_their_column():
    table = TABLE.copy()
    table[3, 2] = 1e300
    with pytest.raises(InputError, match=r"column 2 holds values up to 1e\+300, too large to standardise"):
        data.from_array(table)


def test_images_outside_their_range_are_refused_with_their_place():
    with pytest.raises(InputError, match=r"pixels must lie in \[0, 1\]"):
        data.from_array(IMAGES * 1e6)


@pytest.mark.parametrize("seed", [-1, 2**64, 10**30])
def test_a_seed_that_no_generator_takes_is_refused(seed):
    with pytest.raises(InputError, match="seed must be "):
        fit(IMAGES, seed=seed, **TINY)
    run = fit(IMAGES, seed=2**64 - 1, **TINY)
    with pytest.raises(InputError, match="seed must be from 0 to 18446744073709551615"):
        run.sample(2, seed=seed)


def test_a_device_without_numbers_is_refused(tmp_path, capsys):
    np.save(tmp_path / "x.npy", IMAGES)
    assert main(["train", str(tmp_path / "x.npy"), "--device", "meta", "--out", str(tmp_path / "run")]) == 2
    assert "'meta' can't be used" in capsys.readouterr().err


def test_two_images_can_be_evaluated(tmp_path, capsys):
    np.save(tmp_path / "x.npy", IMAGES[:2])
    quick = ["--generator", "mlp", "--width", "8", "--epochs", "2"]
    assert main(["train", str(tmp_path / "x.npy"), "--out", str(tmp_path / "run"), *quick]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--samples", "10"]) == 0
    assert "left out: scores of codes need at least 4 training samples" in capsys.readouterr().out


def test_equal_images_may_be_assigned_among_candidates():
    run = fit(np.repeat(IMAGES[:1], 200, 0), strategy="candidates", candidates=4, every=1, **TINY)
    assert torch.equal(run.method.permutation.sort().values, torch.arange(len(run.method.codes)))
