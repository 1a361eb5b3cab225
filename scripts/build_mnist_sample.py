"""Build the embedded MNIST sample from the usual idx files.

    python scripts/build_mnist_sample.py PATH/TO/MNIST/raw

It draws 4,096 training and 2,048 test digits without replacement, by seed. The rows are in random order, so that the
first n of them are a draw of size n; `*_index` holds each digit's position in the original file.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np

COUNTS = {"train": 4096, "test": 2048}
PREFIX = {"train": "train", "test": "t10k"}
TARGET = Path(__file__).parent.parent / "src" / "neurosql" / "data" / "mnist_sample.npz"


def read_idx(folder: Path, name: str) -> np.ndarray:
    """An idx file of bytes, gzipped or not."""
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.exists()), None)
    if path is None:
        raise SystemExit(f"neither {name} nor {name}.gz is in {folder}")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if raw[:3] != b"\0\0\x08":
        raise SystemExit(f"{path} is not an idx file of bytes")
    rank = raw[3]
    shape = np.frombuffer(raw, ">i4", count=rank, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path, help="the folder that holds train-images-idx3-ubyte(.gz) and the others")
    folder = parser.parse_args().raw
    random = np.random.default_rng(2024)
    arrays = {}
    for part, count in COUNTS.items():
        images = read_idx(folder, f"{PREFIX[part]}-images-idx3-ubyte")
        labels = read_idx(folder, f"{PREFIX[part]}-labels-idx1-ubyte")
        index = random.permutation(len(images))[:count]
        arrays |= {f"{part}_images": images[index], f"{part}_labels": labels[index], f"{part}_index": index}
    np.savez_compressed(TARGET, **arrays)
    print(f"wrote {TARGET.name}, {TARGET.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
