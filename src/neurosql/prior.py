"""Priors and their multivariate quantiles.

A prior P_Z on R^d owns three things that must not disagree: a *lattice* of n fixed quantiles (the paper's
Q^n_1..Q^n_n, whose discrete law with mass 1/n at each point converges weakly to P_Z), a sampler and a
density. Multivariate quantiles follow the centre-outward construction: F± is the gradient of a convex
function that carries P_Z to the spherical uniform law of the unit ball (direction uniform on the sphere,
radius uniform on [0, 1], independent), and the quantile at a point u of the ball is F±^-1(u).

Order of the rows of a lattice, the same for each call with the same seed:

- d = 1: increasing, Q_i = F^-1(i / (n + 1)), whatever the seed;
- Sobol points, alone or mapped centre-outward: the order of the sequence, so that a shorter lattice is the
  beginning of a longer one;
- factorised grid and transported draws: from the centre outwards, shell by shell, with the same order of
  directions in each shell;
- iid: the order of the draw.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import special
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from neurosql.errors import InputError, whole

__all__ = ["LATTICES", "NAMES", "Ball", "Cube", "Normal", "Prior", "Radial", "Sampled", "factorise", "make"]

_SOBOL_BITS = 30


class Prior(ABC):
    """A law P_Z on R^d together with its quantiles; base class of all priors.

    `dim` is d, `name` the law, `lattice_kind` the construction of the lattice and `scale` the factor s > 0:
    if Z follows the law with s = 1, this prior is the law of s Z, in its lattice, its sampler and its density
    alike.
    """

    name: str
    lattice_kinds: tuple[str, ...]
    """Possible constructions of the lattice; the first is the default."""
    has_density: bool = True
    """Whether `log_prob` can be evaluated."""
    has_mode: bool = True
    """Whether the density is bounded, so that it makes sense to look for a most likely point."""

    def __init__(self, dim: int, lattice: str, scale: float) -> None:
        self.dim = whole("latent_dim", dim, 1)
        _choice(f"the lattice of the {self.name} prior", lattice, self.lattice_kinds)
        self.lattice_kind = lattice
        self.scale = _real("scale", scale)
        if self.scale <= 0:
            raise InputError(f"scale must be greater than 0, got {scale}")

    def lattice(self, n: int, seed: int = 0) -> Tensor:
        """n quantiles Q^n of the prior, (n, d) float64, in the order given at the top of this module."""
        n, seed = whole("n", n, 1), whole("seed", seed, 0)
        if self.lattice_kind == "iid":
            return self.sample(n, torch.Generator().manual_seed(seed))
        return torch.from_numpy(self.scale * self._quantiles(n, seed))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """n independent draws from the prior, (n, d) float64, on the generator's device."""
        return self.scale * self._draw(whole("n", n, 1), generator)

    def log_prob(self, z: Tensor) -> Tensor:
        """log p(z) = log p_1(z / s) - d log s with p_1 the density at scale 1; (n, d) -> (n,), -inf outside.

        Differentiable in z; keeps its dtype and device. Points within rounding of the support's edge count as
        inside.
        """
        _check_rows("z", z, self.dim)
        return self._log_density(z / self.scale) - self.dim * math.log(self.scale)

    @abstractmethod
    def _quantiles(self, n: int, seed: int) -> np.ndarray:
        """The lattice at scale 1, (n, d)."""

    @abstractmethod
    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        """A sample at scale 1, (n, d)."""

    @abstractmethod
    def _log_density(self, z: Tensor) -> Tensor:
        """log density at scale 1, (n, d) -> (n,)."""

    def __repr__(self) -> str:
        return f"<{self.name} prior: dim {self.dim}, lattice {self.lattice_kind}, scale {self.scale:g}>"


