r"""The loss l, once: paired as a training loss and pairwise as a cost matrix.

A :class:`Cost` is a weighted sum of three comparisons of x and y, each a mean over channels and positions:

    l(x, y) = a (1 - SSIM(x, y)) + b mean|x - y| + c mean|x - y|^2

:meth:`Cost.paired` gives l(x_i, y_i) and is differentiable; :meth:`Cost.matrix` gives C[i, k] = l(x_i, y_k). Both
evaluate the same formula, so the objective that the generator descends is the one that the assignment descends.

SSIM is that of Wang and others (2004) with a Gaussian window of 11 taps an axis, sigma 1.5, data range 1, biased
variances, averaged over the positions where the window lies inside the image:

    SSIM = (2 m_x m_y + C1) (2 s_xy + C2) / ((m_x^2 + m_y^2 + C1) (s_x^2 + s_y^2 + C2)),  C1 = 0.01^2, C2 = 0.03^2

An image that is smaller than the window gets the largest odd window w that fits, with sigma 1.5 w / 11. Arrays are
(n, c, *spatial) with one, two or three spatial axes, or (n, p) vectors, which have no SSIM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neurosql import engine
from neurosql.errors import InputError

C1 = 0.01**2
C2 = 0.03**2
WINDOW = 11
SIGMA = 1.5

NAMES = ("ssim+l1", "ssim", "l1", "l2")
DEFAULT_MEMORY = 256 * 2**20

# Generated images, and elements in all, that one filter pass takes together: wide enough for the matrix products and
# for two threads, narrow enough that the temporaries stay in the cache (measured at 28, 64 and 128 pixels).
_LANES = 64
_PASS = 400_000


def window_size(spatial: Sequence[int]) -> int:
    """The largest odd window of at most 11 taps that fits the spatial shape."""
    smallest = min(spatial)
    return min(WINDOW, smallest if smallest % 2 else smallest - 1) if smallest > 1 else 1


def gaussian_window(size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normalised Gaussian taps, shape (size,), sigma = 1.5 size / 11."""
    t = torch.arange(size, dtype=torch.float64) - size // 2
    g = torch.exp(-(t**2) / (2 * (SIGMA * size / WINDOW) ** 2))
    return (g / g.sum()).to(dtype)


def _bands(spatial: Sequence[int], like: Tensor, stride: int = 1) -> list[Tensor]:
    """For each spatial axis of length s the banded matrix (s - w + 1, s) that applies the window to it.

    With a stride only every stride-th window position, and row, is kept.
    """
    taps = gaussian_window(window_size(spatial))
    bands = []
    for length in spatial:
        out = length - len(taps) + 1
        band = torch.zeros(out, length, dtype=torch.float64)
        for row in range(out):
            band[row, row : row + len(taps)] = taps
        bands.append(band[::stride].to(like))
    return bands


