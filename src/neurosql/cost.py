r"""The loss l, once: paired as a training loss and pairwise as a cost matrix.

A :class:`Cost` is a weighted sum of three comparisons of x and y, each a mean over channels and positions:

    l(x, y) = a (1 - SSIM(x, y)) + b mean|x - y| + c mean|x - y|^2

The cost of colour images takes brightness and colour apart (see colour.py): this sum for luma Y, and one more term for
chroma, with d the distance of `colour.chroma_features`,

    l(x, y) = a (1 - SSIM(Y_x, Y_y)) + b mean|Y_x - Y_y| + c mean|Y_x - Y_y|^2 + w (sqrt(e^2 + d^2) - e)

Channel by channel, SSIM sees the brightness that all channels share and hardly any colour: the codes are spent on the
one, and of the other the median is left, which is grey. The last term is quadratic in d up to about e = 0.05, and
linear beyond: it has a say where colours are faint, and does not drown brightness where they are strong.

:meth:`Cost.paired` gives l(x_i, y_i) and is differentiable; :meth:`Cost.matrix` gives C[i, k] = l(x_i, y_k). Both
evaluate the same formula, so the objective that the generator descends is the one that the assignment descends.

SSIM is that of similarity.py. Arrays are (n, c, *spatial) with one, two or three spatial axes, or (n, p) vectors, which
have no SSIM; colour has three channels and two spatial axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurosql import colour, engine
from neurosql.errors import InputError
from neurosql.similarity import (
    check_spatial,
    gaussian_window,
    similarity_loss,
    ssim_matrix,
    ssim_matrix_by_windows,
    window_size,
)

NAMES = ("ssim+l1", "ssim", "l1", "l2", "colour")
DEFAULT_MEMORY = 256 * 2**20

# Weight of the term of colour. With half of it, samples of photographs vary half as much in colour as they should; with
# twice as much, brightness suffers.
CHROMA = 6.0
# e: differences of chroma from here on count in proportion.
FAINT = 0.05
# What a squared difference of chroma counts beside one of luma, where squared distances stand in for the cost.
SEEN = 18.0

# Pixels whose absolute differences are added to one sum: a longer one loses digits.
_L1_PIXELS = 128

# Pairs whose chroma is compared together.
_TOGETHER = 64


@dataclass(frozen=True)
class Cost:
    """l(x, y) = ssim (1 - SSIM) + l1 mean|x - y| + l2 mean|x - y|^2, with these three weights.

    Where `chroma` is above 0, images are (n, 3, h, w), these terms are those of luma alone, and a term of chroma is
    added with that weight.
    """

    ssim: float = 0.5
    l1: float = 0.5
    l2: float = 0.0
    chroma: float = 0.0

    @classmethod
    def named(cls, name: str) -> Cost:
        """The cost of a name: `ssim+l1` (one half of each, the paper's), `ssim`, `l1`, `l2` or `colour`."""
        weights = {
            "ssim+l1": (0.5, 0.5, 0.0),
            "ssim": (1.0, 0.0, 0.0),
            "l1": (0.0, 1.0, 0.0),
            "l2": (0.0, 0.0, 1.0),
            "colour": (0.5, 0.5, 0.0, CHROMA),
        }
        if name not in weights:
            raise InputError(f"cost must be one of {', '.join(NAMES)}, got {name!r}")
        return cls(*weights[name])

    def paired(self, x: Tensor | np.ndarray, y: Tensor | np.ndarray) -> Tensor:
        """l(x_i, y_i) for two tensors of one shape (n, ...): (n,), differentiable once in both.

        Arrays are taken as tensors, and bytes as pixels from 0 to 255, here and in `matrix`.
        """
        x, y = as_images(x), as_images(y)
        if x.shape != y.shape:
            raise InputError(f"paired images must have one shape, got {tuple(x.shape)} and {tuple(y.shape)}")
        if self.chroma:
            apart = colour.chroma_features(x - y).square().sum(1)
            return self._of_luma.paired(colour.luma(x), colour.luma(y)) + self.chroma * _robust(apart)
        total = x.new_zeros(len(x))
        if self.ssim:
            total = similarity_loss(x, y, self.ssim, self.l1)
        elif self.l1:
            total = total + self.l1 * (x - y).flatten(1).abs().mean(1)
        if self.l2:
            total = total + self.l2 * (x - y).flatten(1).square().mean(1)
        return total

    @torch.no_grad()
    def matrix(
        self, x: Tensor | np.ndarray, y: Tensor | np.ndarray, memory: int = DEFAULT_MEMORY, stride: int = 1
    ) -> Tensor:
        """C[i, k] = l(x_i, y_k) for x (n, ...) and y (m, ...): (n, m), on x's device.

        The temporaries take at most about `memory` bytes besides the result, whatever n and m are. A `stride` above 1
        averages SSIM over every stride-th window position only: cheaper, and no longer quite the paired loss.
        """
        x, y = as_images(x), as_images(y)
        if x.shape[1:] != y.shape[1:]:
            raise InputError(f"images must have one shape, got {tuple(x.shape[1:])} and {tuple(y.shape[1:])}")
        if memory <= 0:
            raise InputError(f"memory must be a positive number of bytes, got {memory}")
        if stride < 1:
            raise InputError(f"stride must be at least 1, got {stride}")
        if self.chroma:
            return self._colour_matrix(x, y, memory, stride)
        compiled = _compiled(x, y) if self.ssim else None
        if compiled is not None:
            check_spatial(x)
            result = x.new_empty(len(x), len(y))
            taps = gaussian_window(window_size(x.shape[2:]), torch.float32).numpy()
            images = x.contiguous().numpy(), y.contiguous().numpy()
            compiled.pairwise(*images, taps, self.ssim, self.l1, result.numpy(), stride, torch.get_num_threads())
            return self._add_differences(result, x, y, memory, l1=0.0)
        if self.ssim:
            similarity = ssim_matrix if x.device.type == "cpu" else ssim_matrix_by_windows
            result = similarity(x, y, memory, stride).mul_(-self.ssim).add_(self.ssim)
        else:
            result = x.new_zeros(len(x), len(y))
        return self._add_differences(result, x, y, memory, self.l1)

    @torch.no_grad()
    def entries(self, x: Tensor, y: Tensor, rows: Tensor, columns: Tensor, memory: int = DEFAULT_MEMORY) -> Tensor:
        """Chosen entries l(x_i, y_k) of the matrix, i and k given as two int64 tensors of one length: (length,)."""
        if x.shape[1:] != y.shape[1:]:
            raise InputError(f"images must have one shape, got {tuple(x.shape[1:])} and {tuple(y.shape[1:])}")
        if self.chroma:
            result = self._of_luma.entries(colour.luma(x), colour.luma(y), rows, columns, memory)
            apart = _squared_distances(colour.chroma_features(x), colour.chroma_features(y), rows, columns)
            return result.add_(_robust(apart), alpha=self.chroma)
        compiled = _compiled(x, y) if self.ssim and not self.l2 else None
        if compiled is not None:
            check_spatial(x)
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

    def seen(self, x: Tensor) -> Tensor:
        """x (n, ...) in coordinates whose squared distances stand in for l: (n, ...).

        For most costs x itself; for colour luma and chroma, flat, such that the squared distance over the number of
        pixels is mean|Y_x - Y_y|^2 + 18 d^2.
        """
        if not self.chroma:
            return x
        luma = colour.luma(x).flatten(1)
        return torch.cat([luma, math.sqrt(SEEN * luma.shape[1]) * colour.chroma_features(x)], 1)

    @property
    def _of_luma(self) -> Cost:
        return replace(self, chroma=0.0)

    def _colour_matrix(self, x: Tensor, y: Tensor, memory: int, stride: int) -> Tensor:
        """The matrix block by block: luma and chroma of all images at once would need as much memory as the images."""
        colour.check_colour(x)
        result = x.new_empty(len(x), len(y))
        some = max(8, memory // (8 * x.element_size() * max(1, math.prod(x.shape[1:]))))
        of_luma, squares = self._of_luma, Cost.named("l2")
        for i in range(0, len(x), some):
            real = x[i : i + some]
            luma, chroma = colour.luma(real), colour.chroma_features(real)
            for k in range(0, len(y), some):
                made = y[k : k + some]
                block = of_luma.matrix(luma, colour.luma(made), memory // 2 or 1, stride)
                apart = squares.matrix(chroma, colour.chroma_features(made), memory // 2 or 1).mul_(chroma.shape[1])
                result[i : i + some, k : k + some] = block.add_(_robust(apart), alpha=self.chroma)
        return result

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
                # Apple's devices have no float64.
                total = out.new_zeros(out.shape, dtype=torch.float32 if out.device.type == "mps" else torch.float64)
                for p in range(0, pixels, _L1_PIXELS):
                    some = slice(p, p + _L1_PIXELS)
                    total += torch.cdist(block[:, some], flat_y[:, some], p=1.0)
                out.add_(total, alpha=l1 / pixels)
            if self.l2:
                block = block - centre
                squares = torch.addmm(norms + block.square().sum(1, keepdim=True), block, flat_y2.T, alpha=-2)
                out.add_(squares.clamp_(min=0), alpha=self.l2 / pixels)
        return result


def as_images(x: Tensor | np.ndarray) -> Tensor:
    """Images as a tensor of floats: an array as a tensor, bytes divided by 255, other whole numbers as they are."""
    if isinstance(x, Tensor) and x.is_floating_point():
        return x
    # Half floats of numpy are a way to store numbers, not to compute with them.
    images = x if isinstance(x, Tensor) else torch.tensor(x if x.dtype != np.float16 else x.astype(np.float32))
    if images.is_floating_point():
        return images
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def matrix(
    x: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    cost: str | Cost = "ssim+l1",
    memory: int = DEFAULT_MEMORY,
    stride: int = 1,
) -> Tensor:
    """The cost matrix C[i, k] = l(x_i, y_k) for images in [0, 1], (n, c, *spatial), or vectors, (n, p)."""
    return (Cost.named(cost) if isinstance(cost, str) else cost).matrix(x, y, memory, stride)


def _squared_distances(x: Tensor, y: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """|x_i - y_k|^2 of points x (n, q) and y (m, q), for chosen pairs of them: (length,)."""
    result = x.new_empty(len(rows))
    # Two buffers for all passes: they stay in the cache.
    left, right = x.new_empty(2, _TOGETHER, x.shape[1])
    for out, i, k in zip(*(t.split(_TOGETHER) for t in (result, rows, columns))):
        a, b = left[: len(out)], right[: len(out)]
        torch.index_select(x, 0, i, out=a)
        torch.index_select(y, 0, k, out=b)
        a.sub_(b)
        out.copy_(torch.linalg.vecdot(a, a))
    return result


def _robust(squares: Tensor) -> Tensor:
    """sqrt(e^2 + s) - e of mean squares s, exactly 0 at 0."""
    return squares / ((squares + FAINT**2).sqrt() + FAINT)


def _compiled(x: Tensor, y: Tensor) -> Any | None:
    """The extension, for tensors that it can take."""
    fits = all(t.device.type == "cpu" and t.dtype == torch.float32 and 3 <= t.ndim <= 5 for t in (x, y))
    # Its quotients share a division, which overflows for pixels far outside [0, 1]; NaN fails this too.
    return engine.native() if fits and all(_largest(t) <= 100 for t in (x, y)) else None


def _largest(x: Tensor) -> float:
    return max(-float(x.min()), float(x.max())) if x.numel() else 0.0
