"""What a run remembers of each sample that it was trained on: its digest, its loss and the name of its file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurosql.methods.base import Method

CHUNK = 256
SIZE = 16
"""Bytes of a digest."""


@dataclass(frozen=True)
class TrainedOn:
    """The training samples of a run, in its order, without their pixels."""

    digests: np.ndarray
    """(n, 16) uint8: a digest of the prepared pixels of each sample."""
    losses: np.ndarray
    """(n,): the loss l between each sample and its reconstruction."""
    names: np.ndarray | None = None
    """(n,): names of the files, if each sample has one."""

    @classmethod
    def of(cls, method: Method, x: Tensor, names: np.ndarray | None = None) -> TrainedOn:
        """What is to be remembered of the samples x (n, *shape) that a fitted method has codes of."""
        return cls(digests(x), losses(method, x), names)

    def tensors(self) -> dict[str, Tensor]:
        """All but the names, for the file of codes."""
        return {"digests": torch.from_numpy(self.digests), "losses": torch.from_numpy(self.losses)}

    def plain(self) -> dict[str, Any]:
        """The names, for the header of that file."""
        return {} if self.names is None else {"names": self.names.tolist()}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> TrainedOn | None:
        """What `tensors` and `plain` returned; None if the run was made before they were kept."""
        if "digests" not in tensors or "losses" not in tensors:
            return None
        names = np.array(plain["names"]) if "names" in plain else None
        return cls(tensors["digests"].numpy(), tensors["losses"].numpy(), names)

    def find(self, x: np.ndarray) -> np.ndarray:
        """The position of the training sample that equals each of x (m, *shape), or -1: (m,).

        Of several equal training samples, it is the one with the smallest loss.
        """
        known: dict[bytes, int] = {}
        for position in np.argsort(-self.losses, kind="stable"):
            known[self.digests[position].tobytes()] = int(position)
        return np.array([known.get(digest.tobytes(), -1) for digest in digests(x)], np.int64)


def digests(x: Tensor | np.ndarray) -> np.ndarray:
    """A digest of the float32 values of each sample: (n, 16) uint8."""
    found = np.empty((len(x), SIZE), np.uint8)
    for first in range(0, len(x), CHUNK):
        part = x[first : first + CHUNK]
        for i, sample in enumerate(part.detach().cpu().numpy() if isinstance(part, Tensor) else part, first):
            content = np.ascontiguousarray(sample, dtype=np.float32)
            found[i] = np.frombuffer(hashlib.blake2b(content.data, digest_size=SIZE).digest(), np.uint8)
    return found


@torch.no_grad()
def losses(method: Method, x: Tensor) -> np.ndarray:
    """l(x_i, G(z_i)) of training samples x (n, *shape) and their codes, a few at a time: (n,) float32."""
    labels = method.code_labels()
    found = []
    for i in range(0, len(x), CHUNK):
        rows = slice(i, i + CHUNK)
        made = method.decode(method.codes[rows], None if labels is None else labels[rows])
        found.append(method.cost.paired(x[rows].to(made), made).float().cpu())
    return torch.cat(found).numpy()
