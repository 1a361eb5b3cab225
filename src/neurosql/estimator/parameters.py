"""What `help(NeuroSQL)` says about the constructor's arguments: each setting has the text of its field."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TypeVar

from neurosql import presets
from neurosql.settings import BACKBONES, METHODS, section_classes, words
from neurosql.settings.words import Parameter

T = TypeVar("T", bound=type)

RECORD = METHODS["neurosql"]
HEADING = "Attributes\n----------"

_NO_SETTINGS = (
    Parameter(
        "preset",
        "{" + ", ".join(f'"{name}"' for name in RECORD.presets()) + '}, default="recommended"',
        "What the arguments that are None stand for: see above.",
    ),
    Parameter(
        "random_state",
        "int, RandomState instance or None, default=0",
        "Seed of the lattice, the initial weights, the split and the order of the images: the seed of the command "
        "line. None draws one.",
    ),
    Parameter("verbose", "int, default=0", "1 prints what the samples were read as, and shows the progress."),
    Parameter(
        "warm_start",
        "bool, default=False",
        "True makes the next `fit` go on from the present weights, with the same images or with others; see also "
        "`fit_more`.",
    ),
    Parameter("holdout", "float, default=None", "The former name of `validation_share`."),
)
"""The arguments that are not settings of a run."""


def documented(kind: T) -> T:
    """Put a section Parameters into the docstring of the class, before its attributes."""
    if kind.__doc__ is None:
        # Python was started with -OO, which leaves out all docstrings.
        return kind
    before, heading, after = inspect.cleandoc(kind.__doc__).partition(HEADING)
    kind.__doc__ = (
        before + words.parameters(list(inspect.signature(kind).parameters), _known()) + "\n\n" + heading + after
    )
    return kind


def _known() -> dict[str, Parameter]:
    by_preset = {name: presets.choices("neurosql", name) for name in RECORD.presets() if name != "recommended"}
    kinds = [*section_classes("neurosql").values(), *(BACKBONES[name].settings for name in BACKBONES.built_in)]
    known = words.of_settings(kinds, by_preset)
    known["prior"] = replace(known["prior"], kind=known["prior"].kind.replace(", default", " or Prior, default"))
    return known | {parameter.name: parameter for parameter in _NO_SETTINGS}
