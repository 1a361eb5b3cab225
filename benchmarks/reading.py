"""How long it takes to read a folder of photographs, the first time and the second, against a plain Pillow loop.

    python benchmarks/reading.py --n 10000
    python benchmarks/reading.py --n 10000 --from PATH/TO/img_align_celeba

makes n JPEGs of 178 x 218 pixels in a temporary folder (from random smooth pictures, or from images of one's own,
enlarged), then reads them to 64 x 64 in turns: by a pool of two processes that decode, crop and resize with Pillow, by
`neurosql.data.load` with an empty cache, and by `load` again. Prints seconds and ratios; the turns are interleaved, so
that whatever else the machine does disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

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


def timed(call: object, *arguments: object) -> tuple[float, object]:
    began = time.perf_counter()
    result = call(*arguments)  # type: ignore[operator]
    return time.perf_counter() - began, result


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
        firsts, seconds, ratios = [], [], []
        data.load("mnist-sample")  # so that imports are not in the figures
        for turn in range(chosen.turns):
            os.environ["NEUROSQL_CACHE"] = f"{name}/cache{turn}"
            loop, expected = timed(plain_loop, folder)
            first, images = timed(lambda: data.load(folder, image_size=SIDE))
            second, again = timed(lambda: data.load(folder, image_size=SIDE))
            convert, _ = timed(lambda images=again: images.x)
            assert np.array_equal(np.moveaxis(images.pixels, 1, -1), expected)
            firsts.append(first / loop)
            seconds.append(second)
            ratios.append(first / second)
            print(
                f"turn {turn + 1}: plain loop {loop:.2f} s, first {first:.2f} s ({first / loop:.2f} of it), second "
                f"{second:.3f} s ({first / second:.0f} times faster), as float32 {convert:.2f} s",
                flush=True,
            )
        print(
            f"median of {chosen.turns}: first {statistics.median(firsts):.2f} of the plain loop, second "
            f"{statistics.median(ratios):.0f} times faster than the first ({statistics.median(seconds):.3f} s)"
        )


if __name__ == "__main__":
    main()
