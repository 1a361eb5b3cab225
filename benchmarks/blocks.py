"""Block refinement against all pairs and against candidates, on the assignments of real training runs.

    python benchmarks/blocks.py --keep FOLDER
    NEUROSQL_DATA=FOLDER python benchmarks/blocks.py --n 2000 20000 --keep FOLDER --rounds 3

This trains on n digits with the preset `plain`, in each latent dimension, and stops at a few of its assignments: the
images, the generated images of the lattice, the codes that the images hold and the prices so far are a problem. Each
problem is solved with all pairs, exactly, with blocks and with candidates. The command writes how far each ends above
the optimum, its share of the pairs, and the time over that of all pairs to results/blocks.md: the median of --rounds
interleaved rounds; 0 leaves the times out. --keep is a folder for problems and their optima, for the next time. Up to
4,096 digits come from the embedded sample; for more, set NEUROSQL_DATA to a folder above the idx files of MNIST.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from matrices import EMBEDDED, digits
from torch import Tensor

from neurosql import assign, presets
from neurosql import run as runs
from neurosql.assign import candidates, refinement
from neurosql.cost import Cost
from neurosql.methods.neurosql import QuantileAssignment

RESULT = Path(__file__).parent.parent / "results" / "blocks.md"
COST = Cost()
FEW, MANY = (1, 2, 8), (1, 2)
"""Which assignments of a run are taken, up to EMBEDDED images and above."""


class Enough(Exception):
    """All problems of a run are recorded."""


@dataclass(frozen=True)
class Problem:
    """One assignment of a training run, before it is made."""

    n: int
    dim: int
    number: int
    """Assignments up to this one."""
    x: Tensor
    y: Tensor
    permutation: Tensor
    column_duals: Tensor


def problems(n: int, dim: int, keep: Path | None) -> list[Problem]:
    """The problems of one run: from the folder, if it has them, else by training."""
    numbers = FEW if n <= EMBEDDED else MANY
    names = {k: keep / f"{n}-{dim}-{k}.npz" for k in numbers} if keep else {}
    if not names or not all(name.exists() for name in names.values()):
        found = record(n, dim, numbers)
        for problem in found if keep else ():
            tensors = {k: getattr(problem, k).numpy() for k in ("x", "y", "permutation", "column_duals")}
            np.savez(names[problem.number], **tensors)
        return found
    found = []
    for number, name in names.items():
        with np.load(name, allow_pickle=False) as stored:
            found.append(Problem(n, dim, number, **{k: torch.from_numpy(stored[k]) for k in stored}))
    return found


def record(n: int, dim: int, numbers: tuple[int, ...]) -> list[Problem]:
    """Train until all these assignments were about to be made."""
    found: list[Problem] = []
    reassign = QuantileAssignment.reassign

    def seen(self: QuantileAssignment) -> None:
        number = self.assignments + 1
        if number in numbers:
            y = self._decode_lattice(torch.arange(n))
            found.append(Problem(n, dim, number, self.x, y, self.permutation.clone(), self.column_duals.clone()))
        if number == max(numbers):
            raise Enough
        reassign(self)

    settings = presets.settings(preset="plain", latent_dim=dim, epochs=40, batch_size=64, validation_share=0.0)
    with mock.patch.object(QuantileAssignment, "reassign", seen), suppress(Enough):
        runs.train(digits(n), settings)
    return found


def optimum(problem: Problem, keep: Path | None) -> float:
    """The least mean cost."""
    name = keep / f"{problem.n}-{problem.dim}-{problem.number}.optimum" if keep else None
    if name is not None and name.exists():
        return float(name.read_text("utf-8"))
    value = dense(problem).cost
    if name is not None:
        name.write_text(repr(value), encoding="utf-8")
    return value


def dense(problem: Problem) -> assign.Assignment:
    """All pairs, as in training: from the prices and the permutation so far."""
    matrix = COST.matrix(problem.x, problem.y)
    return assign.solve(matrix, warm=assign.Warm(problem.column_duals, problem.permutation))


Sparse = Callable[[Problem], candidates.CandidateAssignment]


def contenders(sizes: list[int], proposals: list[int]) -> dict[str, tuple[Sparse, int]]:
    """By name: how a problem is solved, and how many rows are compared with all columns to estimate the gap."""

    def blocks(size: int) -> Sparse:
        return lambda p: refinement.solve(COST, p.x, p.y, p.permutation, p.column_duals, size, seed=p.number)

    def by_candidates(k: int) -> Sparse:
        return lambda p: candidates.solve(COST, p.x, p.y, k)

    found = {f"blocks of {size}": (blocks(size), refinement.SAMPLE) for size in sizes}
    return found | {f"candidates, {k}": (by_candidates(k), candidates.DEFAULT_SAMPLE) for k in proposals}


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def rows(problem: Problem, best: float, named: dict[str, tuple[Sparse, int]], rounds: int) -> list[list[str]]:
    """The rows of a table, one per contender."""
    start = float(COST.paired(problem.x, problem.y[problem.permutation]).double().mean())
    head = [f"{problem.n:,}", str(problem.dim), str(problem.number), percent(start / best - 1)]
    ratios: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(rounds):
        whole = timed(lambda: dense(problem))
        for name, (solve, _) in named.items():
            ratios[name].append(timed(lambda solve=solve: solve(problem)) / whole)
    found = []
    for name, (solve, sample) in named.items():
        result = solve(problem)
        pairs = (result.compared + sample * problem.n) / problem.n**2
        ratio = f"{statistics.median(ratios[name]):.3f}" if rounds else "-"
        gap = [percent(result.cost / best - 1), percent(result.relative_gap_estimate)]
        found.append([*head, name, *gap, percent(pairs), str(result.searches), ratio])
        print("  ".join(found[-1]), flush=True)
    return found


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def table(lines: list[list[str]]) -> str:
    heads = ["images", "d", "assignment", "above the optimum before", "contender", "after", "estimated", "pairs"]
    heads += ["sweeps or searches", "time / all pairs"]
    ruled = ["---:"] * 4 + ["---"] + ["---:"] * 5
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, ruled, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[2000], help="images")
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 8], help="latent dimensions")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, refinement.DEFAULT_SIZE], help="images per block")
    parser.add_argument("--k", type=int, nargs="+", default=[16, 64], help="proposals of candidates, per image")
    parser.add_argument("--rounds", type=int, default=0, help="interleaved rounds of timing")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for problems and optima (outside the repository)")
    parser.add_argument("--out", type=Path, default=RESULT, help="Markdown file of the table")
    chosen = parser.parse_args()

    torch.set_num_threads(chosen.threads)
    if chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
    named = contenders(chosen.sizes, chosen.k)
    lines = []
    for n in chosen.n:
        for dim in chosen.dims:
            for problem in problems(n, dim, chosen.keep):
                lines += rows(problem, optimum(problem, chosen.keep), named, chosen.rounds)
    text = (
        "# Block refinement\n\n"
        "Assignments of training runs on digits (preset `plain`), made with `python benchmarks/blocks.py`. Pairs are\n"
        "the share of n² whose costs are computed, with the rows that serve to estimate the gap.\n\n"
    )
    chosen.out.write_text(f"{text}{table(lines)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
