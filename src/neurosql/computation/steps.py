"""The steps that a recorded computation consists of.

Every value is a tensor with the batch as its first axis, or a constant. Sizes that depend on the batch size n are
written -k for k n, all others as they are.

    linear(x, weight, bias?)                     x weight' + bias, x (m, i), weight (o, i)
    conv(x, weight, bias?)                       attributes stride, padding, dilation, groups
    deconv(x, weight, bias?)                     a transposed convolution; also output_padding
    affine(x, scale, shift)                      scale_c x + shift_c, c the second axis
    group_norm(x)                                attributes groups, eps; without a scale
    layer_norm(x, weight, bias)                  over the last axis; attribute eps
    relu, silu, gelu, sigmoid, tanh, sin, cos, exp (x)
    add, sub, mul, div, minimum, maximum (x, y)  with broadcasting
    reshape, expand (x)                          attribute shape
    permute(x)                                   attribute axes
    slice(x)                                     attributes axis, start, stop
    concat(x, ...)                               attribute axis
    repeat(x)                                    each pixel `rows` times down and `columns` times across
    attention(q, k, v)                           softmax(scale q k') v over the last two of four axes
    lookup(table, index)                         rows of a table
    whole(x, where)                              x, rounded (half to even) where `where` is 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

UNARY = ("relu", "silu", "gelu", "sigmoid", "tanh", "sin", "cos", "exp")
BINARY = ("add", "sub", "mul", "div", "minimum", "maximum")


@dataclass(frozen=True)
class Step:
    """One operation on values, which are named by their numbers."""

    op: str
    inputs: tuple[int, ...]
    output: int
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Computation:
    """What a generator does with codes (n, d) and, if it is conditional, labels (n,)."""

    codes: int
    """The number of the value that holds the codes."""
    labels: int | None
    """The number of the value that holds the labels, if there are any."""
    output: int
    steps: list[Step]
    constants: dict[int, np.ndarray]
    shapes: dict[int, tuple[int, ...]]
    """The shape of each value that is no constant."""

    def then(self, op: str, *constants: np.ndarray) -> None:
        """Append a step that takes the output and, if there are any, constants; the output keeps its shape."""
        values = [self._next() for _ in constants]
        self.constants |= {value: np.asarray(array, np.float32) for value, array in zip(values, constants)}
        made = self._next()
        self.steps.append(Step(op, (self.output, *values), made))
        self.shapes[made] = self.shapes[self.output]
        self.output = made

    def _next(self) -> int:
        taken = len(self.constants) + len(self.shapes)
        while taken in self.constants or taken in self.shapes:
            taken += 1
        return taken

    def needed(self) -> Computation:
        """The same computation without the steps and constants that its output does not depend on."""
        wanted = {self.output}
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.output in wanted:
                steps.insert(0, step)
                wanted |= set(step.inputs)
        given = {self.codes} if self.labels is None else {self.codes, self.labels}
        return Computation(
            self.codes,
            self.labels,
            self.output,
            steps,
            {number: array for number, array in self.constants.items() if number in wanted},
            {number: shape for number, shape in self.shapes.items() if number in wanted | given},
        )


def sized(shape: Sequence[int], n: int) -> list[int]:
    """A shape for batches of n."""
    return [size if size >= 0 else -size * n for size in shape]
