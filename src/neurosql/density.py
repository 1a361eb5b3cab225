r"""A density fitted to codes after training: a Gaussian mixture, or one Gaussian, for each class.

    p(z | class) = sum_k w_k N(z; m_k, S_k),    S_k = L_k L_k'

fitted by expectation maximisation with full covariances. With one component, it is the mean and the covariance of the
codes. All of it is tensors: it is saved with the codes, and draws use the caller's own random numbers.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from neurosql.errors import InputError, NotFinite

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

STARTS = 4
ROUNDS = 300
RIDGE = 1e-4
"""Share of the codes' mean variance that is added to each variance, so that few codes still give a density."""
FEWEST = 10
"""Fewest codes per component, on average; never fewer than 2 (d + 1) in d dimensions."""

NAMES = ("weights", "means", "factors")


class Mixture:
    """Gaussian mixtures of c classes (c = 1 without classes) with up to k components each, in float64.

    `weights` (c, k) are zero where a class has fewer components or no codes, `means` are (c, k, d), and `factors`
    (c, k, d, d) are the lower Cholesky factors of the covariances.
    """

    has_mode = has_density = True

    def __init__(self, weights: Tensor, means: Tensor, factors: Tensor) -> None:
        self.weights, self.means, self.factors = weights, means, factors

    @classmethod
    def fit(cls, codes: Tensor, labels: Tensor | None, classes: int | None, components: int, seed: int) -> Mixture:
        """Fit codes (n, d), class by class if there are labels (n,), with at most `components` components each.

        There are fewer if a component would have too few codes for a covariance.
        """
        if not torch.isfinite(codes).all():
            raise NotFinite("some codes are not finite, so no density can be fitted: try a lower learning_rate")
        points, dim = codes.cpu().double(), codes.shape[1]
        groups = [torch.arange(len(points))]
        if labels is not None:
            groups = [torch.nonzero(labels.cpu() == label).flatten() for label in range(classes or 0)]
        weights = points.new_zeros(len(groups), components)
        means = points.new_zeros(len(groups), components, dim)
        factors = torch.eye(dim, dtype=points.dtype).expand(len(groups), components, dim, dim).clone()
        for number, rows in enumerate(groups):
            if len(rows):
                fitted = _fit(points[rows].numpy(), components, seed)
                used = len(fitted.weights_)
                weights[number, :used] = torch.from_numpy(fitted.weights_)
                means[number, :used] = torch.from_numpy(fitted.means_)
                factors[number, :used] = torch.linalg.cholesky(torch.from_numpy(fitted.covariances_))
        return cls(weights, means, factors)

    @property
    def dim(self) -> int:
        """d, the length of a code."""
        return self.means.shape[-1]

    @property
    def scale(self) -> float:
        """Root mean square of the components' standard deviations, which sets the length of a step."""
        spread = self.factors.square().sum((-2, -1)) / self.dim
        return math.sqrt(float((self.weights * spread).sum() / self.weights.sum()))

    def of(self, labels: Tensor | None) -> Mixture:
        """The densities of the classes `labels` (m,), one per row; without labels, this density itself."""
        if labels is None:
            return self
        rows = labels.to(self.weights.device)
        return Mixture(self.weights[rows], self.means[rows], self.factors[rows])

    def sample(self, n: int, labels: Tensor | None, random: torch.Generator) -> Tensor:
        """n draws (n, d), from the densities of the classes `labels` (n,), if any."""
        group = torch.zeros(n, dtype=torch.int64) if labels is None else labels.cpu()
        component = torch.multinomial(self.weights[group], 1, generator=random).flatten()
        return self.draw(group, component, random)

    def draw(self, group: Tensor, component: Tensor, random: torch.Generator) -> Tensor:
        """One draw (n, d) from each of these components (n,) of these classes (n,)."""
        noise = torch.randn(len(group), self.dim, generator=random, dtype=torch.float64)
        shift = torch.einsum("nij,nj->ni", self.factors[group, component], noise)
        return self.means[group, component] + shift

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z): (n, d) -> (n,), differentiable, in z's dtype and device.

        With one class, its density applies to all rows of z; with n classes, the density of class i applies to row i.
        """
        return self._each(z).logsumexp(1) - 0.5 * self.dim * math.log(2 * math.pi)

    def likeliest(self, z: Tensor) -> Tensor:
        """argmax_k p(k | z), the component that each code most likely belongs to: (n, d) -> (n,) int64.

        Components without weight are not counted. Rows are as in `log_prob`.
        """
        return self._each(z).argmax(1)

    def _each(self, z: Tensor) -> Tensor:
        """log w_k N(z; m_k, S_k) for each component in use, up to the constant of the dimension: (n, used)."""
        used = (self.weights > 0).any(0)
        weights, means, factors = (part[:, used].to(z) for part in (self.weights, self.means, self.factors))
        volume = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        if len(weights) == 1:
            # All rows at once for each factor: a copy of every factor for every row would be gigabytes.
            centred = (z - means[0, :, None]).mT
            norms = torch.linalg.solve_triangular(factors[0], centred, upper=False).square().sum(1).T
        else:
            centred = (z[:, None] - means)[..., None]
            norms = torch.linalg.solve_triangular(factors, centred, upper=False)[..., 0].square().sum(-1)
        return weights.log() - 0.5 * norms - volume

    def in_units(self, shift: Tensor, factor: float) -> Mixture:
        """The law of (Z - shift) / factor, with shift (d,)."""
        return Mixture(self.weights, (self.means - shift) / factor, self.factors / factor)

    def tensors(self) -> dict[str, Tensor]:
        """The density as tensors, which `from_tensors` takes."""
        return {f"density.{name}": getattr(self, name) for name in NAMES}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Mixture:
        """The density whose `tensors` these are; they may come from a stranger."""
        weights, means, factors = (tensors[f"density.{name}"].cpu() for name in NAMES)
        whole = (
            weights.ndim == 2 and means.shape[:2] == weights.shape and factors.shape == (*means.shape, means.shape[-1])
        )
        known = all(part.dtype == torch.float64 and bool(part.isfinite().all()) for part in (weights, means, factors))
        if not whole or not known or bool((weights < 0).any()) or not float(weights.sum()) > 0:
            raise InputError("the tensors of a density do not belong together")
        return cls(weights, means, factors)


def _fit(points: np.ndarray, components: int, seed: int) -> GaussianMixture:
    # scikit-learn takes a second to import, and few commands fit a density.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    n, dim = points.shape
    variance = float(points.var(0).mean())
    # Seeding by k-means++ alone: the sums in Lloyd's iterations depend on the order of threads, those of EM do not.
    mixture = GaussianMixture(
        min(components, max(1, n // max(FEWEST, 2 * (dim + 1)))),
        covariance_type="full",
        init_params="k-means++",
        n_init=STARTS,
        max_iter=ROUNDS,
        reg_covar=max(RIDGE * variance, 1e-9),
        random_state=seed % 2**32,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # The estimator needs two points. A lone code, given twice, keeps its mean and gets the ridge as covariance.
        return mixture.fit(points if n > 1 else np.repeat(points, 2, axis=0))
