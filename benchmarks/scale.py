"""Measure how the time of a mini-batch step grows, fit a model, check it on sizes that it was not fitted to.

    python benchmarks/scale.py [--rounds 3] [--steps 8] [--out results/scale.md]

A step has four parts: the decoder's step (forward, loss, backward, update), the images of the batch's lattice points,
the cost of all pairs of the batch, and its assignment. The model of a step on m images of p values, whose generator
takes F multiplications and additions per image, has few terms, none negative:

    decoder      a0 + m (a1 + a2 F + a3 p)
    generate     b0 + m (b1 + b2 F + b3 p)
    cost         c0 + c1 m p + c2 m^2 p
    assignment   e0 + e1 m + e2 m^2

Its coefficients are fitted by least squares of relative errors to the grid of `FITTED`, on one thread, and the result
is compared with the sizes of `CHECKED`. What it says about an epoch of many images on many ranks follows from them,
from the bytes that ranks exchange (4 per parameter and step, `benchmarks/ranks.py` counts them) and from a network that
is assumed.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import nnls
from torch.utils.flop_counter import FlopCounterMode

import neurosql
from neurosql.data import from_array

PARTS = ("decoder", "generate", "cost", "assignment")
BANDWIDTH, LATENCY = 1.25e9, 1e-4
"""Bytes per second and seconds per message of the network that is assumed: 10 Gbit/s."""
MESSAGES = 8
"""Exchanges in a step: gradients, batch norms forward and backward, decisions, the batch's new rows."""
START, ORDER, HELD = 540e-6, 1.6e-6, 530
"""Seconds per image before the first step (one process does it) and once per epoch, and bytes per image that every rank
keeps: as `benchmarks/large_n.py` measured them for 10^6 images, beside other work."""


@cache
def operations(side: int, d: int) -> int:
    """Multiplications and additions of the generator per image."""
    net = neurosql.generators.make("convnet", (1, side, side), d).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net(torch.zeros(1, d))
    return counter.get_total_flops()


@dataclass(frozen=True)
class Size:
    """A step's size: m images per batch, `side` pixels per side, d latent dimensions."""

    m: int
    side: int
    d: int

    @property
    def p(self) -> int:
        """Values per image."""
        return self.side**2

    def terms(self, part: str) -> list[float]:
        """What each coefficient of a part is multiplied by."""
        m, p = float(self.m), float(self.p)
        if part in ("decoder", "generate"):
            return [1, m, m * operations(self.side, self.d), m * p]
        return [1, m * p, m * m * p] if part == "cost" else [1, m, m * m]


FITTED = [Size(m, side, d) for m, side, d in itertools.product((32, 64, 128, 256), (16, 24, 32, 48), (2, 32))]
CHECKED = [Size(96, 28, 8), Size(192, 40, 16), Size(512, 32, 8), Size(64, 64, 64)]


def measured(size: Size, steps: int) -> dict[str, float]:
    """Median seconds of each part of a step; the first epoch is not counted."""
    rows = size.m * steps
    x = np.random.default_rng(0).random((rows, size.side, size.side), np.float32)
    told: list[dict[str, float]] = []
    neurosql.fit(
        from_array(x),
        preset="plain",
        algorithm="mini-batch",
        generator="convnet",
        latent_dim=size.d,
        batch_size=size.m,
        epochs=3,
        validation_share=0.0,
        start="random",
        precision="float32",
        callback=lambda figures: told.append(figures["seconds"]),
    )
    return {part: statistics.median(of_epoch.get(part, 0.0) / steps for of_epoch in told[1:]) for part in PARTS}


def fit(sizes: Sequence[Size], seconds: Sequence[float], part: str) -> np.ndarray:
    """Coefficients of a part, none negative, by least squares of relative errors."""
    matrix = np.array([size.terms(part) for size in sizes])
    weight = 1 / np.array(seconds)
    scale = (matrix * weight[:, None]).max(0)
    return nnls(matrix * weight[:, None] / scale, np.ones(len(sizes)))[0] / scale


