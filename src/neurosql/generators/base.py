"""What every generator shares: the checks, the label's embedding, the output's range and the settings."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from neurosql.errors import InputError, whole

LABEL_DIM = 16


def sample_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """``shape`` as a tuple of positive ints, or an InputError."""
    try:
        sides = tuple(operator.index(side) for side in shape)
    except TypeError:
        sides = ()
    if not sides or min(sides) < 1:
        raise InputError(
            f"shape must be a sequence of positive whole numbers such as (1, 28, 28) or (5,), got {shape!r}"
        )
    return sides


class Generator(nn.Module):
    """G(z, label) -> x, with z (n, latent_dim), label int64 (n,) or None, and x (n, *shape).

    A label's embedding is concatenated to z; what the net reads is that code (n, code_dim). A subclass names
    itself, gives its settings in ``presets`` and hands them, resolved, to this constructor; it builds
    ``entry``, the linear layer that reads the code, and ``head``, the last layer, and turns a code into x
    before the sigmoid in ``decode``.
    """

    name: str
    presets: ClassVar[dict[str, dict[str, Any]]]
    entry: nn.Linear
    head: nn.Linear | nn.Conv2d

    def __init__(
        self, shape: Sequence[int], latent_dim: int, *, classes: int | None, bounded: bool, **options: Any
    ) -> None:
        super().__init__()
        self.shape = sample_shape(shape)
        self.latent_dim = whole("latent_dim", latent_dim)
        self.classes = None if classes is None else whole("classes", classes)
        self.bounded = bool(bounded)
        self.options = options
        self.embedding = None if self.classes is None else nn.Embedding(self.classes, LABEL_DIM)
        self.code_dim = self.latent_dim + (0 if self.classes is None else LABEL_DIM)

    def forward(self, z: Tensor, label: Tensor | None = None) -> Tensor:
        """x (n, *shape) from z (n, latent_dim) and, for a conditional generator, label int64 (n,)."""
        if z.ndim != 2 or z.shape[1] != self.latent_dim:
            raise InputError(f"z must have shape (n, {self.latent_dim}), got {tuple(z.shape)}")
        x = self.decode(self._code(z, label)).reshape(z.shape[0], *self.shape)
        return torch.sigmoid(x) if self.bounded else x

    def decode(self, code: Tensor) -> Tensor:
        """x before the sigmoid, (n, *shape) or any reshape of it, from code (n, code_dim)."""
        raise NotImplementedError

    def entries(self) -> Iterator[nn.Linear]:
        """Every linear layer that reads codes, before and after a mapping network."""
        yield self.entry

    @property
    def final(self) -> nn.Linear | nn.Conv2d:
        """The last layer."""
        return self.head

    @torch.no_grad()
    def take_codes(self, shift: Tensor, factor: float) -> None:
        """Read codes in other units: G(z) is from now on what G(shift + factor z) was, with shift (latent_dim,)."""
        first = next(self.entries())
        own = first.weight[:, : self.latent_dim]
        first.bias.add_(own @ shift.to(own))
        own.mul_(factor)

    def adjust_initial(self) -> None:
        """Rescale what the common rule does not fit; called once, when the weights have been drawn."""

    def _code(self, z: Tensor, label: Tensor | None) -> Tensor:
        if self.embedding is None:
            if label is not None:
                raise InputError("this generator is unconditional: call it without labels, or make it with classes=")
            return z
        if label is None:
            raise InputError(f"this generator is conditional on {self.classes} classes: call it with labels")
        if label.dtype != torch.int64 or label.shape != z.shape[:1]:
            raise InputError(f"label must be int64 of shape ({z.shape[0]},), got {label.dtype} of {tuple(label.shape)}")
        # On an accelerator the check would wait for the device, and a tracer can't branch on values.
        if label.numel() and label.device.type == "cpu" and not torch.compiler.is_compiling():
            lowest, highest = int(label.min()), int(label.max())
            if lowest < 0 or highest >= self.embedding.num_embeddings:
                raise InputError(f"labels must lie in 0..{self.embedding.num_embeddings - 1}, got {lowest}..{highest}")
        return torch.cat([z, self.embedding(label)], dim=1)

    def config(self) -> dict[str, Any]:
        """The resolved settings, ready for JSON; ``make(**config)`` builds the same architecture."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "latent_dim": self.latent_dim,
            "classes": self.classes,
            "bounded": self.bounded,
            **self.options,
        }

    @classmethod
    def own_options(cls, settings: Any) -> dict[str, Any]:
        """The options of the constructor that the backbone's own settings, a dataclass, give."""
        return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}

    def begin(self, settings: Any) -> None:
        """What follows the initial weights, by the backbone's own settings: weights from a file, say."""
