r"""Denoising diffusion (Ho et al. 2020): data drowned in noise step by step, and a network that finds the noise.

With betas beta_1..beta_T, alpha_k = 1 - beta_k and a_k = alpha_1 ... alpha_k,

    one step         q(x_k | x_{k-1}) = N(sqrt(alpha_k) x_{k-1}, beta_k I)
    all at once      x_k = sqrt(a_k) x_0 + sqrt(1 - a_k) noise
    loss             E |f(x_k, k) - target|^2,   target = noise,  or  v = sqrt(a_k) noise - sqrt(1 - a_k) x_0
    linear           beta from 1e-4 to 0.02 in a thousand steps; other T rescale them to end in the same noise
    cosine           a_k = c(k / T) / c(0),   c(s) = cos^2(pi/2 (s + 0.008) / 1.008)

The output f(x_k, k) amounts to a guess of x_0 and of the noise. Two samplers use it, starting from x_T ~ N(0, I):

    ancestral        x_{k-1} ~ q(x_{k-1} | x_k, x_0),  T steps
    DDIM             x_j = sqrt(a_j) x_0 + sqrt(1 - a_j) noise  for the next j < k of a few,  without drawing
                     (Song et al. 2021)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from neurosql.methods.noise import FromNoise, column, spread_times
from neurosql.ranks import Part
from neurosql.settings import methods
from neurosql.settings.methods import DDPMSettings
from neurosql.settings.samplers import ANCESTRAL, Sampling

FIRST_BETA, LAST_BETA = 1e-4, 0.02
LARGEST_BETA = 0.999

Guess = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""From x_k and k, the network's guesses of x_0 and of the noise."""


class Schedule:
    """The noise of T steps: `alpha_bar` (T + 1,) holds a_0 = 1, a_1, ..., a_T, and `beta` (T + 1,) the betas."""

    def __init__(self, steps: int, name: str = "linear") -> None:
        self.steps = steps
        if name == "linear":
            beta = torch.linspace(FIRST_BETA, LAST_BETA, steps, dtype=torch.float64) * (1000 / steps)
        else:
            s = torch.arange(steps + 1, dtype=torch.float64) / steps
            share = torch.cos(math.pi / 2 * (s + 0.008) / 1.008).square()
            beta = 1 - share[1:] / share[:-1]
        self.beta = torch.cat([torch.zeros(1, dtype=torch.float64), beta.clamp(max=LARGEST_BETA)])
        self.alpha_bar = (1 - self.beta).cumprod(0)

    def noised(self, x: Tensor, noise: Tensor, k: Tensor) -> Tensor:
        """x_k from x_0 and noise (n, ...), each row at its own step k (n,)."""
        a = self.alpha_bar[k]
        return column(a.sqrt(), x) * x + column((1 - a).sqrt(), x) * noise

    def velocity(self, x: Tensor, noise: Tensor, k: Tensor) -> Tensor:
        """v = sqrt(a_k) noise - sqrt(1 - a_k) x_0."""
        a = self.alpha_bar[k]
        return column(a.sqrt(), x) * noise - column((1 - a).sqrt(), x) * x

    def strided(self, count: int) -> list[int]:
        """`count` of the steps 1..T, evenly spaced, from the last down to the first."""
        return torch.linspace(self.steps, 1, count, dtype=torch.float64).round().long().tolist()


def split(schedule: Schedule, predict: str, x: Tensor, output: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """x_0 and the noise in x = x_k, from a network's output that predicts `noise` or `v`."""
    a = float(schedule.alpha_bar[k])
    if predict == "v":
        return a**0.5 * x - (1 - a) ** 0.5 * output, (1 - a) ** 0.5 * x + a**0.5 * output
    return (x - (1 - a) ** 0.5 * output) / a**0.5, output


def ancestral(schedule: Schedule, guess: Guess, x: Tensor, draw: Callable[[], Tensor]) -> Tensor:
    """x_0 from x_T: each step drawn from the posterior q(x_{k-1} | x_k, x_0) at the guess of x_0."""
    for k in range(schedule.steps, 0, -1):
        a, before, beta = (float(v) for v in (schedule.alpha_bar[k], schedule.alpha_bar[k - 1], schedule.beta[k]))
        start, _ = guess(x, k)
        x = (before**0.5 * beta * start + (1 - beta) ** 0.5 * (1 - before) * x) / (1 - a)
        if k > 1:
            x = x + (beta * (1 - before) / (1 - a)) ** 0.5 * draw()
    return x


def ddim(schedule: Schedule, guess: Guess, x: Tensor, times: Sequence[int]) -> Tensor:
    """x_0 from x_T along the falling steps `times`, without drawing anything."""
    for k, after in zip(times, [*times[1:], 0]):
        start, noise = guess(x, k)
        a = float(schedule.alpha_bar[after])
        x = a**0.5 * start + (1 - a) ** 0.5 * noise
    return x


class DDPM(FromNoise):
    """Diffusion of samples of any shape: the network learns all steps, and a sampler reverses them."""

    record = methods.DDPM
    sampling = ("denoiser",)

    settings: DDPMSettings

    @cached_property
    def schedule(self) -> Schedule:
        """The noise of all steps."""
        return Schedule(self.settings.noise_steps, self.settings.noise_schedule)

    def losses(self, x: Tensor, label: Tensor | None, random: torch.Generator, part: Part | None = None) -> Tensor:
        """Mean squared error of the network's prediction, (m,), each sample at its own step."""
        times = (part or Part.all(len(x))).of(lambda n: spread_times(n, random))
        k = 1 + (times * self.schedule.steps).long()
        noise = self.draw(tuple(x.shape), random, part)
        target = noise if self.settings.predict == "noise" else self.schedule.velocity(x, noise, k)
        output = self._output(self.schedule.noised(x, noise, k), k, label)
        return (output - target).square().flatten(1).mean(1)

    def carry(self, noise: Tensor, label: Tensor | None, random: torch.Generator, choice: Sampling) -> Tensor:
        """All T ancestral steps, or a few deterministic ones; never more than T."""

        def guess(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
            return self.guess(x, k, label)

        if choice.sampler == ANCESTRAL.name:
            return ancestral(self.schedule, guess, noise, lambda: self.draw(tuple(noise.shape), random))
        count = min(choice.steps or self.schedule.steps, self.schedule.steps)
        return ddim(self.schedule, guess, noise, self.schedule.strided(count))

    def guess(self, x: Tensor, k: int, label: Tensor | None) -> tuple[Tensor, Tensor]:
        """The network's x_0 and noise in x = x_k. If the data are bounded, so is x_0, and the noise is the rest."""
        output = self._output(x, torch.full((len(x),), k), label)
        start, noise = split(self.schedule, self.settings.predict, x, output, k)
        if self.bounded:
            a = float(self.schedule.alpha_bar[k])
            start = start.clamp(-1, 1)
            noise = (x - a**0.5 * start) / (1 - a) ** 0.5
        return start, noise

    def _output(self, x: Tensor, k: Tensor, label: Tensor | None) -> Tensor:
        return self.networks["denoiser"](x, (k / self.schedule.steps).to(x), label)