class Radial(Prior):
    """A prior that is invariant under rotation, so that F± is known in closed form.

    With F_R the distribution function of |Z|, F±(z) = F_R(|z|) z / |z|: radial and increasing, hence the
    gradient of a convex function.
    """

    def to_ball(self, z: Tensor) -> Tensor:
        """Centre-outward distribution function F±(z) = F_R(|z|) z / |z|, (n, d) -> (n, d) in the unit ball.

        |F±(z)| is the centre-outward rank of z and F±(z) / |F±(z)| its sign. If Z follows the prior, F±(Z)
        follows the spherical uniform law. Computed in float64, returned in z's dtype and device, without
        gradient.
        """
        radius, direction = _polar(_rows("z", z, self.dim) / self.scale)
        return torch.from_numpy(self._radial_cdf(radius) * direction).to(z)

    def from_ball(self, u: Tensor) -> Tensor:
        """Centre-outward quantile function F±^-1(u) = F_R^-1(|u|) u / |u|, (n, d) in the unit ball -> (n, d).

        The inverse of `to_ball`. The image of the sphere of radius q is the quantile contour of order q: it
        encloses probability q. F±^-1(0) = 0 is the median. Computed in float64, returned in u's dtype and
        device, without gradient.
        """
        order, direction = _polar(_rows("u", u, self.dim))
        if not (order <= 1 + 4 * torch.finfo(u.dtype).eps).all():
            raise InputError(f"u must lie in the unit ball, got a point of norm {order.max():g}")
        # A norm that rounding took to 1 would give infinity, and infinity times a zero coordinate is nan.
        order = np.minimum(order, 1 - 2.0**-53)
        return torch.from_numpy(self.scale * self._radial_quantile(order) * direction).to(u)

    def _outward(self, u: np.ndarray) -> np.ndarray:
        """F±^-1 at scale 1."""
        order, direction = _polar(u)
        return self._radial_quantile(order) * direction

    @abstractmethod
    def _radial_cdf(self, radius: np.ndarray) -> np.ndarray:
        """F_R at scale 1."""

    @abstractmethod
    def _radial_quantile(self, order: np.ndarray) -> np.ndarray:
        """F_R^-1 at scale 1."""


class Normal(Radial):
    """N(0, s^2 I_d).

    Lattices, with Phi the standard normal and chi_d the distribution function of the norm of a standard
    normal vector:

    - `sobol` (default): Q = Phi^-1(S) coordinatewise, S a scrambled Sobol point of (0, 1)^d;
    - `centre-outward`: Q = chi_d^-1(|U|) U / |U| = F±^-1(U), U from the Sobol lattice of the spherical
      uniform ball;
    - `centre-outward-lebesgue`: Q = chi_d^-1(|U|^d) U / |U|, U from the Sobol lattice of the Lebesgue ball.
      Both balls are polar images of the same Sobol points, so this equals `centre-outward` up to rounding;
    - `grid`: F±^-1 of the factorised grid of the ball;
    - `iid`: a random sample.
    """

    name = "normal"
    lattice_kinds = ("sobol", "centre-outward", "centre-outward-lebesgue", "grid", "iid")

    def __init__(self, dim: int, lattice: str = "sobol", scale: float = 1.0) -> None:
        super().__init__(dim, lattice, scale)

    def _quantiles(self, n: int, seed: int) -> np.ndarray:
        if self.lattice_kind == "sobol":
            return special.ndtri(_cube_points(n, self.dim, seed))
        if self.lattice_kind == "grid":
            return self._outward(_ball_grid(n, self.dim, seed))
        if self.lattice_kind == "centre-outward-lebesgue":
            lebesgue = Ball(self.dim, law="lebesgue")
            return self._outward(lebesgue.to_ball(lebesgue.lattice(n, seed)).numpy())
        return self._outward(_ball_points(n, self.dim, seed))

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        return _noise(torch.randn, n, self.dim, generator)

    def _log_density(self, z: Tensor) -> Tensor:
        return -0.5 * z.square().sum(-1) - 0.5 * self.dim * math.log(2 * math.pi)

    def _radial_cdf(self, radius: np.ndarray) -> np.ndarray:
        return special.gammainc(self.dim / 2, radius**2 / 2)

    def _radial_quantile(self, order: np.ndarray) -> np.ndarray:
        return np.sqrt(2 * special.gammaincinv(self.dim / 2, order))


