r"""Structural similarity: of given pairs, with its gradient, and of all pairs.

SSIM is that of Wang and others (2004) with a Gaussian window of 11 taps per axis, sigma 1.5, data range 1 and biased
variances, averaged over the positions where the window is inside the image:

    SSIM = (2 m_x m_y + C1) (2 s_xy + C2) / ((m_x^2 + m_y^2 + C1) (s_x^2 + s_y^2 + C2)),  C1 = 0.01^2, C2 = 0.03^2

An image that is smaller than the window gets the largest odd window w that fits, with sigma 1.5 w / 11. Arrays are
(n, c, *spatial) with one, two or three spatial axes.

There are three implementations. `ssim`, pair by pair with its gradient, is the reference: it is the training loss, the
score, and what tests compare with scikit-image. `ssim_matrix` and `ssim_matrix_by_windows` are fast paths to the same
values for all pairs, on a CPU and on a GPU. The compiled matrix in native/, if it is built, is faster still.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from neurosql.errors import InputError

C1 = 0.01**2
C2 = 0.03**2
WINDOW = 11
SIGMA = 1.5

# How many generated images, and how many elements in all, one filter pass takes: enough for the matrix products and
# for two threads, few enough that the temporaries stay in the cache (measured at 28, 64 and 128 pixels).
_LANES = 64
_PASS = 400_000

# In float32, E[xy] - E[x] E[y] is off by about 1e-7 of the means' product. SSIM divides that by v_x + v_y + C2, which
# gives at most a product of two factors, mean / root of (v + C2/2), one per image. The root of the factor's sum of
# squares over the positions is the image's risk. A pair is done in float64 if the product of its risks is more than
# this per position. Windows with less variance than _FLAT do not count: their covariance has an exact bound.
_RISKY = 12.0
_FLAT = 1e-15

# Pixels that the paired loss takes at once per thread, so that they stay in the cache.
_PAIRED_PASS = 2**16


def window_size(spatial: Sequence[int]) -> int:
    """The largest odd window of at most 11 taps that fits the spatial shape."""
    smallest = min(spatial)
    return min(WINDOW, smallest if smallest % 2 else smallest - 1) if smallest > 1 else 1


def gaussian_window(size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normalised Gaussian taps, shape (size,), sigma = 1.5 size / 11.

    Rounded taps still have the sum 1: the outermost taps, which have the finest rounding, make up the difference.
    """
    t = torch.arange(size, dtype=torch.float64) - size // 2
    g = torch.exp(-(t**2) / (2 * (SIGMA * size / WINDOW) ** 2))
    taps = (g / g.sum()).to(dtype).double()
    taps[[0, -1]] += (1 - taps.sum()) / min(size, 2)
    return taps.to(dtype)


def _bands(spatial: Sequence[int], like: Tensor, stride: int = 1) -> list[Tensor]:
    """The banded matrix (s - w + 1, s) that applies the window, for each spatial axis of length s.

    With a stride, only every stride-th window position, and row, is kept.
    """
    window = window_size(spatial)
    return [_band(length, window, stride, like.dtype, like.device) for length in spatial]