def predicted(model: dict[str, np.ndarray], size: Size) -> dict[str, float]:
    """Seconds of each part of a step."""
    return {part: float(np.dot(model[part], size.terms(part))) for part in PARTS}


def checks(model: dict[str, np.ndarray], found: dict[Size, dict[str, float]]) -> list[str]:
    """Measured and predicted, for sizes that the model was not fitted to."""
    lines = ["| m | pixels | d | measured, ms | model, ms | ratio |", "| ---: | ---: | ---: | ---: | ---: | ---: |"]
    for size in CHECKED:
        took, said = sum(found[size].values()), sum(predicted(model, size).values())
        shown = f"{1e3 * took:.1f} | {1e3 * said:.1f} | {said / took:.2f}"
        lines.append(f"| {size.m} | {size.side} x {size.side} | {size.d} | {shown} |")
    return lines


def parts(model: dict[str, np.ndarray]) -> list[str]:
    """Where the time of a step goes, at 32 x 32 pixels and d = 8."""
    lines = ["| m | " + " | ".join(f"{part}, ms" for part in PARTS) + " | per image, ms |"]
    lines.append("| ---: |" + " ---: |" * (len(PARTS) + 1))
    for m in (64, 256, 1024, 4096, 16384):
        said = predicted(model, Size(m, 32, 8))
        cells = " | ".join(f"{1e3 * said[part]:,.1f}" for part in PARTS)
        lines.append(f"| {m:,} | {cells} | {1e3 * sum(said.values()) / m:.2f} |")
    return lines


def extrapolated(model: dict[str, np.ndarray], parameters: int) -> list[str]:
    """A run on 32 x 32 images with d = 8: by number of images, of ranks, and of images per rank and step."""
    head = ["images", "ranks", "batch", "start", "steps", "network", "order", "epoch", "memory of each rank"]
    lines = ["| " + " | ".join(head) + " |", "| ---: |" + " ---: |" * (len(head) - 1)]
    for n, ranks, own in ((10**6, 1, 64), (10**6, 16, 16), (10**8, 16, 64), (10**8, 1000, 16), (10**8, 1000, 64)):
        batch = own * ranks
        steps = n / batch
        # Each rank decodes and assigns the images that it has.
        compute = steps * sum(predicted(model, Size(own, 32, 8)).values())
        sent = 2 * (ranks - 1) / ranks * 4 * parameters + 24 * batch
        network = steps * (sent / BANDWIDTH + MESSAGES * LATENCY) if ranks > 1 else 0.0
        parts = (n * START, compute, network, n * ORDER, compute + network + n * ORDER)
        times = " | ".join(_time(seconds) for seconds in parts)
        lines.append(f"| {n:.0e} | {ranks:,} | {batch:,} | {times} | {n * HELD / 1e9:.1f} GB |")
    return lines


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="times that every size is measured, in turn")
    parser.add_argument("--steps", type=int, default=8, help="steps per epoch; two epochs are counted")
    parser.add_argument("--out", type=Path, help="write the tables to this page")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rounds = [{size: measured(size, given.steps) for size in (*FITTED, *CHECKED)} for _ in range(given.rounds)]
    found = {size: {part: statistics.median(one[size][part] for one in rounds) for part in PARTS} for size in rounds[0]}
    model = {part: fit(FITTED, [found[size][part] for size in FITTED], part) for part in PARTS}
    parameters = sum(p.numel() for p in neurosql.generators.make("convnet", (1, 32, 32), 8).parameters())
    lines = ["# The model of a step", "", "Sizes that it was not fitted to:", "", *checks(model, found)]
    lines += ["", "Where the time goes, 32 x 32 pixels, d = 8, one thread:", "", *parts(model)]
    lines += ["", "An epoch, extrapolated:", "", *extrapolated(model, parameters)]
    lines += ["", "Coefficients, in seconds:", ""]
    lines += [f"- {part}: {', '.join(f'{value:.3g}' for value in model[part])}" for part in PARTS]
    print("\n".join(lines))
    if given.out:
        lines += ["", f"Made by `python benchmarks/scale.py --out {given.out.as_posix()}`."]
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
