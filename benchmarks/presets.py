"""Time an epoch of each preset of quantile assignment, as a ratio to the preset `plain`.

    python benchmarks/presets.py [--images 2000] [--latent-dim 8] [--rounds 5] [--out FILE]

Each round trains every preset for some epochs on the embedded digits, one after the other and on one thread. The figure
is the median over rounds of the ratio within a round: on a shared machine nothing else is meaningful. An epoch is the
decoder's steps, the assignment and the validation; what comes before the first epoch and after the last one is not
counted. `plain, as it was` is `plain` before codes were decoded in chunks that stay in the cache, and in float32.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import neurosql
from neurosql import data
from neurosql.data import ImageSet
from neurosql.encode import decode

PRESETS = ("plain", "map", "samples", "photographs")
BEFORE = "plain, as it was"


@contextmanager
def as_before() -> Iterator[None]:
    """Decode lattices and codes in chunks of 256, within the context."""
    large = functools.partial(decode, chunk=256)
    with mock.patch("neurosql.methods.neurosql.decode", large), mock.patch("neurosql.methods.base.decode", large):
        yield


def epoch_seconds(images: ImageSet, epochs: int, **settings: Any) -> float:
    """The mean over the epochs of one run, from the end of the first to the end of the last."""
    ends: list[float] = []
    neurosql.fit(images, epochs=epochs, callback=lambda _: ends.append(time.perf_counter()), **settings)
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--latent-dim", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=7, help="epochs per run; the first is not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    images = data.load("mnist-sample", limit=given.images)
    shared = {"latent_dim": given.latent_dim, "final_components": 1, "patience": 0}
    seconds: dict[str, list[float]] = {name: [] for name in (BEFORE, *PRESETS)}
    for _ in range(given.rounds):
        with as_before():
            seconds[BEFORE].append(epoch_seconds(images, given.epochs, preset="plain", precision="float32", **shared))
        for name in PRESETS:
            seconds[name].append(epoch_seconds(images, given.epochs, preset=name, **shared))
    lines = ["| preset | seconds per epoch | over `plain` | over `plain` as it was |", "| --- | ---: | ---: | ---: |"]
    for name, taken in seconds.items():
        ratios = [statistics.median(a / b for a, b in zip(taken, seconds[other])) for other in ("plain", BEFORE)]
        lines.append(f"| {name} | {statistics.median(taken):.2f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    table = "\n".join(lines)
    print(table)
    if given.out:
        given.out.write_text(table + "\n")


if __name__ == "__main__":
    main()
