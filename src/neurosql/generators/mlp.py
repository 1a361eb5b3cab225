"""MLP: the generator of the paper's theory, for samples of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from neurosql.errors import InputError, whole
from neurosql.generators.base import Generator

_ACTIVATION: dict[str, type[nn.Module]] = {"silu": nn.SiLU, "relu": nn.ReLU}


class MLP(Generator):
    """``depth`` hidden layers of ``width`` units and a linear head.

    There is no batch norm: a row's output depends on that row only, in training as well, and float64 works.
    """

    name = "mlp"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "laptop": {"width": 256, "depth": 3, "activation": "silu"},
        "paper": {"width": 1024, "depth": 3, "activation": "silu"},
    }

    def __init__(
        self,
        shape: Sequence[int],
        latent_dim: int,
        *,
        classes: int | None,
        bounded: bool,
        width: int,
        depth: int,
        activation: str,
    ) -> None:
        width, depth = whole("width", width), whole("depth", depth)
        if activation not in _ACTIVATION:
            raise InputError(f"activation must be one of {', '.join(_ACTIVATION)}, got {activation!r}")
        super().__init__(
            shape,
            latent_dim,
            classes=classes,
            bounded=bounded,
            width=width,
            depth=depth,
            activation=activation,
        )
        self.activation = _ACTIVATION[activation]()
        self.entry = nn.Linear(self.code_dim, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 1))
        self.head = nn.Linear(width, math.prod(self.shape))

    def decode(self, code: Tensor) -> Tensor:
        """(n, p) from code (n, code_dim), p the number of values in a sample."""
        h = self.activation(self.entry(code))
        for layer in self.hidden:
            h = self.activation(layer(h))
        return self.head(h)
