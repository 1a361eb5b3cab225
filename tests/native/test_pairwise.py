"""The compiled pairwise cost: the plain formula in float64, for every instruction set and shape."""

import families
import numpy as np
import pytest
import torch
from scipy.ndimage import correlate1d

native = pytest.importorskip("neurosql._native", reason="the compiled extension is not built")

from neurosql.cost import Cost
from neurosql.data import load
from neurosql.similarity import C1, C2, gaussian_window, window_size

SETS = native.instruction_sets()
TOLERANCE = 1e-6
SHAPES = [
    (1, 28, 28),
    (3, 20, 31),
    (2, 11, 11),
    (1, 11, 40),
    (5, 12, 13),
    (1, 47, 23),
    (1, 1, 1),
    (1, 2, 2),
    (2, 3, 3),
    (1, 4, 9),
    (2, 5, 40),
    (1, 8, 8),
    (1, 9, 10),
    (1, 1, 7),
    (1, 40),
    (3, 11),
    (1, 1),
    (2, 200),
    (1, 12, 14, 13),
    (2, 6, 7, 9),
    (1, 3, 3, 30),
    (1, 1, 5, 6),
    (2, 11, 11, 11),
]


@pytest.fixture(params=SETS, autouse=True)
def instruction_set(request, monkeypatch):
    monkeypatch.setenv("NEUROSQL_ISA", request.param)
    return request.param


def taps_for(shape):
    return gaussian_window(window_size(shape[1:]), torch.float32).numpy()


def pairwise(x, y, a=0.5, b=0.5, taps=None, **options):
    out = np.full((len(x), len(y)), np.nan, np.float32)
    native.pairwise(x, y, taps_for(x.shape[1:]) if taps is None else taps, a, b, out, **options)
    return out


def reference(x, y, a=0.5, b=0.5):
    return Cost(a, b, 0.0).matrix(torch.from_numpy(x).double(), torch.from_numpy(y).double()).numpy()


def pictures(n, shape, seed=0):
    """Smooth pictures with flat parts, as real ones have."""
    noise = np.random.default_rng(seed).random((n, *shape))
    return np.where(noise.cumsum(-1) % 3 < 1, 0.0, noise).astype(np.float32)


