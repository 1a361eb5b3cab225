"""A mapping network in front of a backbone: a small MLP that bends the latent space before the generator reads it.

The entry of a backbone is one affine map of the code, so a backbone alone can only follow a lattice that already lies
as the images do. The mapping network

    w = A_(h+1) relu(A_h ... relu(A_1 (z, label)))

has h hidden layers and gives the backbone `values` numbers in place of the d of the code. The label's embedding, if
any, enters here, and the backbone itself is unconditional.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import Tensor, nn
from torch.nn.functional import relu

from neurosql.errors import whole
from neurosql.generators.base import Generator


def values_of(latent_dim: int, width: int) -> int:
    """How many numbers the backbone reads: a quarter of the hidden width, but no fewer than the code has."""
    return max(latent_dim, width // 4)


class Mapped(Generator):
    """A backbone that reads the output of an MLP with `hidden` layers of `width` units in place of the code."""

    def __init__(self, backbone: Generator, latent_dim: int, *, classes: int | None, hidden: int, width: int) -> None:
        hidden, width = whole("mapping", hidden, 1), whole("mapping_width", width, 1)
        own = {"mapping": hidden, "mapping_width": width}
        super().__init__(
            backbone.shape, latent_dim, classes=classes, bounded=backbone.bounded, **backbone.options | own
        )
        self.name = backbone.name
        sizes = [self.code_dim, *[width] * hidden, backbone.latent_dim]
        self.mapping = nn.ModuleList(nn.Linear(before, after) for before, after in zip(sizes, sizes[1:]))
        self.backbone = backbone

    def decode(self, code: Tensor) -> Tensor:
        """What the backbone makes of the mapped code (n, code_dim)."""
        *hidden, last = self.mapping
        for layer in hidden:
            code = relu(layer(code))
        return self.backbone.decode(last(code))

    def entries(self) -> Iterator[nn.Linear]:
        """The first layer of the mapping network, and that of the backbone."""
        yield from (self.mapping[0], *self.backbone.entries())  # type: ignore[misc]

    @property
    def final(self) -> nn.Linear | nn.Conv2d:
        """The head of the backbone."""
        return self.backbone.final

    def adjust_initial(self) -> None:
        """Give the mapped codes a variance of about 1, that of a code; then what the backbone asks for."""
        # The entry's products and biases have variance 2 + 1, which the hidden layers keep.
        self.mapping[-1].weight.div_(math.sqrt(3))  # type: ignore[operator]
        self.backbone.adjust_initial()

    def begin(self, settings: object) -> None:
        """What the backbone begins with."""
        self.backbone.begin(settings)
