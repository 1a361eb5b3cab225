"""What is computed once from real images and kept in the cache folder: features, and a classifier of the labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from neurosql import files
from neurosql.data.imageset import ImageSet
from neurosql.data.store import cache_folder
from neurosql.metrics.classifier import Classifier, train_classifier
from neurosql.metrics.features import Features


def cached(compute: Features, images: np.ndarray, name: str, fingerprint: str, seed: int) -> np.ndarray:
    """Features of real images, kept under the data's fingerprint."""
    key = (fingerprint, seed, images.shape)
    return _kept(name, key, lambda: {"features": torch.from_numpy(compute(images))})["features"].numpy()


def cached_classifier(train: ImageSet, seed: int, steps: int | None = None) -> Classifier:
    """The classifier of a set's own labels, as `train_classifier` fits it; many models of the same set share it."""
    assert train.labels is not None
    x, labels, classes = train.x, train.labels, len(train.classes)
    key = (train.fingerprint, seed, torch.__version__, *([] if steps is None else [steps]))
    weights = _kept("classifier", key, lambda: train_classifier(x, labels, classes, seed, steps=steps).state_dict())
    net = Classifier(train.shape, classes)
    net.load_state_dict(weights)
    return net


def _kept(name: str, key: tuple[Any, ...], make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors from the cache folder, or made and put there; written whole or not at all."""
    digest = hashlib.sha256(" ".join(map(str, (name, *key))).encode()).hexdigest()[:32]
    path = cache_folder() / "features" / f"{name}-{digest}.safetensors"
    with suppress(OSError, SafetensorError):
        return safetensors.torch.load(path.read_bytes())
    made = make()
    with suppress(OSError):  # a cache that can't be written costs time, nothing else
        files.replace(path, safetensors.torch.save(made))
    return made
