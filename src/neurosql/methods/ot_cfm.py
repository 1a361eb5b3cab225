r"""Flow matching along straight lines between optimally paired noise and data (Tong et al. 2024; Lipman et al. 2023).

    pairs      x_0 ~ N(0, I) and data x_1 of a batch, by  argmin over permutations of sum_i |x_0,pi(i) - x_1,i|^2
    path       x_t = (1 - t) x_0 + t x_1 (+ sigma noise)
    loss       E |f(x_t, t) - (x_1 - x_0)|^2,   least where  f(x, t) = E[x_1 - x_0 | x_t = x]
    sampling   dx/dt = f(x, t) from x_0 ~ N(0, I) at t = 0 to t = 1

`neurosql.assign` finds the pairs, class by class if the model is class-conditional: noise must stay N(0, I) in each
class. With optimal pairs, paths hardly cross, so the solver follows nearly straight lines and needs few steps. If ranks
share a batch, each pairs the samples that it has.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from neurosql import assign
from neurosql.cost import Cost
from neurosql.methods.noise import FromNoise, column, spread_times
from neurosql.ranks import Part
from neurosql.settings import methods
from neurosql.settings.methods import CFMSettings
from neurosql.settings.samplers import Sampling

Field = Callable[[Tensor, float], Tensor]
"""f(x, t): the velocity at x (m, ...) and time t."""


def couple(noise: Tensor, x: Tensor, label: Tensor | None = None) -> Tensor:
    """(m,): entry i is the row of `noise` that sample i of x is paired with, optimally within each class."""
    if label is None:
        blocks = [torch.arange(len(x))]
    else:
        blocks = [torch.nonzero(label.cpu() == value).flatten() for value in label.unique().tolist()]
    cost = Cost.named("l2")
    solutions = assign.solve_all([cost.matrix(x[rows], noise[rows]) for rows in blocks])
    paired = torch.empty(len(x), dtype=torch.int64)
    for rows, solution in zip(blocks, solutions):
        paired[rows] = rows[solution.permutation]
    return paired.to(x.device)


def integrate(field: Field, x: Tensor, steps: int, solver: str) -> Tensor:
    """x at t = 1 of dx/dt = f(x, t), from x at t = 0, in equal steps; the error falls as h (euler) or h^2."""
    h = 1 / steps
    for step in range(steps):
        t = step * h
        slope = field(x, t)
        if solver == "midpoint":
            slope = field(x + h / 2 * slope, t + h / 2)
        elif solver == "heun":
            slope = (slope + field(x + h * slope, t + h)) / 2
        x = x + h * slope
    return x


class OTCFM(FromNoise):
    """A velocity field learnt on optimally paired batches."""

    record = methods.OT_CFM
    sampling = ("velocity",)

    settings: CFMSettings

    def losses(self, x: Tensor, label: Tensor | None, random: torch.Generator, part: Part | None = None) -> Tensor:
        """Mean squared error of the network's velocity, (m,), each pair at its own time."""
        noise = self.draw(tuple(x.shape), random, part)
        if self.settings.coupling == "optimal":
            with self.clock("assignment"):
                noise = noise[couple(noise, x, label)]
        t = (part or Part.all(len(x))).of(lambda n: spread_times(n, random)).to(x)
        along = column(t, x)
        place = (1 - along) * noise + along * x
        if self.settings.sigma:
            place = place + self.settings.sigma * self.draw(tuple(x.shape), random, part)
        output = self.networks["velocity"](place, t, label)
        return (output - (x - noise)).square().flatten(1).mean(1)

    def carry(self, noise: Tensor, label: Tensor | None, random: torch.Generator, choice: Sampling) -> Tensor:
        """Follow the learnt field from t = 0 to t = 1."""

        def field(x: Tensor, t: float) -> Tensor:
            return self.networks["velocity"](x, torch.full((len(x),), t).to(x), label)

        assert choice.steps is not None and choice.sampler is not None
        return integrate(field, noise, choice.steps, choice.sampler)
