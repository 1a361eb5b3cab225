"""What keeps data from being read, as sentences, each with the flag that settles it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neurosql.data.archive import printable
from neurosql.errors import InputError, Obstacles

SIDES = (64, 32, 16, 8)
"""Pixels per side that are suggested: all methods learn them in minutes on a laptop."""
NAMED = 3
WORDS = 160


def unreadable(bad: Sequence[tuple[str, str]]) -> str:
    """A sentence on files that can't be read, given by name and reason."""
    name, reason = bad[0]
    if len(bad) == 1:
        return f"{printable(name)} {printable(reason)}: use --skip-bad to leave out bad files"
    return f"{len(bad):,} files can't be read ({listed(bad)}): use --skip-bad to leave out bad files"


def all_unreadable(bad: Sequence[tuple[str, str]]) -> str:
    """A sentence on files none of which can be read: there is no use in leaving them out."""
    return listed(bad) if len(bad) == 1 else f"none of the {len(bad):,} files can be read: {listed(bad)}"


def listed(named: Sequence[tuple[str, str]]) -> str:
    """The first few of some files, with what is said about each."""
    shown = "; ".join(
        printable(f"{name} {words if len(words) <= WORDS else words[:WORDS] + '...'}") for name, words in named[:NAMED]
    )
    return shown + (f"; and {len(named) - NAMED:,} more" if len(named) > NAMED else "")


def differing(where: str, sizes: Mapping[tuple[int, ...], int], first: str, cure: str) -> tuple[str, dict[str, Any]]:
    """A sentence on samples of several sizes (their counts by spatial shape), and the setting that settles it.

    `first` is a file that differs from most, and `cure` the flag of the decoder that brings files to one size.
    """
    usual = sorted(sizes.items(), key=lambda pair: -pair[1])
    found = ", ".join(f"{' x '.join(map(str, shape))} ({count})" for shape, count in usual[:3])
    more = f" and {len(usual) - 3} more" if len(usual) > 3 else ""
    settled: dict[str, Any] = {}
    if cure == "--image-size":
        settled = {"image_size": suggested_side(sizes)}
        cure += f" {settled['image_size']}"
    words = f"samples in {where!r} have {len(sizes)} sizes: {found}{more}; the first that differs is {printable(first)}"
    return f"{words}: bring them to one size with {cure}", settled


def suggested_side(sizes: Mapping[tuple[int, ...], int]) -> int:
    """Pixels per side for files of these sizes: the side of most of them if it is moderate, else the next round one.

    Half of the files or more are at least as large, so few are enlarged.
    """
    usual = max(sizes, key=lambda shape: sizes[shape])
    most = SIDES[0] if len(usual) < 3 else SIDES[1]
    if len(set(usual)) == 1 and SIDES[-1] <= usual[0] <= most and 2 * sizes[usual] > sum(sizes.values()):
        return usual[0]
    sides = sorted(min(shape) for shape, count in sizes.items() for _ in range(count))
    middle = sides[len(sides) // 2]
    return next((side for side in SIDES if side <= min(middle, most)), SIDES[-1])


def together(error: InputError, skipped: Sequence[tuple[str, str]]) -> InputError:
    """An error with, in addition, the files that were not opened: one of them may be its reason."""
    return Obstacles([unreadable(skipped), str(error)], {"skip_bad": True}) if skipped else error