class Cube(Prior):
    """Uniform law on the cube [s low, s high]^d.

    Lattices: `sobol` (default), Q = low + (high - low) S with S a scrambled Sobol point of (0, 1)^d; `iid`, a
    random sample.
    """

    name = "cube"
    lattice_kinds = ("sobol", "iid")

    def __init__(
        self, dim: int, low: float = 0.0, high: float = 1.0, lattice: str = "sobol", scale: float = 1.0
    ) -> None:
        super().__init__(dim, lattice, scale)
        self.low, self.high = _real("low", low), _real("high", high)
        if self.low >= self.high:
            raise InputError(f"low must be less than high, got low {low} and high {high}")

    def _quantiles(self, n: int, seed: int) -> np.ndarray:
        return self.low + (self.high - self.low) * _cube_points(n, self.dim, seed)

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        return self.low + (self.high - self.low) * _noise(torch.rand, n, self.dim, generator)

    def _log_density(self, z: Tensor) -> Tensor:
        slack = 4 * torch.finfo(z.dtype).eps * max(abs(self.low), abs(self.high))
        inside = ((z >= self.low - slack) & (z <= self.high + slack)).all(-1)
        flat = 0 * z.sum(-1) - self.dim * math.log(self.high - self.low)
        return torch.where(inside, flat, -math.inf)


class Ball(Radial):
    """Uniform law on the ball of radius s, in one of two senses that differ for d > 1.

    - law `lebesgue`: constant density 1 / (V_d s^d); |Z| / s has distribution function r^d;
    - law `spherical`: |Z| / s is uniform on [0, 1], density 1 / (A_d s |z|^(d-1)), infinite at the origin;
      the reference law of centre-outward quantiles, where F± is z / s.

    V_d is the volume of the unit ball and A_d = d V_d the area of its sphere. Lattices, with S a scrambled
    Sobol point of (0, 1)^(d+1) and V the direction of Phi^-1(S_2..S_(d+1)): `sobol` (default),
    Q = F_R^-1(S_1) V; `grid`, F±^-1 of the factorised grid; `iid`, a random sample.
    """

    name = "ball"
    lattice_kinds = ("sobol", "grid", "iid")
    laws = ("lebesgue", "spherical")

    def __init__(self, dim: int, law: str = "lebesgue", lattice: str = "sobol", scale: float = 1.0) -> None:
        _choice("the law of the ball", law, self.laws)
        self.law = law
        self.name = "ball" if law == "lebesgue" else "spherical"
        super().__init__(dim, lattice, scale)
        self._power = self.dim if law == "lebesgue" else 1
        self.has_mode = self._power == self.dim

    def _quantiles(self, n: int, seed: int) -> np.ndarray:
        points = _ball_grid if self.lattice_kind == "grid" else _ball_points
        return self._outward(points(n, self.dim, seed))

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        direction = torch.nn.functional.normalize(_noise(torch.randn, n, self.dim, generator))
        return _noise(torch.rand, n, 1, generator) ** (1 / self._power) * direction

    def _log_density(self, z: Tensor) -> Tensor:
        radius = torch.linalg.vector_norm(z, dim=-1)
        log_volume = self.dim / 2 * math.log(math.pi) - math.lgamma(self.dim / 2 + 1)
        if self._power == self.dim:
            inner = 0 * z.sum(-1) - log_volume
        else:
            inner = -(self.dim - 1) * radius.log() - log_volume - math.log(self.dim)
        return torch.where(radius <= 1 + 4 * torch.finfo(z.dtype).eps, inner, -math.inf)

    def _radial_cdf(self, radius: np.ndarray) -> np.ndarray:
        return np.minimum(radius, 1) ** self._power

    def _radial_quantile(self, order: np.ndarray) -> np.ndarray:
        return order ** (1 / self._power)


