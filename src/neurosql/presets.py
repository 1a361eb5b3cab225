"""Presets, sizes and budgets: three words that mean the same for every method.

- a preset sets the method's own choices: `paper`, as in the paper, or `recommended`, as practitioners choose; some
  methods also have presets for one purpose, such as `map` and `samples`, one of which may be the recommended one;
- a size sets the widths of the networks (`GeneratorSettings.size`);
- a budget sets the epochs and the batch size: `smoke` (seconds), `laptop` (minutes on two cores) or `paper`.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from neurosql.errors import InputError
from neurosql.settings.methods import METHODS, PAPER
from neurosql.settings.whole import Settings

Preset = Literal["recommended", "paper", "plain", "map", "samples", "photographs"]
Budget = Literal["smoke", "laptop", "paper"]

BUDGETS: dict[str, dict[str, Any]] = {
    "smoke": {"epochs": 2, "batch_size": 64, "validate_every": 1, "patience": 0},
    "laptop": {"epochs": 60, "batch_size": 64},
    "paper": {"epochs": 200, "batch_size": 64},
}

# The paper's loss and optimiser are the same for all methods: AdamW, one cosine, weight decay 1e-4, clip 1, and a rate
# of 1e-4 to 3e-4.
_PAPER = {"learning_rate": 2e-4, "patience": 30, "cost": "paper", "precision": "float32"}


def choices(
    method: str, preset: str = "recommended", budget: str = "laptop", given: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """The settings of a preset and a budget, by field name; everything else keeps its default.

    What a method recommends may depend on the settings that are `given` besides.
    """
    own = METHODS[method].preset(preset, given)
    if budget not in BUDGETS:
        raise InputError(f"budget must be one of {', '.join(BUDGETS)}, got {budget!r}")
    return {**(_PAPER if preset == PAPER else {}), **own, **BUDGETS[budget]}


def settings(method: str = "neurosql", preset: str = "recommended", budget: str = "laptop", **own: Any) -> Settings:
    """The settings of a method: those of the preset and the budget, overridden by `own`, by field name."""
    return Settings.from_flat({"method": method} | choices(method, preset, budget, own) | own)
