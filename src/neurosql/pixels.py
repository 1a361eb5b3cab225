"""Training images that stay bytes, in memory or in a file that is mapped, until a batch takes them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Pixels:
    """Images of bytes that stand in for a tensor (n, ...) of float32 values in [0, 1], on the CPU.

    Only what is taken of them, by positions or by a slice, becomes such a tensor. It has the bits that it would have if
    all images had been converted before.
    """

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, values: np.ndarray, rows: np.ndarray | None = None) -> None:
        """The images `values` (m, ...) uint8, or those of them in `rows` (n,), in that order."""
        self.values, self.rows = values, rows

    def __len__(self) -> int:
        return len(self.values) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> torch.Size:
        """(n, ...)."""
        return torch.Size((len(self), *self.values.shape[1:]))

    @property
    def ndim(self) -> int:
        """The number of axes, that of the images included."""
        return self.values.ndim

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        places: np.ndarray | slice = index if isinstance(index, slice) else index.cpu().numpy()
        if self.rows is not None:
            places = self.rows[places]
        taken = self.values[places]
        result = np.empty(taken.shape, np.float32)
        np.divide(taken, np.float32(255), out=result, dtype=np.float32)
        return torch.from_numpy(result)

    def only(self, index: Tensor) -> Pixels:
        """The images of these positions (m,), as bytes still."""
        places = index.cpu().numpy()
        return Pixels(self.values, places if self.rows is None else self.rows[places])
