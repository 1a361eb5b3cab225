"""Race the engine against other libraries, on cost matrices of a real training run.

    python benchmarks/engine.py --matrices FOLDER [--out results/engine.md]

The contenders of a race run in turn, round after round, and their medians are compared with that of the reference in
the same race: on a shared machine only the ratio is meaningful. One thread is used unless a row says otherwise. Solvers
that are not installed are left out (`pip install lapx lapjv fastlap ortools pytorch-msssim POT`). FOLDER holds what
`benchmarks/matrices.py` recorded; for sizes that were not recorded, random parts of the matrices of 2000 are used.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import solvers
import torch

from neurosql import engine
from neurosql.cost import Cost
from neurosql.similarity import ssim_matrix

# Shapes, with so many images of each that a matrix takes the best instruction set half a second or more.
SHAPES = {(1, 28, 28): 1536, (3, 64, 64): 320, (1, 128, 128): 256}
COST_ROUNDS = 5


def race(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each contender, interleaved; the first round only warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seconds.items()}


def naive_cost(x: torch.Tensor, y: torch.Tensor, chunk: int) -> torch.Tensor:
    """The usual way: pytorch-msssim and L1 on repeated images."""
    ssim = importlib.import_module("pytorch_msssim").ssim
    n, m = len(x), len(y)
    out = torch.empty(n * m)
    for first in range(0, n * m, chunk):
        pair = torch.arange(first, min(first + chunk, n * m))
        a, b = x[pair // m], y[pair % m]
        similar = ssim(a, b, data_range=1.0, size_average=False)
        out[pair] = 0.5 * (1 - similar) + 0.5 * (a - b).abs().flatten(1).mean(1)
    return out.view(n, m)


def plain_cost(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    similar = ssim_matrix(x, y, 2**28)
    return 0.5 * (1 - similar) + 0.5 * torch.cdist(x.flatten(1), y.flatten(1), p=1) / x[0].numel()


def compiled_cost(x: torch.Tensor, y: torch.Tensor, instruction_set: str, threads: int = 1) -> torch.Tensor:
    os.environ["NEUROSQL_ISA"] = instruction_set
    torch.set_num_threads(threads)
    result = Cost().matrix(x, y)
    torch.set_num_threads(1)
    return result


def cost_race() -> list[str]:
    """Speed of a pair, as a ratio to pytorch-msssim at its best chunk size."""
    sets = _sets()
    lines = ["| images | pytorch-msssim, µs per pair | " + " | ".join(["plain torch", *sets, "two threads"]) + " |"]
    lines.append("| --- |" + " ---: |" * (3 + len(sets)))
    for shape in SHAPES:
        lines.append(_cost_row(shape, sets))
        print(lines[-1], flush=True)
    os.environ.pop("NEUROSQL_ISA", None)
    return lines


def two_threads(x: torch.Tensor, y: torch.Tensor, instruction_set: str) -> float:
    """Speed-up of two threads, each at its best time: other programs disturb two threads more than one."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3 * COST_ROUNDS):
        for threads, times in seconds.items():
            began = time.perf_counter()
            compiled_cost(x, y, instruction_set, threads)
            times.append(time.perf_counter() - began)
    return min(seconds[1]) / min(seconds[2])


def _cost_row(shape: tuple[int, ...], sets: list[str]) -> str:
    random = torch.Generator().manual_seed(0)
    few, many = 24 if shape[1] > 28 else 48, SHAPES[shape]
    x, y = (torch.rand(many, *shape, generator=random) for _ in range(2))
    trial = {str(chunk): lambda chunk=chunk: naive_cost(x[:12], y[:12], chunk) for chunk in (16, 64, 256, 1024)}
    tried = race(trial, 2)
    best = int(min(tried, key=lambda name: tried[name]))
    rivals: dict[str, Callable[[], object]] = {
        "naive": lambda: naive_cost(x[:few], y[:few], best),
        "plain": lambda: plain_cost(x[:few], y),
    }
    for name in sets:
        rivals[name] = lambda name=name: compiled_cost(x, y, name)
    times = race(rivals, COST_ROUNDS)
    naive = times["naive"] / few**2
    ratios = [f"{naive / (times['plain'] / (few * many)):.1f}x"]
    ratios += [f"{naive / (times[name] / many**2):.0f}x" for name in sets]
    ratios += [f"{two_threads(x, y, sets[-1]):.2f}x of one"] if sets else []
    size = "x".join(map(str, shape[1:] + shape[:1]))
    return f"| {size} | {1e6 * naive:.1f} (chunk {best}) | " + " | ".join(ratios) + " |"


def _sets() -> list[str]:
    native = engine.native()
    return [] if native is None else list(native.instruction_sets())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--matrices", type=Path, help="folder of recorded cost matrices")
    parser.add_argument("--generator", default="convnet", help="whose matrices: convnet or mlp")
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 128, 256, 512, 2000, 5000, 10000])
    parser.add_argument("--most", type=int, default=4, help="at most this many matrices of each size")
    parser.add_argument("--only", choices=("cost", "assignment"), help="one of the two races")
    parser.add_argument("--out", type=Path, help="write the tables to this page, and a plot beside it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = found[0].partition(":")[2].strip() if found else cpu
    lines = ["# The engine's races", "", f"{cpu}, {', '.join(f'{k}: {v}' for k, v in engine.describe().items())}."]
    if chosen.only != "assignment":
        title = "Cost matrix 1/2 (1 - SSIM) + 1/2 L1, speed-up over pytorch-msssim, one thread."
        lines += ["", title, "", *cost_race()]
    if chosen.matrices and chosen.only != "cost":
        results = solvers.run(chosen.matrices, chosen.generator, chosen.sizes, chosen.most)
        title = "Assignment, speed-up over scipy in processor time, total over the matrices of one training run. "
        title += "Conversion to the type a solver takes is counted; ortools solves rounded costs."
        lines += ["", title, "", *solvers.tables(results)]
        if chosen.out:
            picture = chosen.out.with_suffix(".png")
            solvers.plot(results, picture)
            lines += ["", f"![seconds against n]({picture.name})"]
    if chosen.out:
        command = f"python benchmarks/engine.py --matrices FOLDER --generator {chosen.generator} --most {chosen.most}"
        command += f" --out {chosen.out.as_posix()}"
        lines += ["", f"Made by `{command}`."]
        chosen.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
