"""The race of assignment solvers for engine.py: seconds, memory and the gap of greedy, by size.

    python benchmarks/solvers.py --memory NAME MATRIX.npy

The race runs this command in a separate process to measure how much memory one solver takes.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment

from neurosql import assign

Solve = Callable[[np.ndarray], object]

REFERENCE = "scipy"
OURS = ("cold", "warm", "greedy")
# A solver is left out at a size if its time at the last one, times the ratio of sizes cubed, exceeds this.
PATIENCE = 60.0
# Smaller problems fit into memory that the interpreter has anyway.
MEMORY_FROM = 2000


def _lapx() -> dict[str, Solve]:
    lap = importlib.import_module("lap")
    found: dict[str, Solve] = {}
    for name in ("lapjv", "lapjvr", "lapjvx", "lapjvs", "lapjvc", "lapjvh"):
        if function := getattr(lap, name, None):
            found[f"lapx {name}"] = lambda c, function=function: function(c.astype(np.float64))
    return found


def _lapjv() -> dict[str, Solve]:
    module = importlib.import_module("lapjv")
    return {"lapjv": lambda c: module.lapjv(c)}


def _fastlap() -> dict[str, Solve]:
    module = importlib.import_module("fastlap")
    return {"fastlap": lambda c: module.solve_lap(c.astype(np.float64), "lapjv")}


def _pot() -> dict[str, Solve]:
    module = importlib.import_module("ot")

    def emd(c: np.ndarray) -> np.ndarray:
        weights = np.full(len(c), 1.0 / len(c))
        return module.emd(weights, weights, c.astype(np.float64), numItermax=10**8)

    return {"POT emd": emd}


def _ortools() -> dict[str, Solve]:
    module = importlib.import_module("ortools.graph.python.linear_sum_assignment")

    def solve(c: np.ndarray) -> object:
        n = len(c)
        # It takes whole numbers: six digits of the costs.
        costs = np.rint(c * (1e6 / max(float(np.abs(c).max()), 1e-300))).astype(np.int64).ravel()
        solver = module.SimpleLinearSumAssignment()
        solver.add_arcs_with_cost(np.repeat(np.arange(n), n), np.tile(np.arange(n), n), costs)
        return solver.solve()

    return {"ortools": solve}


def rivals(show: Callable[[str], None] = lambda line: None) -> dict[str, Solve]:
    """Other solvers that are installed and solve a problem of eight rows; `show` gets why one is left out."""
    small = np.random.default_rng(0).random((8, 8)).astype(np.float32)
    found: dict[str, Solve] = {}
    for load in (_lapx, _lapjv, _fastlap, _pot, _ortools):
        try:
            loaded = load()
        except ImportError as error:
            show(f"{load.__name__.lstrip('_')} is left out: {error}")
            continue
        for name, solve in loaded.items():
            try:
                solve(small)
                found[name] = solve
            except Exception as error:  # another library may raise anything
                show(f"{name} is left out: {error}")
    return found


def contenders(show: Callable[[str], None] = lambda line: None) -> dict[str, Solve]:
    """Every solver but the warm one, by name."""
    ours: dict[str, Solve] = {"cold": assign.solve, "greedy": lambda c: assign.solve(c, "greedy")}
    return {REFERENCE: linear_sum_assignment, **ours, **rivals(show)}


def matrices(folder: Path, generator: str, n: int) -> Iterator[np.ndarray]:
    """The recorded matrices of this size, or else the same random part of each one of 2000 (or larger)."""
    recorded: dict[int, list[Path]] = {}
    for path in sorted(folder.glob(f"{generator}_*_*.npy")):
        recorded.setdefault(int(path.stem.split("_")[1]), []).append(path)
    larger = [size for size in recorded if size >= n]
    size = n if n in recorded else 2000 if 2000 in larger else min(larger, default=0)
    random = np.random.default_rng(n)
    rows, columns = (random.permutation(size)[:n] for _ in range(2))
    for path in recorded.get(size, []):
        cost = np.load(path)
        yield cost if size == n else np.ascontiguousarray(cost[np.ix_(rows, columns)])


@dataclass
class Size:
    """Measurements on the matrices of one size: totals over all of them, except the memory, which is for one."""

    n: int
    count: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0
    """Greedy's mean cost above the optimum, in per cent of the optimum."""


def measure(folder: Path, generator: str, n: int, last: Size | None, solvers: dict[str, Solve], limit: int) -> Size:
    result, assigner = Size(n), assign.Assigner()
    if last is not None:
        growth = (n / last.n) ** 3 / max(last.count, 1)
        slow = [name for name in solvers if last.seconds.get(name, np.inf) * growth > PATIENCE]
        solvers = {name: solve for name, solve in solvers.items() if name == REFERENCE or name not in slow}
    gaps = []
    for cost in matrices(folder, generator, n):
        if result.count == limit:
            break
        result.count += 1
        optimum, exact, greedy = _race(cost, solvers, assigner, result.seconds)
        assert abs(exact - optimum) <= 1e-6 * abs(optimum), (n, exact, optimum)
        gaps.append(100.0 * (greedy - optimum) / abs(optimum))
        if result.count == 1 and n >= MEMORY_FROM:
            result.megabytes = _memory(cost, solvers)
    if "warm" in result.seconds:  # the first matrix had nothing to start from
        result.seconds["warm"] *= result.count / (result.count - 1)
    result.gap = float(np.mean(gaps)) if gaps else 0.0
    return result


