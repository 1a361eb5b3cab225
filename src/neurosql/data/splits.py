"""Which part each sample goes to: shares by seed, class and subject, limited draws, and split files.

Every function works on positions, 0 to n - 1, and never sees a sample.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from neurosql import intake
from neurosql.data.archive import words_of
from neurosql.data.listing import PARTS
from neurosql.errors import InputError

DRAW = 0xD4A3
SPLIT = 0x5E1D
MAX_SPLIT = 2**28
"""Most bytes of a split file."""
MOST = 0.9
"""The largest share of what is left that one part may take."""


def divide(
    n: int,
    shares: Mapping[str, float],
    seed: int,
    labels: np.ndarray | None = None,
    subjects: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Sorted positions by part: `train`, and every part of `shares` that gets a sample.

    `shares` are shares of all n samples. `hold_out` carves each part from what the parts before it have left.
    """
    left = np.arange(n)
    carved = {}
    for part, share in shares.items():
        if share > 0:
            of_left = [None if values is None else values[left] for values in (labels, subjects)]
            keep, aside = hold_out(len(left), min(MOST, share * n / len(left)), seed, *of_left)
            if len(aside):
                carved[part] = left[aside]
            left = left[keep]
    return {"train": left} | carved


def hold_out(
    n: int, fraction: float, seed: int, labels: np.ndarray | None = None, subjects: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted positions (train, held out) of n samples.

    Each class gives its share. If there are subjects, all samples of a subject go to the same side, and the share is
    met as closely as whole subjects allow. No sample is held out if that would leave fewer than two to train on.
    """
    count = min(round(n * fraction), n - 2)
    if count <= 0:
        return np.arange(n), np.arange(0)
    random = np.random.default_rng([seed, SPLIT])
    if subjects is not None:
        return _by_subject(n, count, random, labels, subjects)
    order = random.permutation(n)
    if labels is not None:
        # Rank each sample within its class: the first `fraction` of every class is held out.
        ranks = np.empty(n)
        for label in np.unique(labels):
            members = order[labels[order] == label]
            ranks[members] = (np.arange(len(members)) + 0.5) / len(members)
        order = order[np.argsort(ranks[order], kind="stable")]
    return np.sort(order[count:]), np.sort(order[:count])


def _by_subject(
    n: int, count: int, random: np.random.Generator, labels: np.ndarray | None, subjects: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    names, of = np.unique(subjects, return_inverse=True)
    if len(names) < 2:
        return np.arange(n), np.arange(0)
    sizes = np.bincount(of)
    # A subject belongs to the class that most of its samples have.
    main = np.zeros(len(names), np.int64)
    if labels is not None:
        votes = np.zeros((len(names), int(labels.max()) + 1), np.int64)
        np.add.at(votes, (of, labels), 1)
        main = votes.argmax(1)
    aside = np.zeros(len(names), bool)
    for label in np.unique(main):
        members = random.permutation(np.flatnonzero(main == label))
        wanted = count * sizes[members].sum() / n
        held = 0
        for subject in members:
            if aside.sum() == len(names) - 1:
                break
            if held + sizes[subject] / 2 <= wanted:
                aside[subject] = True
                held += sizes[subject]
    if not aside.any():
        # Each class has too few subjects: the share is met over all classes together.
        fitting = [
            subject for subject in random.permutation(len(names)) if sizes[subject] <= max(2 * count, sizes.min())
        ]
        aside[fitting[0]] = True
    chosen = aside[of]
    if (~chosen).sum() < 2:
        return np.arange(n), np.arange(0)
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def draw(
    n: int, limit: int | None, seed: int, labels: np.ndarray | None = None, usable: np.ndarray | None = None
) -> np.ndarray:
    """Sorted positions of at most `limit` of n samples: equally many of each class, as far as possible.

    If some samples are not `usable` (n,), the next ones in the order of the draw take their places.
    """
    if limit is None or limit >= n:
        return np.arange(n) if usable is None else np.flatnonzero(usable)
    order = np.random.default_rng([seed, DRAW]).permutation(n)
    if labels is not None:
        turn = np.empty(n, np.int64)
        for label in np.unique(labels):
            members = order[labels[order] == label]
            turn[members] = np.arange(len(members))
        order = order[np.argsort(turn[order], kind="stable")]
    if usable is not None:
        order = order[usable[order]]
    return np.sort(order[:limit])


def draw_parts(
    parts: np.ndarray,
    limit: int | None,
    seed: int,
    labels: np.ndarray | None = None,
    usable: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Sorted positions by part, at most `limit` of each; `parts` (n,) has the name of each sample's part."""
    chosen = {}
    for part in PARTS:
        members = np.flatnonzero(parts == part)
        if len(members):
            of_members = [None if values is None else values[members] for values in (labels, usable)]
            chosen[part] = members[draw(len(members), limit, seed, *of_members)]
    return chosen


def _positions(name: str, listed: Any) -> np.ndarray:
    if not isinstance(listed, list) or not all(type(position) is int for position in listed):
        raise ValueError(f"{name!r} is not a list of whole numbers")
    return np.array(listed, np.int64)


def read_split(path: str | Path, n: int) -> dict[str, np.ndarray]:
    """The positions by part in a split file, for a source of n samples."""
    if not Path(path).exists():
        raise InputError(f"no such split file: {path}")
    try:
        content = json.loads(intake.read(path, MAX_SPLIT))
        parts = {name: _positions(name, content[name]) for name in PARTS if content.get(name)}
    except InputError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is not a split file: {words_of(error)}") from None
    if "train" not in parts:
        raise InputError(f"{path} is not a split file: it has no list 'train'")
    if content.get("count") not in (None, n):
        raise InputError(f"{path} is a split of {str(content['count'])[:20]} samples, but the data have {n}")
    together = np.concatenate(list(parts.values()))
    if together.min() < 0 or together.max() >= n:
        wrong = together.max() if together.max() >= n else together.min()
        raise InputError(f"{path} contains sample {wrong}, but samples are numbered from 0 to {n - 1}")
    if len(np.unique(together)) < len(together):
        raise InputError(f"{path} contains a sample twice")
    return parts
