r"""The sliced Wasserstein distance from fresh samples to a data set, as a loss.

A direction u turns features phi of samples into numbers, and in one dimension optimal transport is a sort. With
t_1 <= ... <= t_m the sorted numbers u . phi(y) of m samples, and q_i(u) the quantile of order (i - 1/2) / m of
u . phi(x) over the whole data set,

    D(y) = mean over phi and u of  1/m sum_i (t_i - q_i(u))^2

Features are the values of a sample and two layers of a network with random weights: nothing is trained. Directions are
drawn in the space of the first principal components of the features, each divided by its standard deviation over the
data. Without that division nearly every direction would see brightness and overall shape alone, and detail would not
count. A bank of directions is drawn once with its quantiles, and each call uses some of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, conv2d, linear, relu

from neurosql.assign.components import Axes
from neurosql.joint import gathered
from neurosql.modality import of_shape

COMPONENTS = 64
"""Principal components of each kind of features."""
BANK = 1024
"""Directions that are drawn for each kind of features."""
USED = 128
"""Directions that one call uses."""
MOST = 4096
"""Most samples of the data set that quantiles are estimated from."""
LARGEST = 32
"""Images larger than this are averaged over squares first: detail below is left to the loss between pairs."""
WIDTHS = (32, 64)
HIDDEN = 256
FEWEST = 8
"""Fewest samples of the data set per principal component: with fewer, its direction is an accident."""
CHUNK = 256
"""Samples whose features are computed at a time."""
FAINTEST = 1e-3
"""Components fainter than this share of the strongest are not brought up any further."""

Features = Callable[[Tensor], list[Tensor]]


class WhitenedScores:
    """A few numbers per sample: principal scores of several kinds of features, each with variance 1 over the data."""

    def __init__(self, x: Tensor, random: torch.Generator) -> None:
        """Find the principal axes of data x (n, ...); `random` draws the weights of the network."""
        self.features = random_features(tuple(x.shape[1:]), random)
        some = x[torch.linspace(0, len(x) - 1, min(len(x), MOST)).long().to(x.device)]
        with torch.no_grad():
            parts = [torch.cat(chunks) for chunks in zip(*(self.features(chunk) for chunk in some.split(CHUNK)))]
            self.axes = [_whitened_axes(part) for part in parts]
            self.some = [part @ axes for part, axes in zip(parts, self.axes)]
            """Scores (m, r) of some of the data, by kind."""

    def __call__(self, y: Tensor) -> list[Tensor]:
        """Scores (m, r) of samples y (m, ...), by kind."""
        return [values @ axes for values, axes in zip(self.features(y), self.axes)]

    @torch.no_grad()
    def of_all(self, x: Tensor) -> Tensor:
        """The scores of all kinds, side by side, of samples x (n, ...), in chunks."""
        return torch.cat([torch.cat(self(chunk), 1) for chunk in x.split(CHUNK)])


class SlicedDistance:
    """D(y) for m samples y at a time, against the data set that it was made of."""

    def __init__(self, x: Tensor, batch: int, seed: int) -> None:
        """Draw the directions for data x (n, ...) and sets of `batch` samples."""
        random = torch.Generator().manual_seed(seed)
        self.batch = batch
        self.scores = WhitenedScores(x, random)
        self.banks = [_bank(scores, batch, random) for scores in self.scores.some]

    def __call__(self, y: Tensor, random: torch.Generator, counts: Sequence[int] = ()) -> Tensor:
        """D(y) of samples y (batch, ...), differentiable; `random` chooses the directions.

        If ranks share the samples, each has as many as `counts` says, and all compute the distance of all: the scores
        travel, the samples stay where they are.
        """
        total = y.new_zeros(())
        for own, bank in zip(self.scores(y), self.banks):
            scores = gathered(own, counts)
            used = torch.randperm(BANK, generator=random)[:USED].to(y.device)
            ordered = (scores @ bank.directions[:, used]).sort(0).values
            total = total + (ordered - bank.quantiles[:, used]).square().mean()
        return total / len(self.banks)


class Bank(NamedTuple):
    """Directions in the space of one kind of scores, and the quantiles of the data along them."""

    directions: Tensor
    """(r, BANK): unit vectors."""
    quantiles: Tensor
    """(batch, BANK)."""


def random_features(shape: tuple[int, ...], random: torch.Generator) -> Features:
    """The values of samples of that shape and two layers of a random network on them: (n, p) each."""
    return (Convolved if of_shape(shape).axes == 2 else Dense)(shape, random)


class Dense:
    """The values of samples and two dense layers on them."""

    def __init__(self, shape: tuple[int, ...], random: torch.Generator) -> None:
        sizes = (math.prod(shape), HIDDEN, HIDDEN)
        self.weights = [_normal((b, a), a, random) for a, b in zip(sizes, sizes[1:])]
        self.biases = [0.5 * torch.randn(size, generator=random) for size in sizes[1:]]

    def __call__(self, x: Tensor) -> list[Tensor]:
        found = [x.flatten(1)]
        for weight, bias in zip(self.weights, self.biases):
            found.append(relu(linear(found[-1], weight.to(x), bias.to(x))))
        return found


class Convolved:
    """The pixels of images and two convolutions of them."""

    def __init__(self, shape: tuple[int, ...], random: torch.Generator) -> None:
        channels = shape[0]
        self.first = _normal((WIDTHS[0], channels, 5, 5), 25 * channels, random)
        self.second = _normal((WIDTHS[1], WIDTHS[0], 3, 3), 9 * WIDTHS[0], random)
        self.size = (min(shape[1], LARGEST), min(shape[2], LARGEST))

    def __call__(self, x: Tensor) -> list[Tensor]:
        if tuple(x.shape[2:]) != self.size:
            x = adaptive_avg_pool2d(x, self.size)
        one = relu(conv2d(x, self.first.to(x), stride=2, padding=2))
        two = relu(conv2d(one, self.second.to(x), stride=2, padding=1))
        return [x.flatten(1), one.flatten(1), two.flatten(1)]


def _normal(shape: tuple[int, ...], fan_in: int, random: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=random) * math.sqrt(2 / fan_in)


def _whitened_axes(features: Tensor) -> Tensor:
    """Principal axes (p, r) of features (n, p), each divided by the standard deviation along it."""
    axes = Axes.of(features, min(COMPONENTS, max(1, len(features) // FEWEST)))
    scores = axes.project(features)
    if axes.basis is None:
        # As few values as components: they are taken as they are, and rotated to their principal axes.
        rotation = torch.linalg.eigh(scores.T @ scores).eigenvectors
        scores = scores @ rotation
    else:
        rotation = axes.basis
    spread = scores.std(0, correction=0)
    return rotation.to(features) / spread.clamp(min=FAINTEST * float(spread.max()) or 1.0).to(features)


def _bank(scores: Tensor, batch: int, random: torch.Generator) -> Bank:
    """The bank of scores (n, r) of the data."""
    directions = torch.randn(scores.shape[1], BANK, generator=random).to(scores)
    directions = directions / directions.norm(dim=0)
    return Bank(directions, _quantiles(scores @ directions, batch))


def _quantiles(values: Tensor, count: int) -> Tensor:
    """Quantiles (count, k) of order (i - 1/2) / count of each column of values (n, k)."""
    ordered, n = values.sort(0).values, len(values)
    place = ((torch.arange(count, device=values.device) + 0.5) * n / count - 0.5).clamp(0, n - 1)
    below = place.floor().long()
    return ordered[below].lerp(ordered[(below + 1).clamp(max=n - 1)], (place - below).to(values)[:, None])
