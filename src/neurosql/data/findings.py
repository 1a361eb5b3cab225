"""What a person should know about data before training on them, each with what settles it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neurosql.data import duplicates, store
from neurosql.data.archive import printable
from neurosql.data.imageset import ImageSet
from neurosql.data.listing import Reading
from neurosql.data.obstacles import SIDES, listed, suggested_side
from neurosql.data.picture import TINY

MANY = 12_000
"""With more samples than this, near duplicates are not searched for: the search compares all pairs."""
LARGE = 128
"""More pixels per side than this take hours on a laptop."""
CUT = 1.5
"""A picture that is this many times longer than wide loses a third or more in a crop to a square."""
FOREIGN = (".heic", ".heif", ".avif", ".jxl", ".jp2", ".raw", ".cr2", ".nef", ".dng", ".svg", ".psd", ".pdf", ".dcm")
"""Files that may hold pictures, but in formats that are not read."""


@dataclass(frozen=True)
class Finding:
    """Something odd about data."""

    what: str
    settle: str
    """The flag that settles it, or what else to do."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings, by name, that a command which trains on the data should have because of it."""

    def __str__(self) -> str:
        return f"{self.what}: {self.settle}"


def of(images: ImageSet, divided: ImageSet) -> list[Finding]:
    """All findings on samples that could be read, as they are and in the parts that training makes of them."""
    reading = images.reading or Reading("array")
    found = [*_files(reading), *_pictures(images, reading)]
    if blank := _blank(images):
        found.append(Finding(f"{blank:,} training samples are blank, all their values are the same", "remove them"))
    exact, near, crossing = repeats(divided)
    if exact:
        words = f"{exact:,} samples repeat another, pixel by pixel"
        found.append(Finding(words, "remove them, or keep them together with --group near-duplicates"))
    if near and images.subjects is None and reading.settings.get("group") != "near-duplicates":
        words = f"{near:,} samples have a near duplicate" + (f", {crossing:,} of them in another part" * bool(crossing))
        settings = {"group": "near-duplicates"} if crossing else {}
        found.append(Finding(words, "--group near-duplicates keeps lookalikes in the same part", settings))
    return found


def unread(bad: Sequence[tuple[str, str]]) -> list[Finding]:
    """The finding on files that can't be read, given by name and reason."""
    if not bad:
        return []
    return [Finding(f"{_plural(len(bad), 'file')} can't be read ({listed(bad)})", "--skip-bad leaves them out")]


def repeats(images: ImageSet) -> tuple[int, int, int]:
    """How many samples repeat another exactly, have a near duplicate, and have one in another part."""
    parts = list(images.parts.values())
    counts = Counter(digest for part in parts for digest in duplicates.digests(part))
    exact = sum(count - 1 for count in counts.values())
    total = sum(map(len, parts))
    if not images.modality.is_picture or not 1 < total <= MANY:
        return exact, 0, 0
    small = np.concatenate([duplicates.thumbnails(part) for part in parts])
    of_part = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    left, right = duplicates.near(small)
    apart = of_part[left] != of_part[right]
    return exact, len({*left, *right}), len({*left[apart], *right[apart]})


def large(images: ImageSet) -> int | None:
    """The size to suggest if images are too large to train on in a reasonable time."""
    if not images.modality.is_picture or max(images.shape[1:]) <= LARGE:
        return None
    return suggested_side({tuple(images.shape[1:]): 1})


def small(images: ImageSet) -> int | None:
    """The size to suggest if images are too small for most networks."""
    return SIDES[-1] if images.modality.is_picture and min(images.shape[1:]) < SIDES[-1] else None


def _files(reading: Reading) -> list[Finding]:
    found = unread(reading.skipped)
    for word, settle in (
        ("animated", "nothing to do, or save the frames that you want as files"),
        ("tiny", "enlarged, which leaves nothing to learn from; better remove them"),
    ):
        odd = [pair for pair in reading.remarks if pair[1].startswith(word)]
        if odd:
            words = listed([(name, f"is {remark}") for name, remark in odd])
            found.append(Finding(f"{_count(len(odd), 'file')} {word} ({words})", settle))
    pictures = [name for name in reading.ignored if name.lower().endswith(FOREIGN)]
    others = [name for name in reading.ignored if name not in pictures]
    if pictures:
        words = f"{_count(len(pictures), 'file')} in a format that is not read ({_named(pictures)})"
        found.append(Finding(words, "ignored; convert them to .png or .jpg to use them"))
    if others:
        found.append(Finding(f"{_count(len(others), 'file')} no image ({_named(others)})", "ignored, nothing to do"))
    return found


def _pictures(images: ImageSet, reading: Reading) -> list[Finding]:
    found = []
    grey, colour = (reading.channels.get(channels, 0) for channels in ("1", "3"))
    if grey and colour and images.modality.is_picture:
        words = f"{grey:,} images are grey and {colour:,} in colour, so all become colour images"
        found.append(Finding(words, "--channels grey makes all of them grey"))
    layered = sum(count for mode, count in reading.modes.items() if mode in ("RGBA", "LA", "PA"))
    if layered and images.modality.is_picture:
        words = f"{_plural(layered, 'image')} may have transparent pixels, which are shown on white"
        found.append(Finding(words, "nothing to do, unless they should stand on another colour"))
    if reading.preparation.get("crop"):
        cut = sum(count for size, count in reading.sizes.items() if _long(size))
        if cut:
            words = f"the crop to a square leaves out a third or more of {_plural(cut, 'image')}"
            found.append(Finding(words, "crop them yourself if what matters is not in the middle"))
    return found


def _long(size: str) -> bool:
    sides = [int(side) for side in size.split(" x ") if side.isdecimal()]
    return len(sides) == 2 and min(sides) >= TINY and max(sides) >= CUT * min(sides)


def _blank(images: ImageSet) -> int:
    """How many training samples have the same value everywhere."""
    if not images.modality.bounded:
        return 0
    flat = images.pixels.reshape(*images.pixels.shape[:2], -1)
    return sum(
        int((flat[rows].max(2) == flat[rows].min(2)).all(1).sum()) for rows in store.pieces(len(flat), flat[:1].nbytes)
    )


def blank_note(images: ImageSet) -> list[str]:
    """A note on blank training samples, if there are any."""
    blank = _blank(images)
    return [f"{blank} training samples are blank: all their values are the same"] if blank else []


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _count(count: int, what: str) -> str:
    return f"{_plural(count, what)} {'is' if count == 1 else 'are'}"


def _named(names: Sequence[str]) -> str:
    return printable(", ".join(names[:3])) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
