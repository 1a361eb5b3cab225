"""Codes that take gradient steps of their own: Adam, with moments for each code."""

from __future__ import annotations

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class CodeSteps:
    """Adam's moments of n codes. In a step, only the codes of a batch move; all others stay where they are."""

    first: Tensor
    """(n, d): mean of the gradients of each code."""
    second: Tensor
    """(n, d): mean of their squares."""
    steps: Tensor
    """(n,) int64: steps that each code has taken."""

    def __init__(self, codes: Tensor) -> None:
        self.first, self.second = torch.zeros_like(codes), torch.zeros_like(codes)
        self.steps = torch.zeros(len(codes), dtype=torch.int64, device=codes.device)

    def moved(self, index: Tensor, z: Tensor, gradient: Tensor, rate: float) -> Tensor:
        """The codes z (m, d) of the rows `index`, one step further down their gradients (m, d)."""
        self.steps[index] += 1
        taken = self.steps[index, None].to(z)
        first = BETA1 * self.first[index] + (1 - BETA1) * gradient
        second = BETA2 * self.second[index] + (1 - BETA2) * gradient.square()
        self.first[index], self.second[index] = first, second
        size = (second / (1 - BETA2**taken)).sqrt() + EPSILON
        return z - rate * first / (1 - BETA1**taken) / size

    def tensors(self) -> dict[str, Tensor]:
        """The moments, by name."""
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def load(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Take over what `tensors` gave."""
        self.first, self.second, self.steps = (tensors[name].to(device) for name in ("first", "second", "steps"))
