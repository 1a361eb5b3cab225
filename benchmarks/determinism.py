"""Train every method twice with one thread and twice with two, and say which results have the same bits.

    python benchmarks/determinism.py [--images 260] [--epochs 2] [--width 16]

The table is that of docs/reproducing.md. On a machine whose cores are busy, set OMP_WAIT_POLICY=passive: two threads
that wait for each other are slow otherwise.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from neurosql import data, presets
from neurosql import run as runs
from neurosql.data import ImageSet
from neurosql.settings import METHODS

CASES = [("neurosql", preset) for preset in ("plain", "map", "samples", "photographs")]
CASES += [(name, "recommended") for name in METHODS if name != "neurosql"]


def trained(images: ImageSet, case: tuple[str, str], threads: int, **settings: Any) -> tuple[dict[str, Any], list[Any]]:
    """The state of a trained method by name, and its history."""
    torch.set_num_threads(threads)
    run = runs.train(images, presets.settings(case[0], case[1], validate_every=1, **settings))
    history = [{name: value for name, value in record.items() if name != "seconds"} for record in run.history]
    return run.method.state(), history


def same(first: tuple[dict[str, Any], list[Any]], second: tuple[dict[str, Any], list[Any]]) -> bool:
    """Whether two results have the same bits."""
    a, b = first[0], second[0]
    equal = all(torch.equal(a[name].nan_to_num(), b[name].nan_to_num()) for name in a)
    return equal and first[1] == second[1]


def main() -> None:
    """Print one line per method and preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=260)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--width", type=int, default=16)
    given = parser.parse_args()
    images = data.load("mnist-sample", limit=given.images)
    print("| method | 1 thread, twice | 2 threads, twice | 1 thread and 2 threads | last loss apart |")
    print("| --- | --- | --- | --- | ---: |")
    for case in CASES:
        one, again, two, too = (
            trained(images, case, threads, epochs=given.epochs, width=given.width) for threads in (1, 1, 2, 2)
        )
        words = ["same bits" if same(*pair) else "differ" for pair in ((one, again), (two, too), (one, two))]
        a, b = one[1][-1]["loss"], two[1][-1]["loss"]
        apart = abs(a - b) / max(abs(a), abs(b))
        name = case[0] if case[1] == "recommended" else f"{case[0]}, {case[1]}"
        print(f"| {name} | {' | '.join(words)} | {100 * apart:.2g} % |", flush=True)


if __name__ == "__main__":
    main()
