"""What a fitted model makes of codes, as a computation that ends in the user's units."""

from __future__ import annotations

import numpy as np

from neurosql.computation import recording
from neurosql.computation.steps import Computation
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.generators.base import Generator


def generator_of(run: Run) -> Generator:
    """The network that makes samples from codes, or an InputError."""
    generator = run.method.networks.get("generator")
    if not isinstance(generator, Generator) or run.method.sampling != ("generator",):
        raise InputError(
            f"{run.settings.method} makes samples in many steps, not by one generator: only runs of methods with a "
            "generator can be exported as one file"
        )
    return generator


def decoding(run: Run) -> Computation:
    """G(z, label) of a fitted model.

    Images, signals and volumes are in [0, 1], channels first. Rows of a table are in the units of the table, within the
    range of each column and whole where the column is.
    """
    done = recording.record(generator_of(run))
    if run.like.mean is not None and run.like.std is not None:
        done.then("mul", run.like.std)
        done.then("add", run.like.mean)
    if (columns := run.like.columns) is not None:
        done.then("maximum", columns.low)
        done.then("minimum", columns.high)
        done.then("whole", columns.whole.astype(np.float32))
    return done