@lru_cache(maxsize=64)
def _band(length: int, window: int, stride: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # The call may be made in inference mode, but a tensor that outlives it must not be an inference tensor.
    with torch.inference_mode(False):
        band = torch.zeros(length - window + 1, length, dtype=dtype)
        for row in range(len(band)):
            band[row, row : row + window] = gaussian_window(window, dtype)
        return band[::stride].to(device)


def _smooth(x: Tensor, bands: list[Tensor], trailing: int = 0) -> Tensor:
    """Window means over the spatial axes, which are the last ones except for `trailing` axes after them.

    Each axis takes one matrix product, with everything after the axis as columns.
    """
    first = x.ndim - trailing - len(bands)
    for axis in reversed(range(len(bands))):
        before, behind = x.shape[: first + axis], x.shape[first + axis + 1 :]
        length, columns = x.shape[first + axis], math.prod(behind)
        if columns == 1:
            x = x.reshape(*before, length) @ bands[axis].T
        else:
            x = bands[axis] @ x.reshape(*before, length, columns)
        x = x.reshape(*before, len(bands[axis]), *behind)
    return x


class SimilarityLoss(torch.autograd.Function):
    """a (1 - SSIM(x_i, y_i)) + b mean|x_i - y_i|, with the gradient computed along with the value.

    In d = x - y and q = x + y, with means m and variances v over the window,

        SSIM = (1 - m_d^2 / (m_d^2 / 2 + m_q^2 / 2 + C1)) (1 - v_d / (v_d / 2 + v_q / 2 + C2)),

    which takes four filters instead of five, and three more for a gradient. It takes a few images at a time, which stay
    in the cache.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, a: float, b: float) -> Tensor:
        wanted = ctx.needs_input_grad[:2]
        bands = _bands(x.shape[2:], x)
        value = x.new_empty(len(x))
        gradients = [torch.empty_like(x) if needed else None for needed in wanted]
        some = len(x)
        if x.device.type == "cpu":
            some = max(1, _PAIRED_PASS * torch.get_num_threads() // max(1, math.prod(x.shape[1:])))
        for k in range(0, len(x), max(1, some)):
            part = slice(k, k + some)
            out = [None if gradient is None else gradient[part] for gradient in gradients]
            value[part] = _paired_with_gradients(x[part], y[part], a, b, bands, *out)
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("the gradient of SSIM has no gradient of its own: create_graph is not supported")
        scales = [
            None if gradient is None else gradient * upstream.view(-1, *[1] * (gradient.ndim - 1))
            for gradient in ctx.saved_tensors
        ]
        return *scales, None, None


def _paired_with_gradients(
    x: Tensor, y: Tensor, a: float, b: float, bands: list[Tensor], to_x: Tensor | None, to_y: Tensor | None
) -> Tensor:
    """The value of `SimilarityLoss`; its gradients are written to `to_x` and `to_y` if these are given."""
    images = x.new_empty(4, *x.shape)
    torch.add(x, y, out=images[0])
    torch.sub(x, y, out=images[1])
    value = images[1].abs().flatten(1).mean(1).mul_(b)
    sign = images[1].sign() if b and (to_x is not None or to_y is not None) else None
    # Subtracting a constant from an image does not change its variances, but they lose fewer digits.
    shift = images[:2].flatten(3).mean(3).view(2, *x.shape[:2], *[1] * len(bands))
    images[:2] -= shift
    torch.mul(images[:2], images[:2], out=images[2:])
    centred, variances = _smooth(images, bands).split(2)
    variances = torch.addcmul(variances, centred, centred, value=-1).clamp_(min=0)
    means = centred + shift
    squares = means * means
    over_squares = squares.sum(0).mul_(0.5).add_(C1).reciprocal_()
    over_variances = variances.sum(0).mul_(0.5).add_(C2).reciprocal_()
    unlike = squares[1] * over_squares
    unrelated = variances[1] * over_variances
    like, related = 1 - unlike, 1 - unrelated
    similar = like * related
    value.add_(a).sub_(similar.flatten(1).mean(1), alpha=a)
    if to_x is None and to_y is None:
        return value

    over_squares.mul_(related)
    over_variances.mul_(like).mul_(0.5)
    back = x.new_empty(4, *similar.shape)  # gradients: by_q + by_d, by_q - by_d, of v_q and of v_d
    torch.mul(unrelated, over_variances, out=back[2])
    torch.sub(back[2], over_variances, alpha=2, out=back[3])
    by_q = (means[0] * unlike).mul_(over_squares).addcmul_(centred[0], back[2], value=-2)
    by_d = unlike.sub_(2).mul_(means[1]).mul_(over_squares).addcmul_(centred[1], back[3], value=-2)
    torch.add(by_q, by_d, out=back[0])
    torch.sub(by_q, by_d, out=back[1])
    needed = back if to_x is not None and to_y is not None else back[1:] if to_x is None else back[[0, 2, 3]]
    *direct, by_vq, by_vd = _smooth(needed, [band.T for band in bands]).unbind()
    by_vq.mul_(images[0])
    by_vd.mul_(images[1])
    scale = -a / max(1, similar[0].numel())
    share = b / max(1, x[0].numel())
    for to, sum_to, side in ((to_x, direct[0], 1), (to_y, direct[-1], -1)):
        if to is None:
            continue
        sum_to.add_(by_vq, alpha=2).add_(by_vd, alpha=2 * side)
        torch.mul(sum_to, scale, out=to)
        if sign is not None:
            to.add_(sign, alpha=side * share)
    return value


def ssim(x: Tensor, y: Tensor) -> Tensor:
    """Structural similarity of the pairs (x_i, y_i): two (n, c, *spatial) tensors in, (n,) out. Differentiable once."""
    return 1 - similarity_loss(x, y, 1.0, 0.0)


def similarity_loss(x: Tensor, y: Tensor, a: float, b: float) -> Tensor:
    """a (1 - SSIM(x_i, y_i)) + b mean|x_i - y_i| of pairs: two (n, c, *spatial) tensors in, (n,) out."""
    check_spatial(x)
    return SimilarityLoss.apply(x, y, a, b)  # type: ignore[no-untyped-call]


def check_spatial(x: Tensor) -> None:
    """Refuse vectors: SSIM needs a spatial axis."""
    if x.ndim < 3:
        raise InputError(f"SSIM needs a spatial axis, got vectors of shape {tuple(x.shape[1:])}: use l1 or l2")


@dataclass(frozen=True)
class _Statistics:
    """What SSIM needs to know about images at each window, besides the mean of products."""

    pixels: Tensor  # minus a constant per image and channel
    mean: Tensor  # of these pixels
    twice_mean: Tensor  # of the images themselves
    square: Tensor  # of the mean of the images themselves
    deviation: Tensor
    variance: Tensor
    risk: Tensor  # (images,): see _RISKY


def _statistics(images: Tensor, bands: list[Tensor], trailing: int = 0) -> _Statistics:
    """Statistics of images (n, c, *spatial), or (c, *spatial, n) with one trailing axis: in float64, rounded once."""
    first = 2 - trailing
    spatial = tuple(range(first, first + len(bands)))
    flat = images.flatten(first, first + len(bands) - 1)
    sample = flat.index_select(
        first, torch.arange(0, flat.shape[first], max(1, flat.shape[first] // 61), device=flat.device)
    )
    shift = sample.median(first).values
    for axis in spatial:
        shift = shift.unsqueeze(axis)
    pixels = images - shift
    exact, exact_bands = pixels.double(), [band.double() for band in bands]
    mean = _smooth(exact, exact_bands, trailing)
    variance = _smooth(exact.square(), exact_bands, trailing).addcmul_(mean, mean, value=-1).clamp_(min=0)
    factor = torch.where(variance > _FLAT, mean.square() / (variance + C2 / 2), 0)
    risk = factor.movedim(-1, 0).flatten(1) if trailing else factor.flatten(1)
    true_mean = mean + shift
    mean, twice, square, deviation, variance = (
        t.to(images) for t in (mean, 2 * true_mean, true_mean.square(), variance.sqrt(), variance)
    )
    return _Statistics(pixels, mean, twice, square, deviation, variance, risk.sum(1).sqrt())


def _similarities(x: Sequence[Tensor], y: _Statistics, bands: list[Tensor]) -> Tensor:
    """Sums of SSIM over the positions, (rows, lanes), from what `_of_rows` returns."""
    twice_pixels, twice_mean, true_mean, square, twice_deviation, variance = x
    covariance = _smooth(twice_pixels * y.pixels, bands, trailing=1).addcmul_(y.mean, twice_mean, value=-1)
    # It is at most the product of the deviations, which are exact: this removes the rounding errors in flat areas.
    bound = y.deviation * twice_deviation
    torch.clamp(covariance, -bound, bound, out=covariance)
    luminance = torch.mul(y.twice_mean, true_mean, out=bound).add_(C1)
    quotient = covariance.add_(C2).mul_(luminance)
    quotient.div_(torch.add(y.square, square, out=bound).mul_(y.variance + variance))
    return quotient.sum(tuple(range(1, quotient.ndim - 1)))


def _of_rows(x: _Statistics) -> list[Tensor]:
    """Pixels and statistics with a last axis for the lanes, and with SSIM's constants and factors included."""
    doubled = (2 * x.pixels, 2 * x.mean, x.twice_mean / 2, x.square + C1, 2 * x.deviation, x.variance + C2)
    return [part.unsqueeze(-1) for part in doubled]


def ssim_matrix(x: Tensor, y: Tensor, memory: int, stride: int = 1) -> Tensor:
    """SSIM of all pairs. Means and variances are computed once per image, only the cross term once per pair.

    The generated images are along the last axis, (c, *spatial, lanes). Along every axis, the window is then a product
    of a banded matrix with a wide one, and all that follows runs over contiguous lanes.
    """
    check_spatial(x)
    bands = _bands(x.shape[2:], x, stride)
    exact_bands = _bands(x.shape[2:], x[:0].double(), stride)
    positions = x.shape[1] * math.prod(len(band) for band in bands)
    pixels = math.prod(x.shape[1:])
    element = x.element_size()
    lanes = max(1, min(_LANES, memory // (2 * element * (4 * pixels + 12 * positions)), len(y)))
    together = max(1, min(_PASS, memory // (10 * element)) // (lanes * pixels))
    rows = max(1, memory // (3 * element * (2 * pixels + 8 * positions)))
    safe = _RISKY * positions
    result = x.new_empty(len(x), len(y))

    for i in range(0, len(x), rows):
        block = _statistics(x[i : i + rows], bands)
        of_rows = _of_rows(block)
        for k in range(0, len(y), lanes):
            generated = y[k : k + lanes].movedim(0, -1).contiguous()
            of_lanes = _statistics(generated, bands, trailing=1)
            for j in range(0, len(block.pixels), together):
                some = slice(j, j + together)
                out = result[i : i + rows][some, k : k + lanes]
                out.copy_(_similarities([part[some] for part in of_rows], of_lanes, bands))
                risk = block.risk[some, None] * of_lanes.risk > safe
                if x.dtype == torch.float64 or not risk.any():
                    continue
                a, b = risk.any(1).nonzero()[:, 0], risk.any(0).nonzero()[:, 0]
                again = _statistics(x[i + j + a].double(), exact_bands)
                against = _statistics(generated[..., b].double(), exact_bands, trailing=1)
                out[a[:, None], b] = _similarities(_of_rows(again), against, exact_bands).to(out)
    return result.div_(positions)


def ssim_matrix_by_windows(x: Tensor, y: Tensor, memory: int, stride: int = 1) -> Tensor:
    """SSIM of all pairs with one matrix product per window position, (n, w^r) times (w^r, m), which suits a GPU.

    Each window is centred by its own mean and weighted by the root of the window, so that the product is the
    covariance itself: nothing cancels, and reduced precision does little harm.
    """
    check_spatial(x)
    size = window_size(x.shape[2:])
    rank = x.ndim - 2
    roots = gaussian_window(size).sqrt()
    weights = roots
    for _ in range(rank - 1):
        weights = weights.unsqueeze(-1) * roots
    weights = weights.flatten().to(x)

    def windows(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centred windows (positions, n, w^r), means and variances (positions, n)."""
        patches = images
        for axis in range(2, 2 + rank):
            patches = patches.unfold(axis, size, stride)
        patches = patches.flatten(2 + rank).movedim(0, -2).flatten(0, rank)
        mean = (patches * weights.square()).sum(-1)
        centred = (patches - mean.unsqueeze(-1)) * weights
        return centred, mean, centred.square().sum(-1)

    def positions_of(images: Tensor) -> int:
        return images.shape[1] * math.prod((s - size) // stride + 1 for s in images.shape[2:])

    positions, element = positions_of(x), x.element_size()
    rows = max(1, memory // (8 * element * positions * size**rank))
    result = x.new_empty(len(x), len(y))
    for i in range(0, len(x), rows):
        a, mx, vx = windows(x[i : i + rows])
        for k in range(0, len(y), rows):
            b, my, vy = windows(y[k : k + rows])
            total = x.new_zeros(a.shape[1], b.shape[1])
            together = max(1, memory // (16 * element * total.numel()))
            for p in range(0, positions, together):
                some = slice(p, p + together)
                covariance = a[some] @ b[some].mT
                m1, m2 = mx[some].unsqueeze(2), my[some].unsqueeze(1)
                quotient = (2 * m1 * m2 + C1) * (2 * covariance + C2)
                quotient /= (m1 * m1 + m2 * m2 + C1) * (vx[some].unsqueeze(2) + vy[some].unsqueeze(1) + C2)
                total += quotient.sum(0)
            result[i : i + rows, k : k + rows] = total
    return result.div_(positions)
