"""Record the cost matrices that a real training run solves: synthetic ones mislead about assignment solvers.

    python benchmarks/matrices.py --n 2000 --count 12 --out FOLDER

This trains on n digits, with `every` epochs between two assignments, and saves each assignment's cost matrix as
float32: FOLDER/convnet_2000_000.npy and so on. Up to 4,096 digits come from the embedded sample; for more, set
NEUROSQL_DATA to a folder above the idx files of MNIST.
"""

from __future__ import annotations

import argparse
import gzip
import os
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from neurosql import data, run
from neurosql.cost import Cost
from neurosql.settings import Settings

EMBEDDED = 4096
IDX_NAMES = ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz")


def record(
    n: int,
    count: int,
    folder: str | Path,
    every: int = 2,
    generator: str = "convnet",
    latent_dim: int = 16,
    cost: str = "ssim+l1",
    seed: int = 0,
) -> list[Path]:
    """Train until `count` assignments are made; returns the files of their cost matrices, in order."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings.from_flat(
        dict(
            generator=generator,
            latent_dim=latent_dim,
            cost=cost,
            every=every,
            epochs=count * every,
            validation_share=0.0,
            patience=0,
            seed=seed,
        )
    )
    compute = Cost.matrix
    saved: list[Path] = []

    def compute_and_save(self: Cost, x: torch.Tensor, y: torch.Tensor, *rest, **options) -> torch.Tensor:
        matrix = compute(self, x, y, *rest, **options)
        # Not these: the start matches PCA scores, which are vectors, and validation uses fewer images.
        if x.ndim > 2 and len(x) == n:
            saved.append(folder / f"{generator}_{n}_{len(saved):03d}.npy")
            np.save(saved[-1], matrix.float().cpu().numpy())
            print(f"{saved[-1]}: mean {float(matrix.mean()):.4f}", flush=True)
        return matrix

    with mock.patch.object(Cost, "matrix", compute_and_save):
        run.train(digits(n), settings)
    return saved


def recorded(n: int, folder: str | Path, generator: str = "convnet") -> list[Path]:
    """The files of an earlier `record`, in order."""
    return sorted(Path(folder).glob(f"{generator}_{n}_*.npy"))


def digits(n: int) -> data.ImageSet:
    """n digits, from the embedded sample if it has enough."""
    if n <= EMBEDDED:
        return data.load("mnist-sample", n)
    images = read_idx(find_idx(os.environ.get("NEUROSQL_DATA")))
    if len(images) < n:
        raise SystemExit(f"{n} digits were asked for, but the idx file holds {len(images)}")
    chosen = np.random.default_rng(0).choice(len(images), n, replace=False)
    return data.from_array(images[chosen], layout="nhw", source="mnist")


def find_idx(root: str | None) -> Path:
    if not root:
        raise SystemExit(
            f"more than {EMBEDDED} digits need MNIST's idx files: set NEUROSQL_DATA to a folder above them"
        )
    found = [path for name in IDX_NAMES for path in sorted(Path(root).rglob(name))]
    if not found:
        raise SystemExit(f"neither {' nor '.join(IDX_NAMES)} is below {root}")
    return found[0]


def read_idx(path: Path) -> np.ndarray:
    """The images (count, 28, 28) of an idx file of bytes, gzipped or not."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if raw[:4] != b"\0\0\x08\x03":
        raise SystemExit(f"{path} is not an idx file of images in bytes")
    return np.frombuffer(raw, np.uint8, offset=16).reshape(np.frombuffer(raw, ">i4", count=3, offset=4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000, help="images, hence rows and columns of a matrix")
    parser.add_argument("--count", type=int, default=12, help="matrices to record")
    parser.add_argument("--out", type=Path, required=True, help="folder for the .npy files (outside the repository)")
    parser.add_argument("--every", type=int, default=2, help="epochs between two assignments")
    parser.add_argument("--generator", choices=("convnet", "mlp"), default="convnet")
    parser.add_argument("--latent-dim", type=int, default=16)
    parser.add_argument("--cost", default="ssim+l1", help="ssim+l1, ssim, l1 or l2")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    record(
        chosen.n,
        chosen.count,
        chosen.out,
        every=chosen.every,
        generator=chosen.generator,
        latent_dim=chosen.latent_dim,
        cost=chosen.cost,
        seed=chosen.seed,
    )


if __name__ == "__main__":
    main()