def _smooth(x: Tensor, bands: list[Tensor], trailing: int = 0) -> Tensor:
    """Window means over the spatial axes, which are the last ones but for `trailing` axes behind them.

    Each axis is one matrix product: everything behind the axis is its columns.
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


def ssim(x: Tensor, y: Tensor) -> Tensor:
    """Structural similarity of the pairs (x_i, y_i): two (n, c, *spatial) tensors in, (n,) out. Differentiable."""
    _check_ssim(x)
    bands = _bands(x.shape[2:], x)
    # Four maps are enough, since only the sum of the squares is used, and x's own needs no gradient in training.
    mx, my, squares, xy = (_smooth(each, bands) for each in (x, y, x * x + y * y, x * y))
    mm = mx * my
    m2 = mx * mx + my * my
    quotient = (2 * mm + C1) * (2 * (xy - mm) + C2) / ((m2 + C1) * (squares - m2 + C2))
    return quotient.flatten(1).mean(1)


@dataclass(frozen=True)
class Cost:
    """l(x, y) = ssim (1 - SSIM) + l1 mean|x - y| + l2 mean|x - y|^2, with these three weights."""

    ssim: float = 0.5
    l1: float = 0.5
    l2: float = 0.0

    @classmethod
    def named(cls, name: str) -> Cost:
        """The cost of a name: `ssim+l1` (one half of each, the paper's), `ssim`, `l1` or `l2`."""
        weights = {
            "ssim+l1": (0.5, 0.5, 0.0),
            "ssim": (1.0, 0.0, 0.0),
            "l1": (0.0, 1.0, 0.0),
            "l2": (0.0, 0.0, 1.0),
        }
        if name not in weights:
            raise InputError(f"cost must be one of {', '.join(NAMES)}, got {name!r}")
        return cls(*weights[name])

    def paired(self, x: Tensor, y: Tensor) -> Tensor:
        """l(x_i, y_i) for two tensors of one shape (n, ...): (n,), differentiable in both."""
        if x.shape != y.shape:
            raise InputError(f"paired images must have one shape, got {tuple(x.shape)} and {tuple(y.shape)}")
        total = x.new_zeros(len(x))
        if self.ssim:
            total = total + self.ssim * (1 - ssim(x, y))
        difference = (x - y).flatten(1)
        if self.l1:
            total = total + self.l1 * difference.abs().mean(1)
        if self.l2:
            total = total + self.l2 * difference.square().mean(1)
        return total

    @torch.no_grad()
    def matrix(self, x: Tensor, y: Tensor, memory: int = DEFAULT_MEMORY, stride: int = 1) -> Tensor:
        """C[i, k] = l(x_i, y_k) for x (n, ...) and y (m, ...): (n, m), on x's device.

        The temporaries take at most about `memory` bytes besides the result, whatever n and m are. A `stride` above 1
        averages SSIM over every stride-th window position only: cheaper, and no longer quite the paired loss.
        """
        if x.shape[1:] != y.shape[1:]:
            raise InputError(f"images must have one shape, got {tuple(x.shape[1:])} and {tuple(y.shape[1:])}")
        if memory <= 0:
            raise InputError(f"memory must be a positive number of bytes, got {memory}")
        if stride < 1:
            raise InputError(f"stride must be at least 1, got {stride}")
        compiled = _compiled(x, y) if self.ssim else None
        if compiled is not None:
            _check_ssim(x)
            result = x.new_empty(len(x), len(y))
            taps = gaussian_window(window_size(x.shape[2:]), torch.float32).numpy()
            images = x.contiguous().numpy(), y.contiguous().numpy()
            compiled.pairwise(*images, taps, self.ssim, self.l1, result.numpy(), stride, torch.get_num_threads())
            return self._add_differences(result, x, y, memory, l1=0.0)
        if self.ssim:
            similarity = _ssim_matrix if x.device.type == "cpu" else _ssim_matrix_by_windows
            result = similarity(x, y, memory, stride).mul_(-self.ssim).add_(self.ssim)
        else:
            result = x.new_zeros(len(x), len(y))
        return self._add_differences(result, x, y, memory, self.l1)

    @torch.no_grad()
    def pairs(self, x: Tensor, y: Tensor, rows: Tensor, columns: Tensor, memory: int = DEFAULT_MEMORY) -> Tensor:
        """l(x_i, y_k) for chosen pairs (i, k), given as two int64 tensors of one length: (length,)."""
        if x.shape[1:] != y.shape[1:]:
            raise InputError(f"images must have one shape, got {tuple(x.shape[1:])} and {tuple(y.shape[1:])}")
        compiled = _compiled(x, y) if self.ssim and not self.l2 else None
        if compiled is not None:
            _check_ssim(x)
            result = x.new_empty(len(rows))
            taps = gaussian_window(window_size(x.shape[2:]), torch.float32).numpy()
            images = x.contiguous().numpy(), y.contiguous().numpy()
            chosen = rows.contiguous().numpy(), columns.contiguous().numpy()
            threads = torch.get_num_threads()
            compiled.pairwise_pairs(*images, *chosen, taps, self.ssim, self.l1, result.numpy(), threads)
            return result
        chunk = max(1, memory // (16 * x.element_size() * max(1, math.prod(x.shape[1:]))))
        parts = [self.paired(x[i], y[k]) for i, k in zip(rows.split(chunk), columns.split(chunk))]
        return torch.cat(parts) if parts else x.new_empty(0)

    def _add_differences(self, result: Tensor, x: Tensor, y: Tensor, memory: int, l1: float) -> Tensor:
        """Add the L1 and L2 parts to the matrix, in place."""
        if not l1 and not self.l2:
            return result
        pixels = max(1, math.prod(x.shape[1:]))
        flat_x, flat_y = x.flatten(1), y.flatten(1)
        rows = max(1, memory // (8 * max(1, len(y)) * x.element_size()))
        if self.l2:
            # |x - y|^2 = |x|^2 + |y|^2 - 2 <x, y> loses digits where the norms are large: centre first.
            centre = flat_x.mean(0) if len(x) else 0.0
            flat_y2 = flat_y - centre
            norms = flat_y2.square().sum(1)
        for block, out in zip(flat_x.split(rows), result.split(rows)):
            if l1:
                out.add_(torch.cdist(block, flat_y, p=1.0), alpha=l1 / pixels)
            if self.l2:
                block = block - centre
                squares = torch.addmm(norms + block.square().sum(1, keepdim=True), block, flat_y2.T, alpha=-2)
                out.add_(squares.clamp_(min=0), alpha=self.l2 / pixels)
        return result


def matrix(x: Tensor, y: Tensor, cost: str | Cost = "ssim+l1", memory: int = DEFAULT_MEMORY, stride: int = 1) -> Tensor:
    """The cost matrix C[i, k] = l(x_i, y_k) for images in [0, 1], (n, c, *spatial), or vectors, (n, p)."""
    return (Cost.named(cost) if isinstance(cost, str) else cost).matrix(x, y, memory, stride)


def _check_ssim(x: Tensor) -> None:
    if x.ndim < 3:
        raise InputError(f"SSIM needs a spatial axis, got vectors of shape {tuple(x.shape[1:])}: use l1 or l2")


def _compiled(x: Tensor, y: Tensor) -> Any | None:
    """The extension, for tensors that it can take."""
    fits = all(t.device.type == "cpu" and t.dtype == torch.float32 and 3 <= t.ndim <= 5 for t in (x, y))
    # Its quotients share a division, which overflows for pixels far outside [0, 1]; NaN fails this too.
    return engine.native() if fits and all(_largest(t) <= 100 for t in (x, y)) else None


def _largest(x: Tensor) -> float:
    return max(-float(x.min()), float(x.max())) if x.numel() else 0.0


def _ssim_matrix(x: Tensor, y: Tensor, memory: int, stride: int = 1) -> Tensor:
    """SSIM of all pairs. Means and variances are computed once an image, only the cross term once a pair.

    The generated images lie in the last axis, (c, *spatial, lanes): the window is then a product of a banded matrix
    with a wide one along every axis, and all that follows runs over contiguous lanes.
    """
    _check_ssim(x)
    bands = _bands(x.shape[2:], x, stride)
    positions = x.shape[1] * math.prod(len(band) for band in bands)
    pixels = math.prod(x.shape[1:])
    element = x.element_size()
    lanes = max(1, min(_LANES, memory // (2 * element * (3 * pixels + 8 * positions)), len(y)))
    together = max(1, min(_PASS, memory // (10 * element)) // (lanes * pixels))
    rows = max(1, memory // (4 * element * (pixels + 2 * positions)))
    axes = tuple(range(1, x.ndim))
    result = x.new_empty(len(x), len(y))

    for i in range(0, len(x), rows):
        block = x[i : i + rows]
        mx = _smooth(block, bands)
        vx = _smooth(block * block, bands).addcmul_(mx, mx, value=-1).add_(C2).unsqueeze(-1)
        mx2 = (mx * mx).add_(C1).unsqueeze(-1)
        twice_mx = (2 * mx).unsqueeze(-1)
        for k in range(0, len(y), lanes):
            yt = y[k : k + lanes].movedim(0, -1).contiguous()
            my = _smooth(yt, bands, trailing=1)
            my2 = my * my
            vy = _smooth(yt * yt, bands, trailing=1).sub_(my2)
            for j in range(0, len(block), together):
                some = slice(j, j + together)
                xy = _smooth(block[some].unsqueeze(-1) * yt, bands, trailing=1)
                luminance = (my * twice_mx[some]).add_(C1)
                quotient = xy.mul_(2).add_(C1 + C2).sub_(luminance).mul_(luminance)
                quotient.div_((my2 + mx2[some]).mul_(vy + vx[some]))
                result[i + j : i + j + together, k : k + lanes] = quotient.sum(axes)
    return result.div_(positions)


def _ssim_matrix_by_windows(x: Tensor, y: Tensor, memory: int, stride: int = 1) -> Tensor:
    """SSIM of all pairs with one matrix product a window position, (n, w^r) times (w^r, m): the way for a GPU.

    Each window is centred by its own mean and weighted by the root of the window, so that the product is the
    covariance itself: nothing cancels, and reduced precision does little harm.
    """
    _check_ssim(x)
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
