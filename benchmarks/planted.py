"""How well are planted copies found, and how often are real images taken for copies?

    NEUROSQL_DATA=FOLDER python benchmarks/planted.py

Real images that were not trained on stand in for samples, so no model is trained and the truth is known. In each split,
the images of a data set are divided at random, by subject if these are known, into training, held-out and stand-in
images. Some stand-ins are replaced by copies of training images: exact, shifted by one pixel, blurred, noisy or
mirrored. The command writes, for each kind and share of copies, the share of splits in which the verdict of
`neurosql evaluate` is *some* or *clear* (the power), and the false alarms without any copies, to results/planted.md.
docs/evaluation.md quotes the tables; `python docs/figures.py` copies them.

Samples of a model that has learned little are alike, and may all be near one training image by a single coincidence. So
the command also counts false alarms on samples of models that saw none of the images: normal laws in the first few
principal components of other images.

All distances between images are computed once, so that a split is a choice of rows and columns.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from neurosql import data, presets
from neurosql.cost import Cost
from neurosql.data import ImageSet
from neurosql.metrics import moved
from neurosql.metrics.copies import SEVERITY
from neurosql.metrics.memorisation import PLAIN, Verdict, judged

MOST = 1600
"""Images of a data set that are used."""
SHARES = (0.01, 0.05, 0.2)
TRAIN, HELD_OUT = 0.5, 0.2
"""Shares of the images that are trained on and held out; the rest stand in for samples."""
NOISE, BLUR = 0.05, 1.0
"""Standard deviation of the noise, where pixels are in [0, 1], and of the blur in pixels."""
FALSE_ALARMS, POWER = 500, 50
"""Splits without copies, and splits for each kind and share of copies."""
LEARNT, COMPONENTS = 400, (0, 1, 2, 5)
"""Images that models which have learned little are fitted to, and their components; 0 is the mean alone, with noise."""
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
    others: dict[int, tuple[np.ndarray, ...]]
    """The same for samples of models that saw none of the images, by the number of their components."""


def distances(
    images: ImageSet, cost: Cost, kinds: tuple[str, ...] = tuple(CHANGES), learnt: int = LEARNT, seed: int = 0
) -> Distances:
    """The losses between images, and between copies of them and images; models are fitted to the last few images."""
    random = np.random.default_rng(seed)
    x, apart = images.x[: len(images) - learnt], images.x[len(images) - learnt :]
    real, others = torch.from_numpy(x), moved.features(x)

    def to_real(made: np.ndarray, own: bool = True) -> tuple[np.ndarray, ...]:
        losses = cost.matrix(torch.from_numpy(np.ascontiguousarray(made)), real)
        looser = torch.full_like(losses, torch.inf)
        for view in moved.views(moved.smoothed(made)):
            squares = moved.squares(view, others)
            # A copy and its own image: the difference of large squares has no digits left for these.
            if own:
                squares.diagonal().copy_((view - others).square().sum(1))
            looser = torch.minimum(looser, squares.sqrt_())
        return losses.numpy(), looser.numpy()

    return Distances(
        to_real(x),
        {kind: to_real(CHANGES[kind](x, random)) for kind in kinds},
        None if images.subjects is None else images.subjects[: len(x)],
        {count: to_real(little_learnt(apart, count, random), own=False) for count in COMPONENTS if learnt},
    )


def little_learnt(x: np.ndarray, components: int, random: np.random.Generator) -> np.ndarray:
    """As many samples as images x (n, c, h, w) of the normal law in their first principal components, with noise."""
    rows = x.reshape(len(x), -1).astype(np.float64)
    _, sizes, directions = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    codes = random.standard_normal((len(x), components)) * sizes[:components] / np.sqrt(len(x))
    made = rows.mean(0) + codes @ directions[:components] + 0.01 * random.standard_normal(rows.shape)
    return made.clip(0, 1).reshape(x.shape).astype(np.float32)


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
    """The verdict on one split with this share of copies among the stand-ins."""
    train, heldout, standing = split(known, random)
    copies = random.choice(train, round(share * len(standing)), replace=False)
    replaced = random.permutation(len(standing))[: len(copies)]
    rows = [real[standing] for real in known.real]
    if len(copies):
        for each, copied in zip(rows, known.copies[kind]):
            each[replaced] = copied[copies]
    return worse(known, rows, train, heldout)


def worse(known: Distances, rows: Sequence[np.ndarray], train: np.ndarray, heldout: np.ndarray) -> Verdict:
    """The worse verdict of both distances, from those of samples (m, n) to all images."""
    subjects = None if known.subjects is None else known.subjects[train]
    found: list[Verdict] = []
    for each, look in zip(rows, (PLAIN, moved.LOOSE)):
        to_train, to_heldout = (Columns(each[:, part]) for part in (train, heldout))
        result = judged(to_train.nearest, to_heldout.nearest, (len(train), len(heldout)), subjects)
        found.append(replace(result, look=look).verdict)
    return max(found, key=SEVERITY.index)


def verdicts(known: Distances, kind: str, share: float, splits: int, seed: int = 0) -> list[Verdict]:
    """The verdicts on this many splits; those without copies are other splits than those with."""
    seeds = [[seed, int(share > 0), number] for number in range(splits)]
    return [verdict(known, kind, share, np.random.default_rng(each)) for each in seeds]


def verdicts_on_others(known: Distances, components: int, splits: int, seed: int = 0) -> list[Verdict]:
    """The verdicts on samples of a model that saw none of the images, in this many splits of them."""
    parts = (split(known, np.random.default_rng([seed, 2, number]))[:2] for number in range(splits))
    return [worse(known, known.others[components], *each) for each in parts]


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
    lines += ["", "| data | components of the model | verdicts some | verdicts clear |", "| --- | ---: | ---: | ---: |"]
    for name, known in sets.items():
        for components in known.others:
            got = verdicts_on_others(known, components, alarms, seed)
            counts = " | ".join(f"{got.count(kind)} of {alarms}" for kind in ("some", "clear"))
            lines.append(f"| {name} | {components} | {counts} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def read(name: str, root: Path, most: int) -> ImageSet:
    """At most so many images of a data set, and those that models are fitted to, of all its parts, in random order."""
    grouped = {"group": "near-duplicates"} if name == "oasis" else {}
    images = data.load(f"{name}:{root / name}", limit=most + LEARNT, **grouped)
    return images.take(np.random.default_rng(0).permutation(len(images)))


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
