"""How well are planted copies found, and how often are real images taken for copies?

    NEUROSQL_DATA=FOLDER python benchmarks/planted.py

Real images that were not trained on stand in for samples, so no model is trained and the truth is known. In each split,
the images of a data set are divided at random, by subject if these are known, into training, held-out and stand-in
images. Some stand-ins are replaced by copies of training images: exact, shifted by one pixel, blurred, noisy or
mirrored. The command writes, for each kind and share of copies, the share of splits in which the verdict of
`neurosql evaluate` is *some* or *clear* (the power), and the false alarms without any copies, to results/planted.md.
docs/evaluation.md quotes the tables; `python docs/figures.py` copies them.

All distances between images are computed once, so that a split is a choice of rows and columns.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from neurosql import data, presets
from neurosql.cost import Cost
from neurosql.data import ImageSet
from neurosql.metrics import moved
from neurosql.metrics.copies import SEVERITY
from neurosql.metrics.memorisation import Verdict, judged

MOST = 1600
"""Images of a data set that are used."""
SHARES = (0.01, 0.05, 0.2)
TRAIN, HELD_OUT = 0.5, 0.2
"""Shares of the images that are trained on and held out; the rest stand in for samples."""
NOISE, BLUR = 0.05, 1.0
"""Standard deviation of the noise, where pixels are in [0, 1], and of the blur in pixels."""
FALSE_ALARMS, POWER = 500, 50
"""Splits without copies, and splits for each kind and share of copies."""
RESULT = Path(__file__).parent.parent / "results" / "planted.md"

Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""Images (n, c, h, w) and what a copy of each looks like."""
CHANGES: dict[str, Change] = {
    "exact": lambda x, random: x,
    "shifted by a pixel": lambda x, random: np.concatenate([x[..., :1], x[..., :-1]], -1),
    "blurred": lambda x, random: gaussian_filter(x, (0, 0, BLUR, BLUR)),
    "noisy": lambda x, random: (x + NOISE * random.standard_normal(x.shape)).clip(0, 1).astype(np.float32),
    "mirrored": lambda x, random: x[..., ::-1].copy(),
}


@dataclass(frozen=True)
class Distances:
    """All that the verdict needs to know about the images of a data set."""

    real: tuple[np.ndarray, ...]
    """(n, n) each: the loss between any two images, in the rows as a sample, and the distance of moved.py."""
    copies: dict[str, tuple[np.ndarray, ...]]
    """The same for each kind of copy: between a copy of each image and any image."""
    subjects: np.ndarray | None


def distances(images: ImageSet, cost: Cost, kinds: tuple[str, ...] = tuple(CHANGES), seed: int = 0) -> Distances:
    """The losses between images, and between copies of them and images."""
    x, random = images.x, np.random.default_rng(seed)
    real, others = torch.from_numpy(x), moved.features(x)

    def to_real(made: np.ndarray) -> tuple[np.ndarray, ...]:
        losses = cost.matrix(torch.from_numpy(np.ascontiguousarray(made)), real)
        looser = torch.full_like(losses, torch.inf)
        for view in moved.views(moved.smoothed(made)):
            squares = moved.squares(view, others)
            # A copy and its own image: the difference of large squares has no digits left for these.
            squares.diagonal().copy_((view - others).square().sum(1))
            looser = torch.minimum(looser, squares.sqrt_())
        return losses.numpy(), looser.numpy()

    return Distances(to_real(x), {kind: to_real(CHANGES[kind](x, random)) for kind in kinds}, images.subjects)


