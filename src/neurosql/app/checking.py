"""Describe data before training on them: everything odd at once, and a command that trains on them."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from neurosql import data
from neurosql.app.training import stem_of
from neurosql.data import ImageSet, check, findings, readers
from neurosql.data.findings import Finding
from neurosql.errors import Obstacles
from neurosql.report.again import OF_THE_MACHINE
from neurosql.settings import DataSettings, TrainingSettings, as_flags

DETAILED = 48
"""Pixels per side from which on grey images may be scans."""
PHOTOGRAPHS = "--preset photographs makes the best samples of photographs and scans; without it you get a map"


@dataclass(frozen=True)
class Checked:
    """What was found out about data."""

    report: str
    """Lines on formats, counts, sizes and memory."""
    findings: list[Finding] = field(default_factory=list)
    command: str | None = None
    """A command that trains on the data, if there is one."""
    settings: DataSettings | None = None
    """How that command reads them."""
    sheet: Path | None = None
    """The contact sheet, if samples are pictures."""
    hint: str | None = None
    """What else to consider when training on them."""


def check_data(source: str, how: DataSettings, seed: int = 0, sheet: str | Path | None = None) -> Checked:
    """Read a source as `how` says, and where that fails as it could be read; report, and draw a contact sheet."""
    found: list[Finding] = []
    try:
        images, how = _readable(source, dataclasses.replace(how, skip_bad=True), seed, found)
    except Obstacles as error:
        return Checked(f"source     {source}", found + _as_findings(error))
    if images.reading is not None and not images.reading.skipped:
        how = dataclasses.replace(how, skip_bad=False)
    divided = _divided(images, how, seed)
    found += findings.of(images, divided)
    settled = {name: value for finding in found for name, value in finding.settings.items()}
    if settled and how.split is None:
        how = dataclasses.replace(how, **settled)
        images = data.load(source, seed=seed, settings=how)
        divided = _divided(images, how, seed)
    assert images.reading is not None
    target = Path(sheet) if sheet else Path(f"{stem_of(source)}-check.png")
    target.parent.mkdir(parents=True, exist_ok=True)
    drawn = check.contact_sheet(images, target)
    changed = readers.changed(how.flat(), images.reading.reader)
    changed = {name: value for name, value in changed.items() if name not in OF_THE_MACHINE}
    changed |= {} if seed == 0 else {"seed": seed}
    command = shlex.join(["neurosql", "train", source, *as_flags(changed)])
    sheet = target if drawn else None
    return Checked(
        check.report(images, divided), found, command, how, sheet, PHOTOGRAPHS if _detailed(images) else None
    )


def _divided(images: ImageSet, how: DataSettings, seed: int) -> ImageSet:
    """The images in the parts that training makes of them."""
    if how.split is not None:
        return images
    return images.divide(TrainingSettings().validation_share, how.test_share, seed)


def _detailed(images: ImageSet) -> bool:
    """Whether images may be photographs or scans: in colour, or of some size."""
    return images.modality.is_picture and (images.shape[0] == 3 or min(images.shape[1:]) >= DETAILED)


def _as_findings(error: Obstacles) -> list[Finding]:
    """Each obstacle is a sentence: what is in the way, then, after a colon, what settles it."""
    return [Finding(what, settle) for what, _, settle in (words.rpartition(": ") for words in error.found)]


def _readable(source: str, how: DataSettings, seed: int, found: list[Finding]) -> tuple[ImageSet, DataSettings]:
    """The images with settings that all networks can train on; what had to be settled is added to `found`."""
    try:
        images = data.load(source, seed=seed, settings=how)
    except Obstacles as error:
        if not error.settled_by.keys() - {"skip_bad"}:
            raise
        found += _as_findings(error)
        how = dataclasses.replace(how, **error.settled_by)
        images = data.load(source, seed=seed, settings=how)
    height_width = " x ".join(map(str, images.shape[1:]))
    if (side := findings.large(images)) or (side := findings.small(images)):
        why = "training takes long and much memory" if findings.large(images) else "most networks need 8 or more"
        found.append(Finding(f"images have {height_width} pixels, and {why}", f"--image-size {side} resizes them"))
        how = dataclasses.replace(how, image_size=side)
        images = data.load(source, seed=seed, settings=how)
    return images, how
