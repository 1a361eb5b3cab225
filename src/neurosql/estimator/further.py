"""More training of a fitted model: on the same images, on other ones, or on more of them."""

from __future__ import annotations

import dataclasses

import numpy as np

from neurosql.data import ImageSet
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.run import Beginning
from neurosql.settings import Settings
from neurosql.settings.sections import AUTO

KEPT = {"generator": None, "backbone": None, "latent": ("prior", "lattice", "scale")}
"""Settings that a trained model can't change, by section; None is all of them."""


def going_on(run: Run, settings: Settings, images: ImageSet) -> Settings:
    """The settings for more training of a model, on these images; an InputError if they ask for another model."""
    if tuple(images.shape) != tuple(run.data.shape):
        raise InputError(f"the model was trained on samples of shape {run.data.shape}, got {images.shape}")
    if settings.generator.latent_dim == AUTO:
        number = dataclasses.replace(settings.generator, latent_dim=run.settings.generator.dim)
        settings = dataclasses.replace(settings, generator=number)
    wanted, given = settings.resolve(images.modality).sections(), run.settings.sections()
    for section, names in KEPT.items():
        for name in names or given[section]:
            if wanted[section].get(name) != given[section][name]:
                raise InputError(
                    f"{name} of a trained model can't change from {given[section][name]!r} to "
                    f"{wanted[section].get(name)!r}: set it back, or fit a new model without warm_start"
                )
    return settings


def from_images(run: Run, images: ImageSet) -> Beginning:
    """Go on with these images: from their codes if they are the ones that the model was trained on."""
    if images.fingerprint != run.data.fingerprint:
        return Beginning(run)
    return Beginning(run, _codes(run, len(images)), run.index)


def with_more(run: Run, images: ImageSet, more: ImageSet | None, share: float, seed: int) -> tuple[ImageSet, Beginning]:
    """Go on with the same images and, if given, more of them.

    If images were held out for validation, so is the same `share` of the new ones.
    """
    if more is None:
        return images, Beginning(run, _codes(run, len(images)), run.index)
    if run.method.classes and more.labels is None:
        raise InputError("a class-conditional model needs the classes of the images: give y")
    n = len(images)
    held_out = images.validation is None and len(run.index) < n
    new = more.split(share, seed)[0] if held_out else np.arange(len(more))
    joined = images.joined(more)
    return joined, Beginning(run, _codes(run, len(joined)), np.concatenate([run.index, n + new]))


def _codes(run: Run, n: int) -> np.ndarray:
    codes = np.full((n, run.settings.generator.dim), np.nan, np.float32)
    codes[run.index] = run.method.codes.cpu().numpy()
    return codes
