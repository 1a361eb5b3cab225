"""The cost: one l, paired and pairwise, with SSIM as others compute it."""

import os
import subprocess
import sys

import families
import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity

from neurosql import InputError
from neurosql.cost import NAMES, Cost, matrix
from neurosql.similarity import (
    C1,
    C2,
    _bands,
    _smooth,
    gaussian_window,
    ssim,
    ssim_matrix,
    ssim_matrix_by_windows,
    window_size,
)

SHAPES = [(1, 28, 28), (3, 20, 31), (1, 8, 8), (2, 5, 40), (1, 40), (3, 13), (1, 12, 14, 13), (2, 6, 7, 9)]
COLOURED = [(3, 20, 31), (3, 9, 8), (3, 2, 13), (3, 1, 1)]
EVERY = [(name, shape) for name in NAMES for shape in (COLOURED if name == "colour" else SHAPES)]


def image(name, height, width):
    """A shape that a cost has: of one channel, or of three where it is of colour."""
    return (3 if name == "colour" else 1, height, width)


def pictures(n, shape, seed=0):
    """Smooth pictures with flat parts, as real ones have."""
    random = np.random.default_rng(seed)
    noise = random.random((n, *shape))
    return torch.from_numpy(np.where(noise.cumsum(-1) % 3 < 1, 0.0, noise)).float()


