"""Make the pictures of docs/method.md from the embedded digits and from points in the plane: `python docs/pictures.py`.

It takes about a minute. The last digits of a training depend on the processor, so the pictures may differ slightly.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy import stats

from neurosql import NeuroSQL, assign, cost, data, prior

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#3f51b5", "#e65100", "#9e9e9e"
ROUNDS = (1, 20, 200)
POINTS = 300


def save(figure: Figure, name: str) -> None:
    """Write a picture without anything that changes from one time to the next."""
    figure.savefig(IMAGES / name, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def lattices() -> Figure:
    """Quantiles of the normal law in one dimension and in two, and random draws beside them."""
    figure, (line, plane, draws) = plt.subplots(1, 3, figsize=(11, 3.6))
    quantiles = prior.Normal(1).lattice(19).numpy()[:, 0]
    x = np.linspace(-3, 3, 200)
    line.plot(x, stats.norm.pdf(x), color=GREY)
    line.vlines(quantiles, 0, stats.norm.pdf(quantiles), color=BLUE, lw=1)
    line.plot(quantiles, np.zeros(19), "o", color=BLUE, ms=4)
    line.set(title="19 quantiles of a normal law", yticks=[], xlabel="each gap holds 1/20 of the probability")
    law = prior.Normal(2)
    for axes, points, title in (
        (plane, law.lattice(256), "a lattice: 256 quantiles in the plane"),
        (draws, law.sample(256, torch.Generator().manual_seed(1)), "256 random draws: gaps and clumps"),
    ):
        axes.plot(*points.numpy().T, ".", color=BLUE, ms=4)
        axes.set(title=title, xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal", xticks=[], yticks=[])
    figure.tight_layout()
    return figure


def costs() -> Figure:
    """The cost matrix of six digits and six others in the place of generated images, with the cheapest assignment."""
    digits = data.load("mnist-sample", limit=200)
    first = [int(np.flatnonzero(digits.labels == label)[0]) for label in (0, 1, 2, 3, 4, 7)]
    other = [int(np.flatnonzero(digits.labels == label)[3]) for label in (7, 2, 0, 4, 1, 3)]
    x, y = torch.from_numpy(digits.x[first]), torch.from_numpy(digits.x[other])
    matrix = cost.matrix(x, y).numpy()
    chosen = assign.solve(matrix).permutation
    figure, grid = plt.subplots(7, 7, figsize=(5.6, 5.6))
    for i, j in np.ndindex(7, 7):
        axes = grid[i, j]
        axes.set(xticks=[], yticks=[])
        if i == 0 and j == 0:
            axes.axis("off")
        elif i == 0 or j == 0:
            axes.imshow((y[j - 1] if i == 0 else x[i - 1])[0], cmap="gray_r", vmin=0, vmax=1)
        else:
            here = int(chosen[i - 1]) == j - 1
            shade = plt.get_cmap("Blues_r")((matrix[i - 1, j - 1] - matrix.min()) / np.ptp(matrix) * 0.5 + 0.45)
            axes.set_facecolor(shade)
            axes.text(
                0.5, 0.5, f"{matrix[i - 1, j - 1]:.2f}", ha="center", va="center", weight="bold" if here else None
            )
            if here:
                axes.add_patch(Rectangle((0, 0), 1, 1, fill=False, ec=ORANGE, lw=5, transform=axes.transAxes))
    grid[0, 3].set_title("generated images", loc="left")
    grid[3, 0].set_ylabel("training images")
    figure.subplots_adjust(wspace=0.06, hspace=0.06)
    return figure


def rounds() -> Figure:
    """Points on a spiral: their codes and what the generator makes of them, early and late in training."""
    along = np.linspace(0.15, 1, POINTS)
    angle = 3.2 * np.pi * along
    noise = np.random.default_rng(0).normal(0, 0.03, (POINTS, 2))
    spiral = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + noise
    figure, (above, below) = plt.subplots(2, len(ROUNDS), figsize=(3.4 * len(ROUNDS), 6.8))
    for codes, made, epochs in zip(above, below, ROUNDS):
        model = NeuroSQL(preset="plain", start="random", generator="mlp", epochs=epochs, validation_share=0.0)
        fresh = model.fit(spiral.astype(np.float32)).sample(1000, random_state=1)
        codes.scatter(*model.codes_.T, c=along, cmap="viridis", s=10)
        codes.set(title=f"codes after {epochs} epoch{'s' if epochs > 1 else ''}", aspect="equal", xticks=[], yticks=[])
        made.plot(*spiral.T, ".", color=GREY, ms=3)
        made.plot(*fresh.T, ".", color=ORANGE, ms=2)
        made.set(title="samples (orange), training points (grey)", aspect="equal", xticks=[], yticks=[])
        made.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4))
    figure.tight_layout()
    return figure


if __name__ == "__main__":
    save(lattices(), "method-lattice.png")
    save(costs(), "method-costs.png")
    save(rounds(), "method-rounds.png")
