"""Principal components of images: a few numbers per image, whose distances replace more expensive comparisons."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Axes(NamedTuple):
    """A mean image and orthonormal directions of largest variance."""

    centre: Tensor
    """(p,) float32."""
    basis: Tensor | None
    """(p, dims) float32; None if the images have no more than `dims` values, which are then taken as they are."""

    @classmethod
    @torch.no_grad()
    def of(cls, images: Tensor, dims: int) -> Axes:
        """The first `dims` principal axes of images (n, ...).

        The subspace is found by block power iteration from a fixed start: it need not be exact.
        """
        flat = images.detach().flatten(1).float()
        width = flat.shape[1]
        centre = flat.mean(0) if len(flat) else flat.new_zeros(width)
        if dims >= width:
            return cls(centre, None)
        flat = flat - centre
        random = torch.Generator().manual_seed(0)
        basis = torch.randn(width, min(width, dims + 8), generator=random).to(flat)
        for _ in range(4):
            basis = torch.linalg.qr(flat.T @ (flat @ basis)).Q
        projected = flat @ basis
        # eigh sorts in ascending order: the last ones are the largest, and flipping puts the first component first.
        basis = basis @ torch.linalg.eigh(projected.T @ projected).eigenvectors[:, -dims:].flip(1)
        return cls(centre, basis)

    @torch.no_grad()
    def project(self, images: Tensor) -> Tensor:
        """Coordinates (n, dims) float32 of images (n, ...)."""
        flat = images.detach().flatten(1).float()
        return flat - self.centre if self.basis is None else flat @ self.basis - self.centre @ self.basis
