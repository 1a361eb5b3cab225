"""Settings that have another name than in version 0.1.0: old runs are read, and old flags work, with a notice."""

from __future__ import annotations

from typing import Any

RENAMED = {"holdout": "validation_share", "pairs": "strategy", "refresh": "strategy"}
VALUES: dict[str, dict[str, str]] = {
    "pairs": {"auto": "auto", "all": "dense", "candidates": "candidates"},
    "refresh": {"full": "auto", "partial": "auto"},
}
DROPPED = ("refresh_best", "refresh_every", "refresh_gap")
"""Of the partial refresh of costs, which candidates do better."""
OF_SAMPLING = ("sampling_steps", "solver")
"""Chosen when sampling, and no longer when training."""
OF_RESNET = ("taper", "resnet18")
"""In the section of the generator once, whatever the generator was."""


def renamed(name: str, value: Any) -> tuple[str, Any]:
    """A setting under its present name, with its present value."""
    return RENAMED.get(name, name), VALUES.get(name, {}).get(value, value)


def notice(name: str, value: Any) -> str:
    """What to tell somebody who uses an old name."""
    new, now = renamed(name, value)
    return f"{name} is called {new} ({new}={now!r} here): the old name will go"


def with_new_names(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a section, without old names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in DROPPED:
            continue
        new, now = renamed(name, value)
        # Of two old names that became one, the one that says something wins.
        if new == name or new not in found or found[new] == "auto":
            found[new] = now
    return found


def sections(given: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The sections of `config.json` as they are now."""
    found = {name: with_new_names(values) for name, values in given.items()}
    if "backbone" not in found:
        own = {name: found["generator"].pop(name) for name in OF_RESNET if name in found["generator"]}
        found["backbone"] = own if found["generator"]["generator"] == "resnet" else {}
    found["own"] = {name: value for name, value in found["own"].items() if name not in OF_SAMPLING}
    return found


def sampling(given: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How a run of version 0.1.0 was to be sampled: the sampler and its steps, where its settings say so."""
    own = given["own"]
    steps = own.get("sampling_steps")
    if steps is None:
        return {}
    if "solver" in own:
        return {"sampler": own["solver"], "steps": steps}
    return {"sampler": "ancestral"} if steps == own["noise_steps"] else {"sampler": "ddim", "steps": steps}
