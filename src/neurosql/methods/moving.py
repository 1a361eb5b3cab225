"""Codes that move by gradient: each on its own, or all of them together.

A code's own steps are few: one per epoch. `SharedSteps` moves all codes at every step. With f_i a fixed vector of
random features of image i, the codes follow

    z_i <- z_i + f_i A,

and the steps are taken by A: images that look alike move alike, whether or not they are in the batch. Nothing of it is
kept once the codes are found. `Motion` has either kind of steps, both, or none.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
FEATURES = 2048
"""Random features per image."""
CHUNK = 1024
"""Images whose features are computed at a time."""
FAINTEST = 1e-12


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


class SharedSteps:
    """Steps that all n codes take together, as linear functions of random features of their images.

    Steps are collected in A and added to the codes when `collected` is called.
    """

    matrix: Tensor
    """A, (features, d)."""
    first: Tensor
    """(features, d): mean of the gradients of A."""
    second: Tensor
    """(features, d): mean of their squares."""
    steps: int = 0
    _last: tuple[Tensor, Tensor] | None = None
    """The images of the batch, and their features: a step of the decoder asks for them several times."""

    def __init__(self, scores: Tensor, dim: int, seed: int) -> None:
        """Draw random features of images with these scores (n, r), for codes of d = `dim` numbers."""
        random = torch.Generator().manual_seed(seed)
        n, r = scores.shape
        self.scores = scores - scores.mean(0)
        self.weights = (torch.randn(r, FEATURES, generator=random) / math.sqrt(r)).to(scores)
        self.biases = (0.5 * torch.randn(FEATURES, generator=random)).to(scores)
        sums = torch.zeros(2, FEATURES, dtype=torch.float64)
        for some in self.scores.split(CHUNK):
            raw = self._raw(some).cpu().double()
            sums += torch.stack([raw.sum(0), raw.square().sum(0)])
        mean = sums[0] / n
        self.mean = mean.to(scores)
        self.spread = (sums[1] / n - mean.square()).clamp(min=FAINTEST).sqrt().to(scores)
        self.matrix, self.first, self.second = (scores.new_zeros(FEATURES, dim) for _ in range(3))

    def _raw(self, scores: Tensor) -> Tensor:
        return torch.relu(scores @ self.weights + self.biases)

    def features(self, index: Tensor | slice) -> Tensor:
        """f_i of the images `index`: (m, features), each with mean 0 and variance 1 over all images."""
        if self._last is not None and self._last[0] is index:
            return self._last[1]
        found = (self._raw(self.scores[index]) - self.mean) / self.spread
        if isinstance(index, Tensor):
            self._last = (index, found)
        return found

    def offsets(self, index: Tensor | slice) -> Tensor:
        """f_i A of the images `index`, (m, d): how far their codes have gone since `collected` was last called."""
        return self.features(index) @ self.matrix

    def step(self, index: Tensor, gradient: Tensor, rate: float) -> None:
        """One step of Adam down the gradients (m, d) of the codes of the images `index`."""
        self.steps += 1
        slope = self.features(index).T @ gradient / len(index)
        self.first = BETA1 * self.first + (1 - BETA1) * slope
        self.second = BETA2 * self.second + (1 - BETA2) * slope.square()
        size = (self.second / (1 - BETA2**self.steps)).sqrt() + EPSILON
        self.matrix = self.matrix - rate * self.first / (1 - BETA1**self.steps) / size

    def collected(self) -> Tensor:
        """What all codes have to be moved by, (n, d); from here on, steps are collected anew."""
        rows = range(0, len(self.scores), CHUNK)
        moves = torch.cat([self.offsets(slice(i, i + CHUNK)) for i in rows])
        self.matrix = torch.zeros_like(self.matrix)
        return moves

    def tensors(self) -> dict[str, Tensor]:
        """What changes, by name."""
        return {"matrix": self.matrix, "first": self.first, "second": self.second, "steps": torch.tensor(self.steps)}

    def load(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Take over what `tensors` gave."""
        self.matrix, self.first, self.second = (tensors[name].to(device) for name in ("matrix", "first", "second"))
        self.steps = int(tensors["steps"])


class Motion:
    """How n codes move: each on its own, all together, both, or not at all.

    The codes (n, d) stay with the caller. Steps that they take together are not in them until `collected` adds them.
    """

    def __init__(self, own: CodeSteps | None, shared: SharedSteps | None) -> None:
        self.own, self.shared = own, shared

    def places(self, codes: Tensor, index: Tensor) -> Tensor:
        """Where the codes of the images `index` are now, (m, d)."""
        return codes[index] if self.shared is None else codes[index] + self.shared.offsets(index)

    def put(self, codes: Tensor, index: Tensor, places: Tensor) -> None:
        """Put the codes of the images `index` to these places, (m, d)."""
        codes[index] = places if self.shared is None else places - self.shared.offsets(index)

    def step(
        self, codes: Tensor, index: Tensor, places: Tensor, gradient: Tensor, own_rate: float, shared_rate: float
    ) -> None:
        """One step from the places (m, d) of the codes of a batch down their gradients (m, d)."""
        if self.own is not None:
            self.put(codes, index, self.own.moved(index, places, gradient, own_rate))
        if self.shared is not None:
            self.shared.step(index, gradient, shared_rate)

    def collected(self, codes: Tensor) -> Tensor:
        """The codes (n, d) with the steps that they have taken together."""
        return codes if self.shared is None else codes + self.shared.collected()

    def tensors(self) -> dict[str, Tensor]:
        """What changes, by name."""
        return {f"{kind}.{name}": value for kind, steps in self._kinds() for name, value in steps.tensors().items()}

    def load(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Take over what `tensors` gave; other names are left out."""
        for kind, steps in self._kinds():
            steps.load({name: tensors[f"{kind}.{name}"] for name in steps.tensors()}, device)

    def _kinds(self) -> list[tuple[str, CodeSteps | SharedSteps]]:
        """The steps that there are, each with its name in a checkpoint."""
        kinds = [("moving", self.own), ("shared", self.shared)]
        return [(kind, steps) for kind, steps in kinds if steps is not None]
