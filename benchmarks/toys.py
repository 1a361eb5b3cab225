"""Every method on laws in the plane: two moons, eight Gaussians, a spiral.

    python benchmarks/toys.py [--methods neurosql vae ...] [--out docs/images/toys.png]

All methods have the same MLP generator, latent dimension 2, points and budget; the networks of diffusion and flow
matching are as large as that generator. Rows are laws and columns are methods. Training points are grey; as many
samples are coloured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import neurosql
from neurosql.errors import InputError
from neurosql.settings import METHODS

BUDGET = {"generator": "mlp", "width": 128, "latent_dim": 2, "batch_size": 128, "validation_share": 0.0, "patience": 0}
COLOUR, GREY = "#d1495b", "#bbbbbb"


def two_moons(n: int, random: np.random.Generator) -> np.ndarray:
    """Two interleaved half circles."""
    angle, second = np.pi * random.uniform(size=n), random.uniform(size=n) < 0.5
    upper = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.where(second[:, None], [1.0, 0.5] - upper, upper) + 0.06 * random.normal(size=(n, 2))


def eight_gaussians(n: int, random: np.random.Generator) -> np.ndarray:
    """Eight equal modes on a circle."""
    angle = np.pi / 4 * random.integers(0, 8, n)
    return 2 * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.15 * random.normal(size=(n, 2))


def spiral(n: int, random: np.random.Generator) -> np.ndarray:
    """One arm of one and a half turns, uniform along its length."""
    angle = 3 * np.pi * np.sqrt(random.uniform(0.03, 1, n))
    return np.column_stack([angle * np.cos(angle), angle * np.sin(angle)]) / 3 + 0.08 * random.normal(size=(n, 2))


LAWS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "two moons": two_moons,
    "eight Gaussians": eight_gaussians,
    "spiral": spiral,
}


def learn(method: str, x: np.ndarray, epochs: int, seed: int) -> tuple[np.ndarray, float, int]:
    """n samples in the units of the points x (n, 2), the seconds, and the number of parameters that sampling uses."""
    began = time.perf_counter()
    run = neurosql.fit(x, method=method, epochs=epochs, seed=seed, **BUDGET)
    seconds = time.perf_counter() - began
    samples = run.like.restore(run.sample(len(x), seed=seed)[0])
    return samples, seconds, run.method.parameters(*run.method.sampling)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="columns, in this order"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images/toys.png"), help="picture to write")
    parser.add_argument("--points", type=int, default=1024, help="training points of each law")
    parser.add_argument("--epochs", type=int, default=250, help="passes over the points, in batches of 128")
    parser.add_argument("--seed", type=int, default=0, help="seed of points, weights and samples")
    chosen = parser.parse_args()
    methods = chosen.methods

    rows, columns = len(LAWS), len(methods)
    figure = Figure(figsize=(1.9 * columns, 1.95 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for row, (law, draw) in zip(panels, LAWS.items()):
        x = draw(chosen.points, np.random.default_rng(chosen.seed))
        middle, reach = (x.max(0) + x.min(0)) / 2, 0.6 * np.ptp(x, axis=0).max()
        for axes, method in zip(row, methods):
            samples, seconds, parameters = learn(method, x, chosen.epochs, chosen.seed)
            print(f"{law:<16} {method:<10} {seconds:6.1f} s  {parameters:,} parameters", flush=True)
            axes.scatter(*x.T, s=3, c=GREY, linewidths=0)
            axes.scatter(*samples.T, s=3, c=COLOUR, linewidths=0, alpha=0.7)
            axes.set(xlim=(middle[0] - reach, middle[0] + reach), ylim=(middle[1] - reach, middle[1] + reach))
            axes.set(xticks=[], yticks=[], aspect="equal")
            axes.spines[:].set_color("#dddddd")
        row[0].set_ylabel(law)
    for axes, method in zip(panels[0], methods):
        axes.set_title(method, fontsize=11)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(chosen.out, dpi=110)
    print(f"wrote {chosen.out}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
