"""What to know about data before an hour of training: a full report, and a summary of a few lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from neurosql.data import duplicates, findings, store
from neurosql.data.account import account
from neurosql.data.archive import printable
from neurosql.data.imageset import ImageSet
from neurosql.modality import VOLUME

SHEET = 48
TILE = 96
SHOWN = 20
"""Bad files that are named one by one."""


def brief(images: ImageSet) -> str:
    """A few lines: what was recognised, and what may go wrong."""
    reading = images.reading
    if reading is None:
        return f"read       {images.describe()}"
    lines = [f"read       {reading.reader}: {_sizes(images)}"]
    lines += [
        f"note       {note}"
        for note in [*reading.all_notes(), *_carved(images), *_across(images), *findings.blank_note(images)]
    ]
    return "\n".join(lines)


def report(images: ImageSet, divided: ImageSet) -> str:
    """The full report on samples as they were read, and on what training makes of them: `divided`."""
    reading = images.reading
    assert reading is not None
    lines = [
        f"source     {images.source}",
        f"recognised {reading.reader}, {reading.found:,} samples",
        f"read       {images.describe()}",
        f"files      {_sizes(images)}",
    ]
    if reading.modes:
        lines.append(f"modes      {counts(reading.modes)}")
    for name, part in images.parts.items():
        lines.append(f"{name:<10} {len(part):,}" + (f": {_classes(part)}" if part.labels is not None else ""))
    missing = [part for part in ("validation", "test") if part not in images.parts]
    if missing:
        lines.append(f"parts      no official {' or '.join(missing)} part: training carves them by seed")
    lines.append(f"samples    {account(divided)}")
    if images.subjects is not None:
        lookalikes = reading.settings.get("group") == "near-duplicates"
        count = f"{len(_subjects(images)):,}"
        lines.append(f"lookalikes {count} groups, each in one part" if lookalikes else f"subjects   {count}")
        shared = _shared(images)
        if shared:
            lines.append(f"warning    {shared} subjects are in more than one part")
    else:
        lines.append("subjects   not known")
    bytes_ = 4 * sum(len(part) for part in images.parts.values()) * int(np.prod(images.shape))
    n = len(images)
    streamed = ", more than fits in memory: they are read from the disk as needed" if bytes_ > store.room() else ""
    lines.append(f"memory     {_size(bytes_)} of samples{streamed}; a matrix of all pairs takes {_size(4 * n * n)}")
    lines += [f"note       {note}" for note in reading.notes]
    return "\n".join(lines + bad_files(reading.skipped))


def bad_files(skipped: list[tuple[str, str]]) -> list[str]:
    """Lines on the first files that can't be read."""
    lines = [f"bad        {printable(f'{name} {reason}')}" for name, reason in skipped[:SHOWN]]
    if len(skipped) > SHOWN:
        lines.append(f"bad        and {len(skipped) - SHOWN} more")
    return lines


def contact_sheet(images: ImageSet, path: Path, count: int = SHEET) -> bool:
    """Save a sheet of samples, class by class; returns False if they are not pictures."""
    pixels = images.pixels
    if images.modality is VOLUME:
        # The middle slice of each volume.
        pixels = pixels[:, :, pixels.shape[2] // 2]
    elif not images.modality.is_picture:
        return False
    order = np.arange(len(images)) if images.labels is None else np.argsort(images.labels, kind="stable")
    shown = order[np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(np.int64)]
    columns = 8
    mode = "L" if pixels.shape[1] < 3 else "RGB"
    sheet = Image.new(mode, (columns * TILE, -(-len(shown) // columns) * TILE), "white")
    for place, number in enumerate(shown):
        sample = pixels[number]
        sample = sample if sample.dtype == np.uint8 else (sample * 255).round().astype(np.uint8)
        tile = Image.fromarray(np.ascontiguousarray(sample[0] if mode == "L" else np.moveaxis(sample[:3], 0, -1)))
        tile.thumbnail((TILE - 4, TILE - 4))
        if max(tile.size) < TILE // 2:
            factor = (TILE - 4) // max(tile.size)
            tile = tile.resize((tile.width * factor, tile.height * factor), Image.Resampling.NEAREST)
        sheet.paste(tile, (place % columns * TILE + 2, place // columns * TILE + 2))
    sheet.save(path)
    return True


def _sizes(images: ImageSet) -> str:
    reading = images.reading
    assert reading is not None
    total = f"{sum(len(part) for part in images.parts.values()):,} of {reading.found:,} samples"
    if not reading.sizes:
        return f"{total}, {images.describe().partition(' ')[2]}"
    size = reading.preparation.get("image_size")
    done = f", brought to {' x '.join(map(str, images.shape[1:]))}" + (" by centre-crop and resize" if size else "")
    return f"{total}, files of {counts(reading.sizes)}{done}"


def counts(counted: dict[str, int]) -> str:
    """The most frequent of some kinds of files, with their counts."""
    usual = Counter(counted).most_common(4)
    more = f" and {len(counted) - 4} more kinds" if len(counted) > 4 else ""
    return (usual[0][0] if len(counted) == 1 else ", ".join(f"{what} ({count:,})" for what, count in usual)) + more


def _classes(part: ImageSet) -> str:
    counts = np.bincount(part.labels if part.labels is not None else [], minlength=len(part.classes))
    named = [f"{name} {count:,}" for name, count in zip(part.classes, counts)]
    return ", ".join(named[:12]) + (f" and {len(named) - 12} more" if len(named) > 12 else "")


def _subjects(images: ImageSet) -> set[str]:
    return {str(s) for part in images.parts.values() if part.subjects is not None for s in part.subjects}


def _shared(images: ImageSet) -> int:
    """The number of subjects that are in more than one part."""
    seen = Counter(s for part in images.parts.values() if part.subjects is not None for s in {*map(str, part.subjects)})
    return sum(count > 1 for count in seen.values())


def _carved(images: ImageSet) -> list[str]:
    reading = images.reading
    if reading is None or not reading.divided:
        return []
    how = "by subject" if images.subjects is not None else "by class" if images.labels is not None else "at random"
    if reading.settings.get("group") == "near-duplicates":
        how = "by groups of near duplicates"
    return [f"missing parts were carved from the training images by seed, {how}"]


def _across(images: ImageSet) -> list[str]:
    """Notes on subjects in more than one part, and on validation or test samples that equal a training sample."""
    notes = []
    if (shared := _shared(images)) > 0:
        notes.append(f"{shared} subjects are in more than one part")
    others = [part for name, part in images.parts.items() if name != "train"]
    if others and images.pixels.nbytes < 2**30:
        known = set(duplicates.digests(images))
        again = sum(digest in known for part in others for digest in duplicates.digests(part))
        if again:
            notes.append(f"{again} validation or test samples are also training samples, pixel by pixel")
    return notes


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
