"""Thirty-six samples of every method, side by side: the same digits, latent dimension and budget for all.

    python benchmarks/sheets.py [--latent-dim 8] [--runs runs/rivals] [--methods neurosql vae ...]

Each method's run stays in its own folder under --runs. A run that is there already is opened, or gone on with if it was
stopped, so the command can be stopped and given again. The picture is written to docs/images/rivals.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from toys import present

import neurosql
from neurosql import data, presets
from neurosql import run as runs
from neurosql.checkpoint import CHECKPOINT, RunFolder
from neurosql.errors import InputError
from neurosql.methods import NAMES
from neurosql.training import Stopped

SIDE = 6
COLUMNS = 5


def finished(path: Path) -> bool:
    folder = RunFolder.existing(path)
    if not folder.has(CHECKPOINT):
        return False
    state = folder.read_tensors(CHECKPOINT)[1]
    return state["phase"] == "closing" and state["epoch"] >= state["closing_epochs"]


def run_of(method: str, chosen: argparse.Namespace) -> runs.Run:
    """The method's run: opened, gone on with, or trained."""
    path = chosen.runs / f"{method}-d{chosen.latent_dim}-n{chosen.limit}-e{chosen.epochs}-s{chosen.seed}"
    if path.exists() and finished(path):
        return neurosql.open_run(path)
    print(f"{method}: {'going on in' if path.exists() else 'training'} {path}", flush=True)
    if path.exists():
        return runs.resume(path, lambda source, how: data.load(source, settings=how[0], seed=how[1]), progress=True)
    own = {"latent_dim": chosen.latent_dim, "epochs": chosen.epochs, "seed": chosen.seed}
    settings = presets.settings(method, "recommended", "laptop", **own)
    return runs.train(data.load("mnist-sample", chosen.limit), settings, path, progress=True)


def sheet(images: np.ndarray) -> np.ndarray:
    """Images (36, c, h, w) in rows of six, with a white line between them: (height, width)."""
    framed = np.pad(images[: SIDE * SIDE, 0], ((0, 0), (1, 1), (1, 1)), constant_values=1.0)
    height, width = framed.shape[1:]
    return framed.reshape(SIDE, SIDE, height, width).swapaxes(1, 2).reshape(SIDE * height, SIDE * width)


def caption(run: runs.Run) -> str:
    """Steps and parameters trained and, where these are fewer, the parameters that sampling needs."""
    sampling = run.method.parameters(*run.method.sampling)
    if run.used is None:
        return f"{sampling:,} parameters"
    first = f"{run.used.steps:,} steps, {run.used.parameters_trained:,} parameters"
    return first if sampling == run.used.parameters_trained else f"{first}\n{sampling:,} of them to sample"


def draw(panels: list[tuple[str, np.ndarray, str]], path: Path) -> None:
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.6 * columns, 3.2 * rows), layout="constrained")
    for axes in figure.subplots(rows, columns, squeeze=False).flat:
        axes.set_axis_off()
    for axes, (title, images, beneath) in zip(figure.axes, panels):
        axes.imshow(sheet(images), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=12)
        axes.text(0.5, -0.02, beneath, transform=axes.transAxes, ha="center", va="top", fontsize=8, color="#555555")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latent-dim", type=int, default=8, help="latent dimension d")
    parser.add_argument("--methods", nargs="+", choices=NAMES, default=list(NAMES), help="sheets, in this order")
    parser.add_argument("--runs", type=Path, default=Path("runs/rivals"), help="folder of the runs")
    parser.add_argument("--limit", type=int, default=2000, help="training digits")
    parser.add_argument("--epochs", type=int, default=presets.BUDGETS["laptop"]["epochs"], help="the budget")
    parser.add_argument("--seed", type=int, default=0, help="seed of the runs and of the samples")
    parser.add_argument("--out", type=Path, default=Path("docs/images/rivals.png"), help="picture to write")
    chosen = parser.parse_args()

    digits = data.load("mnist-sample", chosen.limit)
    shown = np.random.default_rng(chosen.seed).permutation(len(digits))[: SIDE * SIDE]
    panels = [("training digits", digits.x[shown], f"{len(digits)} images")]
    for method in present(chosen.methods):
        run = run_of(method, chosen)
        panels.append((method, run.sample(SIDE * SIDE, seed=chosen.seed)[0], caption(run)))
        # After each method, so that a stopped command has drawn what there is.
        draw(panels, chosen.out)
        print(f"{method}: drawn", flush=True)
    print(f"wrote {chosen.out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
    except Stopped:
        raise SystemExit("stopped; give the command again to go on") from None
