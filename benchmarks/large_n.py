"""Train by mini-batches on up to a million images in a mapped file: seconds per image and memory against their number.

    python benchmarks/large_n.py --folder FOLDER
    python benchmarks/large_n.py --folder FOLDER --n 1000 10000 --steps 50 --rounds 1

This makes files of n images of 32 x 32 bytes in FOLDER, maps them and trains a small generator on `owned` batches
for a fixed number of steps. Each run has a process of its own; the numbers of images take turns, --rounds times. It
prints medians of

- start: seconds per image before the first step (lattice, first permutation);
- step: seconds per image of the steps;
- epoch: seconds per image of what is done once per epoch (order, offers, drift);
- ratio: step and epoch together, over those of the smallest number of images;
- memory: the peak of the process without what is mapped, and bytes per image by which it grows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from neurosql import held, presets
from neurosql import run as runs
from neurosql.data import ImageSet
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.training import Trainer

SIDE = 32
PATTERNS = 4096
CHUNK = 2**14
LATENT_DIM = 8


def make(path: Path, n: int) -> None:
    """A file of n images, (n, 1, 32, 32) bytes: blobs, each with noise of its own."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    places, widths = random.uniform(6, 26, (PATTERNS, 2, 1, 1)), random.uniform(8, 60, (PATTERNS, 1, 1))
    blobs = np.exp(-((rows - places[:, 0]) ** 2 + (columns - places[:, 1]) ** 2) / widths)
    patterns = (240 * blobs[:, None]).astype(np.uint8)
    partial = path.with_suffix(".part.npy")
    images = np.lib.format.open_memmap(partial, "w+", np.uint8, (n, 1, SIDE, SIDE))
    for first in range(0, n, CHUNK):
        some = images[first : first + CHUNK]
        noise = random.integers(0, 16, some.shape, np.uint8)
        np.add(patterns[random.integers(0, PATTERNS, len(some))], noise, out=some)
    images.flush()
    partial.rename(path)


@contextmanager
def peak_memory(found: dict[str, float]) -> Iterator[None]:
    """Megabytes that the process takes at most within the context, without mapped files."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            found["memory"] = max(found["memory"], anonymous())

    found["before"] = found["memory"] = anonymous()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def anonymous() -> float:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024 / 1e6


def train(path: Path, steps: int) -> dict[str, float]:
    """The figures of one run."""
    images = ImageSet(np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)))
    n = len(images)
    settings = presets.settings(
        preset="plain",
        **{"algorithm": "mini-batch", "generator": "mlp", "width": 128, "latent_dim": LATENT_DIM, "batch_size": 64},
        **{"epochs": 10**6, "steps": steps, "validation_share": 0.0, "patience": 0},
    )
    spent = {"start": 0.0, "step": 0.0, "epoch": 0.0}
    epochs = 0

    def timed(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                spent[part] += time.perf_counter() - began

        return measured

    def batches(self: Trainer) -> Iterator[Any]:
        nonlocal epochs
        epochs += 1
        taken = original(self)
        # The order of the epoch is drawn before its first batch, the pixels are taken before each.
        batch = timed("epoch", next)(taken, None)
        while batch is not None:
            yield batch
            batch = timed("step", next)(taken, None)

    original = Trainer._epoch_batches
    found: dict[str, float] = {}
    with (
        peak_memory(found),
        # The images of all sizes are taken from their files in the same way.
        mock.patch.object(held, "STREAMED", 0),
        mock.patch.object(QuantileAssignment, "attach", timed("start", QuantileAssignment.attach)),
        mock.patch.object(QuantileAssignment, "start", timed("start", QuantileAssignment.start)),
        mock.patch.object(Trainer, "_epoch_batches", batches),
        mock.patch.object(Trainer, "_take_step", timed("step", Trainer._take_step)),
        mock.patch.object(Trainer, "_end_epoch", timed("epoch", Trainer._end_epoch)),
    ):
        run = runs.train(images, settings)
    assert run.used is not None and sorted(run.method.permutation.tolist()) == list(range(n))
    each = {"start": spent["start"] / n, "step": spent["step"] / run.used.images, "epoch": spent["epoch"] / epochs / n}
    return {name: 1e6 * value for name, value in each.items()} | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the files of images are kept (1 GB)")
    parser.add_argument("--n", type=int, nargs="+", default=[10**4, 10**5, 10**6], help="numbers of images")
    parser.add_argument("--steps", type=int, default=3000, help="steps of 64 images")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        torch.set_num_threads(1)
        print(json.dumps(train(chosen.child, chosen.steps)))
        return
    chosen.folder.mkdir(parents=True, exist_ok=True)
    files = {n: chosen.folder / f"images-{n}.npy" for n in chosen.n}
    for n, path in files.items():
        if not path.exists():
            make(path, n)
    found: dict[int, list[dict[str, float]]] = {n: [] for n in files}
    command = [sys.executable, __file__, "--folder", str(chosen.folder), "--steps", str(chosen.steps), "--child"]
    for _ in range(chosen.rounds):
        for n, path in files.items():
            output = subprocess.run([*command, str(path)], check=True, capture_output=True, text=True).stdout
            found[n].append(json.loads(output.splitlines()[-1]))
    first = min(files)
    print("images     start µs  step µs  epoch µs  ratio  memory MB  bytes per image")
    for n, rounds in found.items():
        start, step, epoch, memory = (
            statistics.median(figures[name] for figures in rounds) for name in ("start", "step", "epoch", "memory")
        )
        pairs = zip(rounds, found[first])
        ratio = statistics.median((a["step"] + a["epoch"]) / (b["step"] + b["epoch"]) for a, b in pairs)
        least = statistics.median(figures["memory"] for figures in found[first])
        grown = f"{1e6 * (memory - least) / (n - first):.0f}" if n > first else "-"
        print(f"{n:<9}  {start:8.1f}  {step:7.1f}  {epoch:8.2f}  {ratio:5.2f}  {memory:9.0f}  {grown:>15}")


if __name__ == "__main__":
    main()
