"""What a user gives to the estimator, as an ImageSet; tables go through scikit-learn's own checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from neurosql import run as runs
from neurosql.data import ImageSet, from_dataset
from neurosql.data.columns import is_frame, named
from neurosql.data.dataset import is_dataset
from neurosql.data.given import to_array, top_of
from neurosql.data.imageset import RANK, encode_labels, from_array
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.origin import alike
from neurosql.settings import Settings


def to_train_on(model: BaseEstimator, X: Any, y: Any, settings: Settings, like: ImageSet | None) -> ImageSet:
    """The samples to train on; in the units of `like` where a trained model goes on."""
    conditional = settings.generator.conditional
    if isinstance(X, (ImageSet, str, Path)) or is_dataset(X):
        images = runs.images_of(X, y, settings)
    else:
        labels = y if y is not None and (conditional or looks_like_classes(y)) else None
        images = _from_array(model, X, labels, like, reset=True)
    if like is None:
        return images
    images = images.in_units_of(like)
    return images.numbered_as(like) if conditional else images


def like_training(model: BaseEstimator, run: Run, X: Any, y: Any = None, labelled: bool = False) -> ImageSet:
    """Samples for a trained model, in its units; `labelled` keeps the labels that they have, or takes y."""
    like = run.like
    if isinstance(X, (str, Path)):
        images = alike(run.data, like, str(X))
    elif isinstance(X, ImageSet) or is_dataset(X):
        images = X if isinstance(X, ImageSet) else from_dataset(X)
        images = images if y is None else images.labelled(y)
    else:
        images = _from_array(model, X, y, like, reset=False)
    if images.shape != tuple(run.data.shape):
        hint = ": give a set of one, X[None]" if _is_single(X, run) else ""
        raise InputError(f"samples must have shape {tuple(run.data.shape)}, got {images.shape}{hint}")
    images = images.in_units_of(like)
    return images.numbered_as(like) if labelled else images.labelled(None)


def _from_array(model: BaseEstimator, X: Any, labels: Any, like: ImageSet | None, reset: bool) -> ImageSet:
    names, types = named(X)
    if is_frame(X):
        _check_numeric(X)
    if _holds_objects(X):
        X = to_array(X)
    if rank(X) < 3:
        X = validate_data(model, X, reset=reset, dtype=None, ensure_min_samples=2 if reset else 1)
        if X.dtype.kind in "OUS":
            X = X.astype(np.float64)
    else:
        X = to_array(X)
    counts = rank(X) > 2 and X.dtype.kind in "iu"
    if counts and reset:
        # Later images may be so dark that they do not show what white is.
        model._top = top_of(X)
    images = from_array(
        X,
        labels,
        layout=like.layout if like is not None and rank(X) == RANK[like.layout] else None,
        mean=None if like is None else like.mean,
        std=None if like is None else like.std,
        minimum=2 if reset else 1,
        top=getattr(model, "_top", None) if counts and not reset else None,
    )
    if images.columns is None or not names:
        return images
    return replace(images, columns=replace(images.columns, names=names, types=types))


def _check_numeric(frame: Any) -> None:
    """Refuse a data frame with a column that is not numeric, by the name of the column."""
    for name, kind in zip(frame.columns, frame.dtypes):
        try:
            np.asarray(frame[name], dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"column {name!r} holds {kind}, not numbers: leave it out, or encode its values as numbers first"
            ) from None


def _holds_objects(X: Any) -> bool:
    """Whether it is a tensor, an image, or a list of tensors, images or arrays, which scikit-learn does not take."""
    if hasattr(X, "detach") or isinstance(X, Image.Image):
        return True
    if not isinstance(X, (list, tuple)) or not len(X):
        return False
    return any(hasattr(item, "detach") or isinstance(item, (Image.Image, np.ndarray)) for item in X)


def _is_single(X: Any, run: Run) -> bool:
    shape, own = tuple(np.shape(X)), tuple(run.data.shape)
    return shape in (own, own[1:], (*own[1:], own[0]))


def looks_like_classes(y: Any) -> bool:
    """Whether labels can be classes: names or whole numbers, one for each sample."""
    try:
        encode_labels(y, len(y))
    except (InputError, TypeError):
        return False
    return True


def rank(X: Any) -> int:
    """Number of axes of an array, a sparse matrix, a table or a nested list."""
    return X.ndim if hasattr(X, "ndim") else to_array(X).ndim
