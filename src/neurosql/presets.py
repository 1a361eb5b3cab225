"""Three words, three meanings, for every method.

- a preset is a method's own choices: `paper`, as the paper has them, or `recommended`, as practitioners make them;
- a size is the widths of the networks (`GeneratorSettings.size`);
- a budget is the epochs and the batch: `smoke` (seconds), `laptop` (minutes on two cores) or `paper`.

Nothing here imports torch.
"""

from __future__ import annotations

from typing import Any, Literal

from neurosql.errors import InputError
from neurosql.settings.methods import METHODS, PAPER
from neurosql.settings.whole import Settings

Preset = Literal["recommended", "paper"]
Budget = Literal["smoke", "laptop", "paper"]

BUDGETS: dict[str, dict[str, Any]] = {
    "smoke": {"epochs": 2, "batch_size": 64, "validate_every": 1, "patience": 0},
    "laptop": {"epochs": 60, "batch_size": 64},
    "paper": {"epochs": 200, "batch_size": 64},
}

# The paper's loss and optimiser are the same for all methods: AdamW, one cosine, weight decay 1e-4, clip 1, 1e-4 to
# 3e-4.
_PAPER = {"learning_rate": 2e-4, "patience": 30, "cost": "paper"}


def choices(method: str, preset: str = "recommended", budget: str = "laptop") -> dict[str, Any]:
    """What preset and budget set, by field name; everything else keeps its default."""
    own = METHODS[method].preset(preset)
    if budget not in BUDGETS:
        raise InputError(f"budget must be one of {', '.join(BUDGETS)}, got {budget!r}")
    return {**(_PAPER if preset == PAPER else {}), **own, **BUDGETS[budget]}


def settings(method: str = "neurosql", preset: str = "recommended", budget: str = "laptop", **own: Any) -> Settings:
    """The settings of a method: those of preset and budget, and `own` ones by field name, which win."""
    return Settings.from_flat({"method": method} | choices(method, preset, budget) | own)
