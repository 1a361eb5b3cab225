"""New samples of a trained model, written as pictures or arrays."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neurosql import files, intake
from neurosql import run as runs
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.modality import Modality
from neurosql.report.sheet import sheet
from neurosql.settings import Sampling

LONGEST = 120
"""Bytes of the name of a folder, with room for more on both sides."""
DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices."""


@dataclass(frozen=True)
class Sampled:
    """Samples that were written."""

    path: Path
    """The file or the folder that holds them."""
    folders: tuple[str, ...] = ()
    """Names of the folders of the classes, if each class has one."""
    others: int = 0
    """Files that were in the folder before and are still there."""


def sample(
    path: str | Path,
    n: int,
    label: str | None = None,
    seed: int = 0,
    how: Sampling | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Sampled:
    """Draw n samples of a run and write them: a .png sheet, a .npy or .npz array, or a folder of single pictures.

    By default, write a sheet to the run's folder, or an array if samples are not pictures. Single pictures of a
    class-conditional model are in one folder per class. What `out` names must not exist, or be an empty folder, unless
    `overwrite` is true.
    """
    how = how or Sampling()
    run = runs.open_run(path)
    words = "".join(f"-{part}" for part in folder_names([p for p in (label, how.sampler) if p is not None]))
    suffix = ".png" if run.data.modality.is_picture else ".npy"
    target = Path(out) if out else Path(path) / f"samples-seed{seed}{words}{suffix}"
    _check(target, run.data.modality)
    if out and not overwrite:
        _check_free(target)
    with runs.damage_of(path):
        images, labels = run.draw(n, label, seed, how)
    if target.suffix == ".png":
        sheet(images, target, columns=max(1, round(n**0.5)))
    elif target.suffix:
        files.replace(target, _array(run, images, labels, target.suffix))
    else:
        return _singles(images, labels, run.like.classes, target)
    return Sampled(target)


def _check(target: Path, modality: Modality) -> None:
    """Refuse a path that samples can't be written to."""
    if target.suffix == ".png" and not modality.is_picture:
        raise InputError(f"{modality.plural} can't be drawn on a sheet: give a .npy or .npz file")
    if target.suffix not in (".png", ".npy", ".npz") and not (target.suffix == "" and modality.is_picture):
        raise InputError(f"can't write samples to {target}: give a .png, .npy or .npz file, or a folder")
    if target.exists() and target.is_dir() != (target.suffix == ""):
        kind = "a folder" if target.is_dir() else "a file"
        raise InputError(f"can't write samples to {target}: it is {kind}; give another path")


def _check_free(target: Path) -> None:
    """Refuse to write over what is there."""
    if target.is_dir() and any(target.iterdir()):
        raise InputError(f"{target} is not empty: give another folder, or --overwrite to write into this one")
    if target.is_file():
        raise InputError(f"{target} exists: give another file, or --overwrite to replace it")


def _array(run: Run, images: np.ndarray, labels: np.ndarray | None, suffix: str) -> bytes:
    content = io.BytesIO()
    restored = run.like.restore_new(images)
    if suffix == ".npy":
        np.save(content, restored)
    else:
        named = {} if labels is None else {"labels": np.array(run.like.classes)[labels]}
        np.savez_compressed(content, images=restored, **named)
    return content.getvalue()


def _singles(images: np.ndarray, labels: np.ndarray | None, classes: Sequence[str], target: Path) -> Sampled:
    """One file per sample; with labels, in one folder per class, as `train` and other programs read them back."""
    names = folder_names(classes)
    written = set()
    for i, image in enumerate(images):
        folder = target if labels is None else target / names[labels[i]]
        intake.inside(target, folder)
        written.add(folder / f"{i:05d}.png")
        sheet(image[None], folder / f"{i:05d}.png", gap=0, pixels=0)
    others = sum(path.is_file() and path not in written for path in target.rglob("*"))
    used = () if labels is None else tuple(names[number] for number in np.unique(labels))
    return Sampled(target, used, others)


def folder_names(classes: Sequence[str]) -> list[str]:
    """A name for the folder of each class: its own, without what means something else in a path."""
    names: list[str] = []
    for number, name in enumerate(classes):
        shown = "".join(letter if letter.isprintable() else "_" for letter in name)
        plain = re.sub(r'[/\\:*?"<>|]+', "_", shown).strip(" .") or "_"
        if DEVICE.fullmatch(plain):
            plain = f"_{plain}"
        while len(plain.encode()) > LONGEST:
            plain = plain[:-1].strip(" .")
        # Two classes never share a folder, also where the case of letters is ignored.
        taken = {other.lower() for other in names}
        names.append(plain if plain.lower() not in taken else f"{plain}-{number}")
    return names
