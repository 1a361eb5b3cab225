"""New samples of a trained model, written as pictures or arrays."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from neurosql import files
from neurosql import run as runs
from neurosql.errors import InputError
from neurosql.report.sheet import sheet
from neurosql.settings import Sampling


def sample(
    path: str | Path,
    n: int,
    label: str | None = None,
    seed: int = 0,
    how: Sampling | None = None,
    out: str | Path | None = None,
) -> Path:
    """Draw n samples of a run and write them: a .png sheet, a .npy or .npz array, or a folder of single pictures.

    By default, write a sheet to the run's folder, or an array if samples are not pictures. Returns the path.
    """
    how = how or Sampling()
    run = runs.open_run(path)
    modality = run.data.modality
    images, labels = run.draw(n, label, seed, how)
    words = "".join(f"-{part}" for part in (label, how.sampler) if part is not None)
    suffix = ".png" if modality.is_picture else ".npy"
    target = Path(out) if out else Path(path) / f"samples-seed{seed}{words}{suffix}"
    if target.suffix == ".png":
        if not modality.is_picture:
            raise InputError(f"{modality.plural} can't be drawn on a sheet: give a .npy or .npz file")
        target.parent.mkdir(parents=True, exist_ok=True)
        sheet(images, target, columns=max(1, round(n**0.5)))
    elif target.suffix in (".npy", ".npz"):
        content = io.BytesIO()
        restored = run.like.restore(images)
        if target.suffix == ".npy":
            np.save(content, restored)
        else:
            named = {} if labels is None else {"labels": np.array(run.like.classes)[labels]}
            np.savez_compressed(content, images=restored, **named)
        files.replace(target, content.getvalue())
    elif target.suffix == "" and modality.is_picture:
        target.mkdir(parents=True, exist_ok=True)
        for i, image in enumerate(images):
            sheet(image[None], target / f"{i:05d}.png", gap=0, pixels=0)
    else:
        raise InputError(f"can't write samples to {target}: give a .png, .npy or .npz file, or a folder")
    return target