def strided_ssim(x, y, stride):
    """SSIM of all pairs at the window positions on a stride, straight from the definition."""
    window = window_size(x.shape[2:])
    taps = gaussian_window(window).numpy()
    inside = tuple(slice(window // 2, length - window // 2, None) for length in x.shape[2:])
    on_stride = (slice(None), slice(None), *(slice(None, None, stride) for _ in inside))

    def smooth(images):
        for axis in range(2, images.ndim):
            images = correlate1d(images, taps, axis=axis)
        return images[(slice(None), slice(None), *inside)][on_stride]

    x, y = x.astype(np.float64), y.astype(np.float64)
    result = np.empty((len(x), len(y)))
    my, vy = smooth(y), smooth(y * y) - smooth(y) ** 2
    for i, image in enumerate(x[:, None]):
        mx = smooth(image)
        vx = smooth(image * image) - mx**2
        covariance = smooth(image * y) - mx * my
        quotient = (2 * mx * my + C1) * (2 * covariance + C2) / ((mx**2 + my**2 + C1) * (vx + vy + C2))
        result[i] = quotient.reshape(len(y), -1).mean(1)
    return result


def test_the_best_instruction_set_is_chosen_unless_one_is_named(monkeypatch, instruction_set):
    assert native.instruction_set() == instruction_set
    monkeypatch.delenv("NEUROSQL_ISA")
    assert native.instruction_set() == SETS[-1]
    assert SETS[0] == "baseline"
    monkeypatch.setenv("NEUROSQL_ISA", "mmx")
    with pytest.raises(ValueError, match=r"NEUROSQL_ISA must be one of baseline.*got 'mmx'"):
        native.instruction_set()
    with pytest.raises(ValueError, match="NEUROSQL_ISA"):
        pairwise(pictures(2, (1, 12, 12)), pictures(2, (1, 12, 12)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_formula_in_float64(shape):
    x, y = pictures(7, shape), pictures(19, shape, seed=1)
    y[:2] = (0.7 * x[:2] + 0.3 * y[:2]).clip(0, 1)
    for a, b in [(0.5, 0.5), (1.0, 0.0), (0.0, 1.0), (0.3, 0.6)]:
        np.testing.assert_allclose(pairwise(x, y, a, b), reference(x, y, a, b), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("n, m", [(0, 5), (5, 0), (0, 0), (1, 1), (1, 17), (33, 1), (5, 16), (17, 31), (70, 50)])
def test_any_number_of_images(n, m):
    x, y = pictures(n, (1, 14, 16)), pictures(m, (1, 14, 16), seed=1)
    out = pairwise(x, y)
    assert out.shape == (n, m)
    np.testing.assert_allclose(out, reference(x, y), rtol=0, atol=TOLERANCE)


def test_more_images_than_one_block_of_rows():
    x, y = pictures(1100, (1, 12, 12)), pictures(20, (1, 12, 12), seed=1)
    np.testing.assert_allclose(pairwise(x, y), reference(x, y), rtol=0, atol=TOLERANCE)


def adversarial(kind, n, shape, seed):
    random = np.random.default_rng(seed)
    noise = random.random((n, *shape))
    level = random.random((n, *[1] * len(shape)))
    images = {
        "noise": noise,
        "black": 0 * noise,
        "white": 0 * noise + 1,
        "constant": 0 * noise + level,
        "nearly flat": level + 1e-3 * (noise - 0.5),
        "nearly white": 1 - 1e-4 * noise,
        "faint": 1e-3 * noise,
        "binary": (noise > 0.5).astype(float),
        "large": 255 * noise,
    }
    return images[kind].astype(np.float32)


KINDS = ["noise", "black", "white", "constant", "nearly flat", "nearly white", "faint", "binary"]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 33, 40), (1, 90), (1, 12, 13, 14)], ids=str)
def test_flat_and_saturated_images_lose_no_digits(shape):
    x = np.concatenate([adversarial(kind, 3, shape, 1) for kind in KINDS])
    y = np.concatenate([adversarial(kind, 5, shape, 2) for kind in KINDS] + [x])
    np.testing.assert_allclose(pairwise(x, y), reference(x, y), rtol=0, atol=TOLERANCE)


FAMILY_SHAPES = [(1, 28, 28), (3, 64, 64), (1, 128, 128), (1, 300), (1, 14, 15, 16)]


@pytest.mark.parametrize("shape", FAMILY_SHAPES, ids=str)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_plausible_images_keep_six_digits(family, shape):
    x = families.images(family, 4, shape, seed=1)
    y = np.concatenate([families.images(family, 14, shape, seed=2), families.images("noise", 2, shape), x])
    exact = reference(x, y)
    np.testing.assert_allclose(pairwise(x, y), exact, rtol=0, atol=TOLERANCE)
    rows, columns = np.divmod(np.random.default_rng(0).permutation(exact.size), len(y))
    np.testing.assert_allclose(pairs(x, y, rows, columns), exact[rows, columns], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 64, 64), (1, 300)], ids=str)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_plausible_images_keep_six_digits_on_a_stride(family, shape):
    x, y = families.images(family, 3, shape, seed=1), families.images(family, 17, shape, seed=2)
    expected = 1 - strided_ssim(x, y, 3)
    np.testing.assert_allclose(pairwise(x, y, 1.0, 0.0, stride=3), expected, rtol=0, atol=2 * TOLERANCE)


def test_images_of_a_larger_range():
    x, y = adversarial("large", 3, (1, 20, 20), 1), adversarial("large", 18, (1, 20, 20), 2)
    np.testing.assert_allclose(pairwise(x, y), reference(x, y), rtol=1e-6)


