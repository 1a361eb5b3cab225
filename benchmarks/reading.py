"""Time how long reading a folder of photographs takes, the first and the second time, against a plain Pillow loop.

    python benchmarks/reading.py --n 10000
    python benchmarks/reading.py --n 10000 --from PATH/TO/img_align_celeba

This makes n JPEGs of 178 x 218 pixels in a temporary folder, from random smooth pictures or from your own images,
enlarged. It then reads them at 64 x 64 in turns: by two processes that decode, crop and resize with Pillow, by
`neurosql.data.load` with an empty cache, and by `load` again. It prints seconds and ratios; the turns are interleaved,
so that other programs disturb all of them alike.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from neurosql import data

WIDTH, HEIGHT, SIDE = 178, 218, 64


def make(folder: Path, n: int, images: Path | None) -> None:
    random = np.random.default_rng(0)
    sources = [] if images is None else sorted(images.glob("*.jpg"))
    for i in range(n):
        if sources:
            with Image.open(sources[i % len(sources)]) as picture:
                picture = picture.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        else:
            coarse = random.integers(0, 256, (27, 22, 3), dtype=np.uint8)
            picture = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        picture.save(folder / f"{i:06d}.jpg", quality=90)


def plain(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        picture = picture.convert("RGB")
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
        return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def plain_loop(folder: Path) -> np.ndarray:
    paths = sorted(folder.glob("*.jpg"))
    with get_context("fork").Pool(2) as pool:
        return np.stack(pool.map(plain, paths, chunksize=64))


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, processor seconds (children included) and the result."""
    began, busy = time.perf_counter(), sum(os.times()[:4])
    result = call()
    return time.perf_counter() - began, sum(os.times()[:4]) - busy, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=10_000, help="pictures")
    parser.add_argument("--from", dest="images", type=Path, help="a folder of .jpg files to enlarge")
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "pictures"
        folder.mkdir()
        make(folder, chosen.n, chosen.images)
        figures = []
        data.load("mnist-sample")  # so that imports are not in the figures
        for turn in range(chosen.turns):
            os.environ["NEUROSQL_CACHE"] = f"{name}/cache{turn}"
            loop, loop_busy, expected = timed(lambda: plain_loop(folder))
            first, first_busy, images = timed(lambda: data.load(folder, image_size=SIDE))
            second, second_busy, again = timed(lambda: data.load(folder, image_size=SIDE))
            assert np.array_equal(np.moveaxis(again.pixels, 1, -1), expected)
            assert images.fingerprint == again.fingerprint
            figures.append((first / loop, first_busy / loop_busy, first / second, first_busy / second_busy, second))
            print(
                f"turn {turn + 1}: plain loop {loop:.2f} s ({loop_busy:.2f} s of processors), first {first:.2f} s "
                f"({first_busy:.2f}), second {second:.3f} s ({second_busy:.3f})",
                flush=True,
            )
        slower, busier, faster, lighter, second = np.median(figures, axis=0)
        print(
            f"median of {chosen.turns}: first {slower:.2f} of the plain loop's time, {busier:.2f} of its processors'; "
            f"second {faster:.0f} times faster, {lighter:.0f} times less processor time, {second:.3f} s"
        )


if __name__ == "__main__":
    main()