@dataclass(frozen=True)
class Columns:
    """Distances (m, n) between samples and images, of which some are looked at."""

    rows: np.ndarray

    def nearest(self, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of some of the images is nearest to each sample, and how far it is."""
        among = self.rows[:, some]
        places = among.argmin(1)
        return places, among[np.arange(len(among)), places].astype(np.float64)


def split(known: Distances, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, held-out and stand-in images at random; all images of a subject are in the same part."""
    n = len(known.real[0])
    ids = np.arange(n) if known.subjects is None else np.unique(known.subjects, return_inverse=True)[1]
    places = random.permutation(ids.max() + 1)[ids]
    ends = np.quantile(places, [TRAIN, TRAIN + HELD_OUT])
    return np.flatnonzero(places < ends[0]), *(
        np.flatnonzero(part) for part in ((places >= ends[0]) & (places < ends[1]), places >= ends[1])
    )


def verdict(known: Distances, kind: str, share: float, random: np.random.Generator) -> Verdict:
    """The verdict on one split with this share of copies among the stand-ins: the worse of both distances."""
    train, heldout, standing = split(known, random)
    copies = random.choice(train, round(share * len(standing)), replace=False)
    replaced = random.permutation(len(standing))[: len(copies)]
    subjects = None if known.subjects is None else known.subjects[train]
    found: list[Verdict] = []
    for number, real in enumerate(known.real):
        to_train, to_heldout = (Columns(real[np.ix_(standing, part)]) for part in (train, heldout))
        if len(copies):
            for columns, part in ((to_train, train), (to_heldout, heldout)):
                columns.rows[replaced] = known.copies[kind][number][np.ix_(copies, part)]
        result = judged(to_train.nearest, to_heldout.nearest, (len(train), len(heldout)), subjects)
        found.append((moved.varied(result) if number else result).verdict)
    return max(found, key=SEVERITY.index)


def verdicts(known: Distances, kind: str, share: float, splits: int, seed: int = 0) -> list[Verdict]:
    """The verdicts on this many splits; those without copies are other splits than those with."""
    seeds = [[seed, int(share > 0), number] for number in range(splits)]
    return [verdict(known, kind, share, np.random.default_rng(each)) for each in seeds]


def found(some: list[Verdict]) -> str:
    """In how many splits, in percent, the verdict is some or clear, and in how many it is clear."""
    any_sign, clear = (100 * sum(v in of for v in some) / len(some) for of in (("some", "clear"), ("clear",)))
    return f"{any_sign:.0f} % ({clear:.0f} %)"


def tables(sets: dict[str, Distances], splits: int, alarms: int, seed: int = 0) -> str:
    """The power for each data set, kind and share of copies, and the false alarms."""
    lines = [f"| data | copies | {' | '.join(f'{100 * share:.0f} % of samples' for share in SHARES)} |"]
    lines.append("| --- | --- |" + " ---: |" * len(SHARES))
    for name, known in sets.items():
        for kind in known.copies:
            cells = [found(verdicts(known, kind, share, splits, seed)) for share in SHARES]
            lines.append(f"| {name} | {kind} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    lines += ["", "| data | images | verdicts some | verdicts clear |", "| --- | ---: | ---: | ---: |"]
    for name, known in sets.items():
        got = verdicts(known, "", 0.0, alarms, seed)
        counts = " | ".join(f"{got.count(kind)} of {alarms}" for kind in ("some", "clear"))
        lines.append(f"| {name} | {len(known.real[0]):,} | {counts} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def read(name: str, root: Path, most: int) -> ImageSet:
    """At most so many images of a data set, of all its parts."""
    grouped = {"group": "near-duplicates"} if name == "oasis" else {}
    return data.load(f"{name}:{root / name}", limit=most, **grouped)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("NEUROSQL_DATA"), help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=["mnist", "afhq", "oasis"])
    parser.add_argument("--most", type=int, default=MOST, help="images of each data set")
    parser.add_argument("--splits", type=int, default=POWER, help="splits for each kind and share of copies")
    parser.add_argument("--alarms", type=int, default=FALSE_ALARMS, help="splits without copies")
    parser.add_argument("--seed", type=int, default=0, help="seed of the splits")
    parser.add_argument("--out", type=Path, default=RESULT)
    chosen = parser.parse_args()
    if chosen.data is None:
        raise SystemExit("give the folder that holds mnist/, afhq/ and oasis/ with --data or in NEUROSQL_DATA")
    sets = {}
    for name in chosen.sets:
        images = read(name, chosen.data, chosen.most)
        cost = Cost.named(presets.settings().resolve(images.modality).latent.cost)
        sets[name] = distances(images, cost)
        print(f"{name}: {len(images):,} images of {images.shape}, {cost}", flush=True)
    chosen.out.write_text(f"{tables(sets, chosen.splits, chosen.alarms, chosen.seed)}\n", "utf-8")
    print(f"wrote {chosen.out}")


if __name__ == "__main__":
    main()