def test_digits():
    digits = load("mnist-sample", limit=120).x
    x, y = digits[:60], np.concatenate([digits[60:], 0.8 * digits[60:] + 0.1])
    np.testing.assert_allclose(pairwise(x, y), reference(x, y), rtol=0, atol=TOLERANCE)


def test_an_image_costs_nothing_against_itself():
    x = np.concatenate([pictures(20, (2, 30, 21)), adversarial("constant", 9, (2, 30, 21), 0)])
    np.testing.assert_allclose(np.diag(pairwise(x, x)), 0, atol=2e-7)


def test_is_symmetric():
    x, y = pictures(9, (1, 21, 22)), pictures(20, (1, 21, 22), seed=1)
    np.testing.assert_allclose(pairwise(x, y), pairwise(y, x).T, rtol=0, atol=3e-7)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 13, 100])
@pytest.mark.parametrize("shape", [(1, 28, 28), (2, 33, 70), (1, 8, 21), (3, 90), (1, 13, 14, 15)], ids=str)
def test_windows_on_a_stride(shape, stride):
    x, y = pictures(4, shape), pictures(18, shape, seed=1)
    distance = np.abs(x[:, None].astype(np.float64) - y).reshape(len(x), len(y), -1).mean(-1)
    expected = 0.4 * (1 - strided_ssim(x, y, stride)) + 0.6 * distance
    np.testing.assert_allclose(pairwise(x, y, 0.4, 0.6, stride=stride), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 20, 31), (2, 6, 40), (2, 50), (1, 12, 13, 14)], ids=str)
def test_threads_change_no_bit(shape):
    count = 2 + int(np.sqrt(3e6 / np.prod(shape)))  # enough work for threads to start
    x, y = pictures(count + 60, shape), pictures(count + 75, shape, seed=1)
    one = pairwise(x, y, threads=1)
    for threads in (2, 3, 16):
        np.testing.assert_array_equal(pairwise(x, y, threads=threads), one)


def pairs(x, y, rows, columns, a=0.5, b=0.5, **options):
    out = np.full(len(rows), np.nan, np.float32)
    native.pairwise_pairs(x, y, np.asarray(rows), np.asarray(columns), taps_for(x.shape[1:]), a, b, out, **options)
    return out


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 20, 31), (2, 6, 40), (2, 80), (1, 12, 13, 14)], ids=str)
@pytest.mark.parametrize("count", [0, 1, 5, 40, 900])
def test_pairs_are_entries_of_the_matrix(shape, count):
    x, y = pictures(23, shape), pictures(37, shape, seed=1)
    random = np.random.default_rng(count)
    rows, columns = random.integers(0, 23, count), random.integers(0, 37, count)
    dense = pairwise(x, y)
    one = pairs(x, y, rows, columns)
    np.testing.assert_allclose(one, dense[rows, columns], rtol=0, atol=2e-7)
    np.testing.assert_array_equal(pairs(x, y, rows, columns, threads=2), one)


def test_pairs_of_one_row_and_of_a_permutation():
    x, y = pictures(64, (1, 28, 28)), pictures(64, (1, 28, 28), seed=1)
    every = np.arange(64)
    dense = pairwise(x, y)
    np.testing.assert_allclose(pairs(x, y, np.full(64, 3), every), dense[3], rtol=0, atol=2e-7)
    order = np.random.default_rng(0).permutation(64)
    np.testing.assert_allclose(pairs(x, y, every, order), dense[every, order], rtol=0, atol=2e-7)
    for a, b in [(1.0, 0.0), (0.0, 1.0)]:
        expected = pairwise(x, y, a, b)[every, order]
        np.testing.assert_allclose(pairs(x, y, every, order, a, b), expected, rtol=0, atol=2e-7)


def test_torch_tensors_and_read_only_arrays_are_taken():
    x, y = pictures(3, (1, 12, 12)), pictures(4, (1, 12, 12), seed=1)
    out = torch.empty(3, 4)
    native.pairwise(torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(taps_for((1, 12, 12))), 0.5, 0.5, out)
    x.flags.writeable = False
    np.testing.assert_array_equal(out.numpy(), pairwise(x, y))