def reference_ssim(x, y):
    """scikit-image's, with the window of this module."""
    x, y = x.double().numpy(), y.double().numpy()
    w = window_size(x.shape[1:])
    return structural_similarity(
        x,
        y,
        win_size=w,
        gaussian_weights=True,
        sigma=1.5 * w / 11,
        use_sample_covariance=False,
        data_range=1.0,
        channel_axis=0,
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_ssim_equals_scikit_image(shape):
    x, y = pictures(6, shape), pictures(6, shape, seed=1)
    y[:2] = (0.7 * x[:2] + 0.3 * y[:2]).clip(0, 1)
    expected = [reference_ssim(a, b) for a, b in zip(x, y)]
    assert ssim(x.double(), y.double()).numpy() == pytest.approx(expected, abs=1e-10)
    assert ssim(x, y).numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("side, window", [(28, 11), (11, 11), (10, 9), (8, 7), (3, 3), (2, 1), (1, 1)])
def test_window_is_the_largest_odd_one_that_fits(side, window):
    assert window_size((64, side)) == window
    taps = gaussian_window(window)
    assert taps.sum().item() == pytest.approx(1)
    if window > 1:
        ratio = (taps[window // 2 + 1] / taps[window // 2]).log().item()
        assert ratio == pytest.approx(-1 / (2 * (1.5 * window / 11) ** 2))


@pytest.mark.parametrize("name, shape", EVERY)
def test_matrix_equals_the_paired_loss(name, shape):
    x, y = pictures(7, shape), pictures(5, shape, seed=1)
    cost = Cost.named(name)
    rows = torch.stack([cost.paired(image.expand_as(y), y) for image in x])
    assert torch.allclose(cost.matrix(x, y), rows, atol=2e-6)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_path_for_a_gpu_equals_the_one_for_a_cpu(shape, stride):
    x, y = pictures(9, shape), pictures(7, shape, seed=1)
    for memory in (10_000, 10**8):
        by_windows = ssim_matrix_by_windows(x, y, memory, stride)
        assert torch.allclose(by_windows, ssim_matrix(x, y, memory, stride), atol=1e-5)
        exact = ssim_matrix(x.double(), y.double(), memory, stride)
        assert torch.allclose(by_windows.double(), exact, atol=1e-6)


PLAUSIBLE = [(1, 28, 28), (3, 64, 64), (1, 300), (1, 12, 12, 13)]


@pytest.mark.parametrize(
    "name, shape", [*(("ssim+l1", shape) for shape in PLAUSIBLE), ("colour", (3, 64, 64))], ids=str
)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_plausible_images_keep_six_digits(family, name, shape):
    x = torch.from_numpy(families.images(family, 3, shape, seed=1))
    y = torch.cat([torch.from_numpy(families.images(family, 6, shape, seed=2)), x])
    cost = Cost.named(name)
    exact = torch.stack([cost.paired(image.expand_as(y), y.double()) for image in x.double()])
    largest = max(1.0, float(exact.max()))
    assert (cost.matrix(x, y) - exact).abs().max() < 1e-6 * largest
    for similarity in (ssim_matrix, ssim_matrix_by_windows):
        difference = similarity(x, y, 2**28) - ssim_matrix(x.double(), y.double(), 2**28)
        assert (0.5 * difference).abs().max() < 1e-6  # half of it is in the cost
    # The training loss is plain float32, and so a little less exact.
    rows = torch.stack([cost.paired(image.expand_as(y), y) for image in x])
    assert (rows - exact).abs().max() < 3e-5 * largest


@pytest.mark.parametrize("stride", [2, 3, 50])
def test_a_stride_averages_every_stride_th_window(stride):
    x, y = pictures(3, (2, 20, 23)), pictures(4, (2, 20, 23), seed=1)
    taps = gaussian_window(11).numpy()
    window = taps[:, None] * taps

    def means(image):
        views = np.lib.stride_tricks.sliding_window_view(image, (11, 11))[::stride, ::stride]
        return (views * window).sum((-1, -2))

    def reference(a, b):
        values = []
        for p, q in zip(a.double().numpy(), b.double().numpy()):
            mp, mq = means(p), means(q)
            vp, vq, vpq = means(p * p) - mp**2, means(q * q) - mq**2, means(p * q) - mp * mq
            values.append((2 * mp * mq + 1e-4) * (2 * vpq + 9e-4) / ((mp**2 + mq**2 + 1e-4) * (vp + vq + 9e-4)))
        return np.mean(values)

    expected = [[0.5 * (1 - reference(a, b)) + 0.5 * float((a - b).abs().mean()) for b in y] for a in x]
    assert matrix(x, y, stride=stride).numpy() == pytest.approx(np.array(expected), abs=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_chosen_pairs_are_entries_of_the_matrix(name):
    x, y = pictures(6, image(name, 14, 12)), pictures(9, image(name, 14, 12), seed=1)
    random = np.random.default_rng(0)
    rows, columns = torch.from_numpy(random.integers(0, 6, 40)), torch.from_numpy(random.integers(0, 9, 40))
    cost = Cost.named(name)
    for memory in (1000, 10**8):
        found = cost.entries(x, y, rows, columns, memory=memory)
        assert torch.allclose(found, cost.matrix(x, y)[rows, columns], atol=2e-6)
    assert cost.entries(x, y, rows[:0], columns[:0]).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_matrix_does_not_depend_on_the_memory_bound(name):
    x, y = pictures(40, image(name, 28, 28)), pictures(150, image(name, 28, 28), seed=1)
    cost = Cost.named(name)
    generous = cost.matrix(x, y)
    for memory in (1, 100_000, 3_000_000):
        assert torch.allclose(cost.matrix(x, y, memory=memory), generous, atol=2e-6)


GROWTH = """
import re, sys, torch
from pathlib import Path
from neurosql.cost import Cost

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

name, channels = sys.argv[1], 3 if sys.argv[1] == "colour" else 1
x, y = torch.rand(300, channels, 96, 96), torch.rand(8, channels, 96, 96)
cost = Cost.named(name)
cost.matrix(x[:2], y[:2])
for bound in sys.argv[2:]:
    # Forget the peak so far: what came before may have needed more than is in use now.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    cost.matrix(x, y, memory=int(bound) * 2**20)
    print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads a process's peak memory as Linux tells it")
@pytest.mark.parametrize("name", ["ssim+l1", "colour"])
def test_temporaries_of_the_plain_path_stay_under_the_memory_bound(name):
    """How far the peak memory of a process grows, in MiB: about the bound, where that is what limits it."""
    environment = os.environ | {"NEUROSQL_NATIVE": "0", "OMP_NUM_THREADS": "1"}
    told = subprocess.check_output([sys.executable, "-c", GROWTH, name, "4", "400"], env=environment)
    tight, wide = (int(kibibytes) / 1024 for kibibytes in told.split())
    assert tight < 12
    assert wide > 2 * tight + 30


@pytest.mark.parametrize("name", NAMES)
def test_identical_images_cost_nothing_and_the_cost_is_symmetric(name):
    x, y = pictures(4, image(name, 16, 16)), pictures(4, image(name, 16, 16), seed=1)
    cost = Cost.named(name)
    assert torch.allclose(cost.paired(x, x), torch.zeros(4), atol=1e-6)
    assert (cost.paired(x, y) > 0.01).all()
    assert torch.allclose(cost.matrix(x, y), cost.matrix(y, x).T, atol=1e-6)


def test_l1_and_l2_are_means_over_pixels():
    x, y = torch.zeros(1, 3, 4, 5), torch.full((1, 3, 4, 5), 0.5)
    assert Cost.named("l1").paired(x, y).item() == pytest.approx(0.5)
    assert Cost.named("l2").paired(x, y).item() == pytest.approx(0.25)
    half = 0.5 * (1 - ssim(x, y)) + 0.25
    assert Cost.named("ssim+l1").paired(x, y).item() == pytest.approx(half.item())


@pytest.mark.parametrize("name", NAMES)
def test_paired_loss_has_the_right_gradient(name):
    x = pictures(2, image(name, 9, 10)).double()
    y = pictures(2, image(name, 9, 10), seed=1).double().mul(0.8).add(0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: Cost.named(name).paired(x, y), (y,), atol=1e-6)


def five_filters(x, y):
    """SSIM from the means of x, y, xx, yy and xy, left to autograd."""
    bands = _bands(x.shape[2:], x)
    mx, my, xx, yy, xy = (_smooth(t, bands) for t in (x, y, x * x, y * y, x * y))
    quotient = (2 * mx * my + C1) * (2 * (xy - mx * my) + C2)
    return (quotient / ((mx**2 + my**2 + C1) * (xx - mx**2 + yy - my**2 + C2))).flatten(1).mean(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_analytic_gradient_is_that_of_autograd(shape, monkeypatch):
    monkeypatch.setattr("neurosql.similarity._PAIRED_PASS", 2 * int(np.prod(shape)))  # several passes
    x, y = pictures(5, shape).double().requires_grad_(), pictures(5, shape, seed=1).double().requires_grad_()
    weights = torch.linspace(0.5, 1.5, 5, dtype=torch.float64)
    expected = 0.3 * (1 - five_filters(x, y)) + 0.6 * (x - y).abs().flatten(1).mean(1)
    found = Cost(0.3, 0.6).paired(x, y)
    assert torch.allclose(found, expected, atol=1e-12)
    for inputs in [(x, y), (x,), (y,)]:
        wanted = torch.autograd.grad(expected @ weights, inputs, retain_graph=True)
        only = [t if any(t is i for i in inputs) else t.detach() for t in (x, y)]
        given = torch.autograd.grad(Cost(0.3, 0.6).paired(*only) @ weights, inputs)
        for a, b in zip(given, wanted):
            assert torch.allclose(a, b, atol=1e-12)


def test_both_gradients_pass_the_check_of_finite_differences():
    x = pictures(2, (2, 7, 8)).double().mul(0.7).add(0.2).requires_grad_()
    y = pictures(2, (2, 7, 8), seed=1).double().mul(0.8).add(0.1).requires_grad_()
    assert torch.autograd.gradcheck(Cost(0.4, 0.3, 0.3).paired, (x, y), atol=1e-6)


def test_a_second_derivative_is_refused():
    x, y = pictures(2, (1, 12, 12)), pictures(2, (1, 12, 12), seed=1).requires_grad_()
    with pytest.raises(RuntimeError, match="create_graph is not supported"):
        torch.autograd.grad(Cost().paired(x, y).sum(), y, create_graph=True)


def test_vectors_have_l1_and_l2_but_no_ssim():
    x, y = torch.randn(5, 4), torch.randn(6, 4)
    assert torch.allclose(matrix(x, y, "l2"), torch.cdist(x, y).square() / 4, atol=1e-5)
    assert torch.allclose(matrix(x, y, "l1"), torch.cdist(x, y, p=1) / 4, atol=1e-5)
    with pytest.raises(InputError, match="use l1 or l2"):
        matrix(x, y)


def test_squared_distances_of_vectors_far_from_zero_keep_their_digits():
    x, y = torch.randn(50, 3) + 1000, torch.randn(50, 3) + 1000
    exact = torch.cdist(x.double(), y.double()).square() / 3
    assert torch.allclose(matrix(x, y, "l2").double(), exact, rtol=1e-3, atol=1e-3)


def test_bad_arguments_are_refused():
    x = torch.zeros(2, 1, 8, 8)
    with pytest.raises(InputError, match="one shape"):
        matrix(x, torch.zeros(2, 1, 8, 9))
    with pytest.raises(InputError, match="one shape"):
        Cost().paired(x, torch.zeros(3, 1, 8, 8))
    with pytest.raises(InputError, match="memory"):
        matrix(x, x, memory=0)
    with pytest.raises(InputError, match="'l3'"):
        matrix(x, x, "l3")


def test_empty_sets_give_empty_matrices():
    x = torch.zeros(0, 1, 12, 12)
    assert matrix(x, torch.zeros(3, 1, 12, 12)).shape == (0, 3)
    assert matrix(torch.zeros(3, 1, 12, 12), x).shape == (3, 0)