def _race(
    cost: np.ndarray, solvers: dict[str, Solve], assigner: assign.Assigner, totals: dict[str, float]
) -> tuple[float, float, float]:
    """Add each solver's median to `totals`; returns the mean costs of the optimum, ours and greedy."""
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    start = assigner.last
    began = time.process_time()
    assigner(cost)
    if start is not None:
        totals["warm"] = totals.get("warm", 0.0) + time.process_time() - began
    means: dict[str, float] = {}
    # Many rounds for few rows, one if that takes long.
    for _ in range(int(np.clip(4000 // len(cost), 1, 15))):
        for name, solve in solvers.items():
            began = time.process_time()
            found = solve(cost)
            seconds[name].append(time.process_time() - began)
            if name == REFERENCE:
                means[name] = float(cost[found].astype(np.float64).mean())
            elif isinstance(found, assign.Assignment):
                means[name] = found.cost
    for name, times in seconds.items():
        totals[name] = totals.get(name, 0.0) + statistics.median(times)
    return means[REFERENCE], means["cold"], means["greedy"]


def _memory(cost: np.ndarray, solvers: dict[str, Solve]) -> dict[str, float]:
    """Megabytes that each solver takes beyond the matrix."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cost.npy"
        np.save(path, cost)
        for name in solvers:
            command = [sys.executable, __file__, "--memory", name, str(path)]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode == 0:
                found[name] = float(run.stdout.split()[-1])
    return found


def _growth(name: str, path: str) -> float:
    """Megabytes by which the peak of this process grows while `name` solves."""
    torch.set_num_threads(1)
    solve = contenders()[name]
    cost = np.load(path)
    # Solve a part of the problem first: what a solver loads on first use should not count.
    solve(np.ascontiguousarray(cost[:16, :16]))
    # Imports leave a peak above what is in use now, and a solver could hide under it: fill it up first.
    before, ballast = _peak(), []
    while _peak() - before < 0.5:
        ballast.append(np.ones(2**15))
    before = _peak()
    solve(cost)
    return _peak() - before


def _peak() -> float:
    """The peak memory of this process, in megabytes."""
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def tables(results: list[Size]) -> list[str]:
    """Speed-ups over scipy, and memory, as Markdown."""
    names = [name for name in names_of(results) if name != REFERENCE]
    lines = ["| n | matrices | scipy, s | " + " | ".join(names) + " | greedy's gap |"]
    lines.append("| --- |" + " ---: |" * (3 + len(names)))
    for r in results:
        scipy = r.seconds[REFERENCE]
        ratios = [_ratio(scipy / r.seconds[name]) if name in r.seconds else "-" for name in names]
        lines.append(f"| {r.n} | {r.count} | {scipy:.3g} | " + " | ".join(ratios) + f" | {r.gap:.1f} % |")
    measured = [r for r in results if r.megabytes]
    if measured:
        names = [name for name in names_of(measured) if name != "warm"]
        lines += ["", "Peak memory beyond the matrix, in MB.", "", "| n | the matrix | " + " | ".join(names) + " |"]
        lines.append("| --- |" + " ---: |" * (1 + len(names)))
        for r in measured:
            cells = [f"{r.megabytes[name]:.0f}" if name in r.megabytes else "-" for name in names]
            lines.append(f"| {r.n} | {4e-6 * r.n**2:.0f} | " + " | ".join(cells) + " |")
    return lines


def _ratio(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.2g}x"


def names_of(results: list[Size]) -> list[str]:
    """Every solver that was measured, the reference and ours first."""
    found = dict.fromkeys(name for r in results for name in r.seconds)
    first = [name for name in (REFERENCE, *OURS) if name in found]
    return first + [name for name in found if name not in first]


def plot(results: list[Size], path: Path) -> None:
    """Plot seconds per matrix against n, one line per solver. Without pyplot, which would choose a backend."""
    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for number, name in enumerate(names_of(results)):
        shown = [(r.n, r.seconds[name] / r.count) for r in results if name in r.seconds]
        style = {"lw": 2.2} if name in OURS else {"lw": 1.0, "ls": "--"}
        axes.loglog(*zip(*shown), marker="o", ms=3, color=f"C{number % 10}", label=name, **style)
    axes.set(xlabel="n", ylabel="seconds of one thread")
    axes.grid(which="major", color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(path, dpi=110)


def run(folder: Path, generator: str, sizes: list[int], most: int) -> list[Size]:
    """Measure one size after another, at most `most` matrices of each; prints each size, and what is left out."""
    solvers = contenders(lambda line: print(line, flush=True))
    results: list[Size] = []
    for n in sorted(sizes):
        found = measure(folder, generator, n, results[-1] if results else None, solvers, most)
        if found.count:
            results.append(found)
            print("\n".join(tables([found])), flush=True)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", nargs=2, metavar=("NAME", "MATRIX"), required=True)
    print(_growth(*parser.parse_args().memory))