def arguments(**changes):
    given = dict(
        x=pictures(3, (1, 12, 14)),
        y=pictures(4, (1, 12, 14), seed=1),
        taps=taps_for((1, 12, 14)),
        a=0.5,
        b=0.5,
        out=np.empty((3, 4), np.float32),
    )
    return given | changes


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "error, changes",
    [
        (TypeError, dict(x=np.zeros((3, 1, 12, 14)))),
        (TypeError, dict(x=np.zeros((3, 1, 14, 12), np.float32).swapaxes(2, 3))),
        (TypeError, dict(x="pictures")),
        (TypeError, dict(taps=np.ones(11))),
        (TypeError, dict(taps=np.ones((1, 11), np.float32))),
        (TypeError, dict(out=np.empty((3, 4)))),
        (TypeError, dict(out=np.empty(12, np.float32))),
        (TypeError, dict(out=read_only(np.empty((3, 4), np.float32)))),
        (TypeError, dict(out=np.empty((4, 3), np.float32).T)),
        (TypeError, dict(a="half")),
        (TypeError, dict(stride=1.5)),
        (ValueError, dict(a=np.nan)),
        (ValueError, dict(x=np.zeros((3, 12), np.float32))),
        (ValueError, dict(x=np.zeros((3, 1, 2, 2, 12, 14), np.float32))),
        (ValueError, dict(x=np.zeros((3, 2, 12, 14), np.float32))),
        (ValueError, dict(x=np.zeros((3, 1, 12, 15), np.float32))),
        (ValueError, dict(x=np.zeros((3, 1, 12), np.float32))),
        (ValueError, dict(x=np.zeros((3, 0, 12, 14), np.float32), y=np.zeros((4, 0, 12, 14), np.float32))),
        (ValueError, dict(x=np.zeros((3, 1, 0, 14), np.float32), y=np.zeros((4, 1, 0, 14), np.float32))),
        (ValueError, dict(x=np.zeros((3, 1, 9, 14), np.float32), y=np.zeros((4, 1, 9, 14), np.float32))),
        (ValueError, dict(out=np.empty((4, 3), np.float32))),
        (ValueError, dict(taps=np.full(4, 0.25, np.float32))),
        (ValueError, dict(taps=np.full(13, 1 / 13, np.float32))),
        (ValueError, dict(taps=np.empty(0, np.float32))),
        (ValueError, dict(taps=np.array([0.2, 0.5, 0.3], np.float32))),
        (ValueError, dict(taps=np.ones(3, np.float32))),
        (ValueError, dict(taps=np.array([np.nan], np.float32))),
        (ValueError, dict(stride=0)),
        (ValueError, dict(stride=-2)),
        (ValueError, dict(threads=0)),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else value.__name__,
)
def test_bad_input_raises(error, changes):
    native.pairwise(**arguments())
    with pytest.raises(error):
        native.pairwise(**arguments(**changes))


@pytest.mark.parametrize(
    "error, changes",
    [
        (ValueError, dict(rows=np.array([0, 3]))),
        (ValueError, dict(rows=np.array([0, -1]))),
        (ValueError, dict(columns=np.array([4, 0]))),
        (ValueError, dict(columns=np.array([0]))),
        (ValueError, dict(out=np.empty(3, np.float32))),
        (TypeError, dict(rows=np.array([0, 1], np.int32))),
        (TypeError, dict(rows=np.array([0.0, 1.0]))),
        (TypeError, dict(out=np.empty((2, 1), np.float32))),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else value.__name__,
)
def test_bad_pairs_raise(error, changes):
    given = arguments(rows=np.array([0, 2]), columns=np.array([3, 0]), out=np.empty(2, np.float32))
    native.pairwise_pairs(**given)
    with pytest.raises(error):
        native.pairwise_pairs(**given | changes)
