"""Samples in the form that the caller wants: arrays, tensors, data frames, Pillow images."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurosql.data.columns import Columns
from neurosql.data.given import to_pictures
from neurosql.errors import InputError
from neurosql.fitted import Run

OUTPUTS = ("numpy", "torch", "pandas", "pil")


def delivered(run: Run, made: np.ndarray, output: str | None) -> Any:
    """Samples (n, *shape) of a model in one of `OUTPUTS`; None is a data frame if the model was trained on one."""
    if output is None:
        columns = run.like.columns
        output = "pandas" if columns is not None and columns.types else "numpy"
    if output not in OUTPUTS:
        raise InputError(f"output must be one of {', '.join(OUTPUTS)}, got {output!r}")
    if output == "pil":
        return to_pictures(made)
    values = run.like.restore_new(made)
    if output == "numpy":
        return values
    if output == "torch":
        import torch

        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    if run.data.modality.axes:
        raise InputError(f"{run.data.modality.plural} can't be a data frame: use {' or '.join(OUTPUTS[:2])}")
    return (run.like.columns or Columns.of(values)).frame(values)