class Sampled(Prior):
    """Any continuous law on R^d that can be sampled: `sampler(n, generator)` returns (n, d) draws.

    `log_prob(z)`, (n, d) -> (n,), is its log density, if there is one to give. The lattice solves the
    discrete transport from the factorised grid u_1..u_n of the ball to N = k n draws x_1..x_N, where
    k = max(1, draws // n):

        max over partitions C_1..C_n of the draws, each of k draws, of  sum_i sum_{j in C_i} <u_i, x_j>

    Cell C_i is the empirical counterpart of F±^-1 near u_i and holds 1/n of the draws. Q_i is the draw of C_i
    that was made first, a uniform choice within the cell, so that the lattice is a sample of the law
    stratified by its quantile cells: each Q_i lies in the support, and the mean of any function over the
    lattice is unbiased for its mean over the draws. The mean of a cell could fall in a hole of the support,
    and in high dimension the means, or the draws nearest to them, shrink towards the centre. For d = 1 the
    transport is a sort, and Q_i is the empirical quantile of order i / (n + 1).

    Time grows as N^3 and memory as 8 N^2 bytes. With k = 1 the lattice is the N = n draws themselves, in the
    grid's order.
    """

    name = "sampled"
    lattice_kinds = ("transport", "iid")

    def __init__(
        self,
        sampler: Callable[[int, torch.Generator | None], Tensor],
        dim: int,
        log_prob: Callable[[Tensor], Tensor] | None = None,
        draws: int = 2048,
        lattice: str = "transport",
        scale: float = 1.0,
    ) -> None:
        super().__init__(dim, lattice, scale)
        self.sampler = sampler
        self.density = log_prob
        self.has_density = self.has_mode = log_prob is not None
        self.draws = whole("draws", draws, 1)

    def _quantiles(self, n: int, seed: int) -> np.ndarray:
        share = max(1, self.draws // n)
        draws = self._draw(n * share, torch.Generator().manual_seed(seed)).cpu().numpy()
        if self.dim == 1:
            rank = np.ceil(np.arange(1, n + 1) * len(draws) / (n + 1)).astype(int) - 1
            return np.sort(draws, axis=0)[rank]
        # A shift and one common factor leave the optimal partition as it is; a factor for each coordinate
        # would not. A plain n x N assignment would keep the draws most like the grid and drop the others, so
        # each grid point stands k times.
        centred = draws - draws.mean(0)
        centred /= np.sqrt(np.square(centred).sum(1).mean()) or 1.0
        grid = np.repeat(_ball_grid(n, self.dim, seed), share, axis=0)
        cells = linear_sum_assignment(grid @ centred.T, maximize=True)[1].reshape(n, share)
        return draws[cells.min(1)]

    def _draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        x = torch.as_tensor(self.sampler(n, generator)).detach().to(torch.float64)
        if x.shape != (n, self.dim):
            raise InputError(f"the sampler must return shape ({n}, {self.dim}), got {tuple(x.shape)}")
        if not x.isfinite().all():
            raise InputError("the sampler must return finite numbers, got infinite or missing ones")
        return x

    def _log_density(self, z: Tensor) -> Tensor:
        if self.density is None:
            raise InputError("this prior has no density: give Sampled a log_prob to use it")
        return self.density(z)


NAMES = ("normal", "cube", "ball", "spherical")
LATTICES = {
    "normal": Normal.lattice_kinds,
    "cube": Cube.lattice_kinds,
    "ball": Ball.lattice_kinds,
    "spherical": Ball.lattice_kinds,
}


def make(name: str, dim: int, lattice: str | None = None, scale: float = 1.0) -> Prior:
    """The prior called `name` (one of NAMES) on R^dim; `lattice` None is the first of LATTICES[name]."""
    _choice("the prior", name, NAMES)
    kind = LATTICES[name][0] if lattice is None else lattice
    if name == "normal":
        return Normal(dim, lattice=kind, scale=scale)
    if name == "cube":
        return Cube(dim, lattice=kind, scale=scale)
    return Ball(dim, law="lebesgue" if name == "ball" else "spherical", lattice=kind, scale=scale)


def factorise(n: int, dim: int) -> tuple[int, int, int]:
    """(n_R, n_S, n_0), n = n_R n_S + n_0, n_0 < min(n_R, n_S): shells, directions and points at the centre.

    For d > 1. n_R makes the cells of the grid about as long as they are wide at radius 1/2, where the sphere
    has area A_d / 2^(d-1): n_R = (2^(d-1) n / A_d)^(1/d).
    """
    n, dim = whole("n", n, 1), whole("latent_dim", dim, 2)
    log_area = math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)
    shells = round(math.exp((math.log(n) + (dim - 1) * math.log(2) - log_area) / dim))
    shells = min(max(shells, 1), math.isqrt(n))
    return shells, n // shells, n % shells


