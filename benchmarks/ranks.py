"""How training scales over ranks: images per second and rank with one process and with two, and bytes exchanged.

    python benchmarks/ranks.py
    python benchmarks/ranks.py --images 100 --batch 16 --epochs 2 --repeats 1 --width 8

Weak scaling: each rank has as many images, and as many in each step, however many ranks there are. Runs of one and of
several ranks take turns, so that whatever else happens on the machine disturbs both alike, and the ratio is the median
over turns. Each process has one thread. The first epoch is left out: it warms up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

METHODS = {
    "neurosql, full": ["--preset", "plain"],
    "neurosql, mini-batch": ["--preset", "plain", "--algorithm", "mini-batch"],
    "neurosql, samples": ["--preset", "samples", "--latent-dim", "8"],
    "vae": ["--method", "vae", "--latent-dim", "8"],
    "gan": ["--method", "gan", "--latent-dim", "8"],
}


def train(folder: Path, chosen: argparse.Namespace, ranks: int, own: list[str]) -> tuple[float, float]:
    """Images per second and rank after the first epoch, and bytes exchanged per epoch by each rank."""
    out = folder / "run"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    np.save(folder / "x.npy", np.random.default_rng(0).random((chosen.images * ranks, 28, 28), dtype=np.float32))
    budget = ["--epochs", str(chosen.epochs + 1), "--batch-size", str(chosen.batch * ranks), "--patience", "0"]
    common = [*budget, "--validation-share", "0", "--width", str(chosen.width), "--out", str(out)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "neurosql", "train", str(folder / "x.npy"), *common, *own]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()][1:]
    seconds = sum(sum(figures["seconds"].values()) for figures in history)
    exchanged = sum(figures.get("exchanged", 0) for figures in history) / len(history)
    return chosen.images * len(history) / seconds, exchanged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000, help="images per rank")
    parser.add_argument("--batch", type=int, default=64, help="images per step and rank")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="turns")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    chosen = parser.parse_args()
    print(f"| method | images per second and rank, 1 rank | {chosen.ranks} ranks | ratio | MB exchanged per epoch |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        for method in chosen.methods:
            turns = []
            for _ in range(chosen.repeats):
                one, _none = train(Path(name), chosen, 1, METHODS[method])
                several, exchanged = train(Path(name), chosen, chosen.ranks, METHODS[method])
                turns.append((one, several, several / one))
            one, several, ratio = (statistics.median(column) for column in zip(*turns))
            print(f"| {method} | {one:,.0f} | {several:,.0f} | {ratio:.2f} | {exchanged / 1e6:.1f} |", flush=True)


if __name__ == "__main__":
    main()
