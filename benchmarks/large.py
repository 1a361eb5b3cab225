"""Assign more images than a matrix of all costs has room for; compare with the dense optimum where it fits.

    python benchmarks/large.py --n 20000 --dense
    python benchmarks/large.py --n 60000

This trains a small generator on n digits for a short time, assigns all n images at once by candidates and by blocks and
prints the seconds of each part, the pairs looked at, the rows left over, the cost, the estimated gap and the peak
memory. With --dense the full cost matrix (4 n² bytes) is then computed and solved exactly, for the true gap. Up to
4,096 digits come from the embedded sample; for more, set NEUROSQL_DATA to a folder above the idx files of MNIST.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from matrices import digits
from torch import Tensor

from neurosql import assign, engine, generators, prior
from neurosql.assign import candidates, refinement
from neurosql.cost import Cost

LATENT_DIM = 16
Solver = Callable[[], candidates.CandidateAssignment]
BATCH = 256


def generated(x: Tensor, cost: Cost, steps: int, seed: int = 0) -> Tensor:
    """Images (n, ...) of a generator at n lattice rows, after `steps` mini-batches that are assigned one by one."""
    n = len(x)
    random = torch.Generator().manual_seed(seed)
    lattice = prior.make("normal", LATENT_DIM).lattice(n, seed).float()
    generator = generators.make("mlp", x.shape[1:], LATENT_DIM, seed=seed)
    optimizer = torch.optim.Adam(generator.parameters(), 2e-3)
    permutation = torch.randperm(n, generator=random)
    batches: list[Tensor] = []
    for _ in range(steps):
        if not batches:
            batches = list(torch.randperm(n, generator=random).split(BATCH))
        rows = batches.pop()
        columns = permutation[rows]
        with torch.no_grad():
            costs = cost.matrix(x[rows], generator(lattice[columns]))
        permutation[rows] = columns = columns[assign.solve(costs).permutation]
        loss = cost.paired(generator(lattice[columns]), x[rows]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return torch.cat([generator(z) for z in lattice.split(1000)])


def peak_gigabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4096, help="images")
    parser.add_argument(
        "--k", type=int, nargs="+", default=[candidates.DEFAULT_K], help="neighbours; one run for each number"
    )
    parser.add_argument("--dims", type=int, default=candidates.DEFAULT_DIMS, help="principal components")
    parser.add_argument("--steps", type=int, default=500, help="training steps; 0 is an untrained generator")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cost", default="ssim+l1", help="ssim+l1, ssim, l1 or l2")
    parser.add_argument("--dense", action="store_true", help="compare with the dense optimum")
    parser.add_argument("--images", type=Path, help=".npy file that keeps the generated images for the next run")
    chosen = parser.parse_args()

    cost = Cost.named(chosen.cost)
    x = torch.from_numpy(digits(chosen.n).x)
    if chosen.images and chosen.images.exists():
        y = torch.from_numpy(np.load(chosen.images, allow_pickle=False))
    else:
        torch.set_num_threads(1)  # threads cost more than they save on a net and batches of this size
        began = time.perf_counter()
        y = generated(x, cost, chosen.steps)
        print(f"trained {chosen.steps} steps in {time.perf_counter() - began:.1f} s")
        if chosen.images:
            np.save(chosen.images, y.numpy())
    torch.set_num_threads(chosen.threads)
    print(
        f"n {chosen.n}, {chosen.threads} threads, engine {engine.describe()}, memory so far {peak_gigabytes():.2f} GB"
    )

    def by_blocks() -> candidates.CandidateAssignment:
        return refinement.solve(cost, x, y)

    def by_candidates(k: int) -> Solver:
        return lambda: candidates.solve(cost, x, y, k=k, dims=chosen.dims)

    solvers: dict[str, Solver] = {f"k {k}": by_candidates(k) for k in chosen.k} | {"blocks": by_blocks}
    found: list[tuple[str, float]] = []
    for name, solve in solvers.items():
        began, busy = time.perf_counter(), time.process_time()
        result = solve()
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        found.append((name, result.cost))
        parts = ", ".join(f"{part} {spent:.2f}" for part, spent in result.seconds.items())
        print(
            f"{name}: {seconds:.2f} s ({parts}), processor time {busy:.2f} s\n"
            f"    pairs {result.compared} ({result.compared / chosen.n:.1f} per row), searches {result.searches}, "
            f"hubs {result.hubs}, completed rows {result.completed}\n"
            f"    cost {result.cost:.6f}, estimated gap {100 * result.relative_gap_estimate:.3f} % "
            f"± {100 * result.gap_error / abs(result.cost):.3f} %, peak memory {peak_gigabytes():.2f} GB",
            flush=True,
        )
    if chosen.dense:
        began = time.perf_counter()
        matrix = cost.matrix(x, y)
        computed = time.perf_counter()
        optimum = assign.solve(matrix)
        solved = time.perf_counter()
        print(
            f"dense: costs {computed - began:.2f} s, assignment {solved - computed:.2f} s, cost {optimum.cost:.6f}, "
            f"gap {optimum.gap:.1e}, peak memory {peak_gigabytes():.2f} GB"
        )
        for name, value in found:
            print(f"{name}: gap to the dense optimum {100 * (value / optimum.cost - 1):.4f} %")


if __name__ == "__main__":
    main()