def _ball_points(n: int, dim: int, seed: int) -> np.ndarray:
    """Points of the spherical uniform ball: radius and direction from one Sobol point of (0, 1)^(d+1)."""
    if dim == 1:
        return 2 * _cube_points(n, 1, seed) - 1
    s = _cube_points(n, dim + 1, seed)
    return s[:, :1] * _polar(special.ndtri(s[:, 1:]))[1]


def _ball_grid(n: int, dim: int, seed: int) -> np.ndarray:
    """Factorised grid of the spherical uniform ball: n_0 central points, then n_R shells of n_S points."""
    if dim == 1:
        return _ball_points(n, 1, seed)
    if n == 1:
        return np.zeros((1, dim))
    n_r, n_s, n_0 = factorise(n, dim)
    shells = np.arange(1, n_r + 1)[:, None, None] / (n_r + 1) * _directions(n_s, dim, seed)
    # Copies of the origin would be one code repeated: two or more stand at half the first radius.
    centre = np.zeros((n_0, dim)) if n_0 < 2 else 0.5 / (n_r + 1) * _directions(n_0, dim, seed)
    return np.concatenate([centre, shells.reshape(-1, dim)])


def _directions(n: int, dim: int, seed: int) -> np.ndarray:
    """n well spread points of the sphere: equal angles (d = 2), Fibonacci (d = 3), Sobol-normal (d > 3)."""
    i = np.arange(n)
    if dim == 2:
        angle = 2 * np.pi * i / n
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if dim == 3:
        height = 1 - (2 * i + 1) / n
        angle = np.pi * (3 - np.sqrt(5)) * i
        girth = np.sqrt(1 - height**2)
        return np.stack([girth * np.cos(angle), girth * np.sin(angle), height], axis=1)
    return _polar(special.ndtri(_cube_points(n, dim, seed)))[1]


def _cube_points(n: int, dim: int, seed: int) -> np.ndarray:
    """Points of the open cube (0, 1)^d: i / (n + 1) for d = 1, else a scrambled Sobol sequence."""
    if dim == 1:
        return np.arange(1, n + 1)[:, None] / (n + 1)
    # It takes nearly a second to import, and only training needs it.
    from scipy.stats import qmc

    if dim > (most := qmc.Sobol.MAXDIM):
        raise InputError(f"a Sobol lattice has at most {most} coordinates, got {dim}: use lattice iid")
    engine = qmc.Sobol(dim, scramble=True, bits=_SOBOL_BITS, rng=np.random.default_rng(seed))
    # Coordinates are multiples of 2^-bits from 0 on; the middle of the step keeps them off 0 and 1, unbiased.
    return engine.random_base2((n - 1).bit_length())[:n] + 0.5 ** (_SOBOL_BITS + 1)


def _polar(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Norms (n, 1) and directions (n, d) of the rows; the direction of 0 is 0."""
    # Orders near the centre are as small as r^d, and their squares would underflow.
    top = np.abs(x).max(1, keepdims=True)
    unit = x / np.where(top == 0, 1, top)
    norm = np.linalg.norm(unit, axis=1, keepdims=True)
    return top * norm, unit / np.where(norm == 0, 1, norm)


def _noise(draw: Callable[..., Tensor], n: int, dim: int, generator: torch.Generator | None) -> Tensor:
    device = None if generator is None else generator.device
    return draw(n, dim, dtype=torch.float64, generator=generator, device=device)


def _rows(what: str, x: Tensor, dim: int) -> np.ndarray:
    _check_rows(what, x, dim)
    return x.detach().to("cpu", torch.float64).numpy()


def _check_rows(what: str, x: Tensor, dim: int) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"{what} must be a tensor of real numbers, got {kind}")
    if x.ndim != 2 or x.shape[1] != dim:
        raise InputError(f"{what} must have shape (n, {dim}), got {tuple(x.shape)}")


def _real(what: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{what} must be a finite number, got {value!r}")
    return number


def _choice(what: str, value: str, possible: tuple[str, ...]) -> None:
    if value not in possible:
        raise InputError(f"{what} must be one of {', '.join(possible)}, got {value!r}")
