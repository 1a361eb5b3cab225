"""Settings renamed after version 0.1.0. Old runs can still be read, and old flags still work, with a notice."""

from __future__ import annotations

from typing import Any

RENAMED = {"holdout": "validation_share", "pairs": "strategy", "refresh": "strategy"}
VALUES: dict[str, dict[str, str]] = {
    "pairs": {"auto": "auto", "all": "dense", "candidates": "candidates"},
    "refresh": {"full": "auto", "partial": "auto"},
}
DROPPED = ("refresh_best", "refresh_every", "refresh_gap")
"""Settings of the partial refresh of costs; candidates do the same job better."""
OF_SAMPLING = ("sampling_steps", "solver")
"""Chosen when sampling, no longer when training."""
OF_RESNET = ("taper", "resnet18")
"""Once in the section of the generator, whichever generator was chosen."""


def renamed(name: str, value: Any) -> tuple[str, Any]:
    """The present name and the present value of a setting."""
    known = VALUES.get(name, {})
    return RENAMED.get(name, name), known.get(value, value) if isinstance(value, str) else value


def notice(name: str, value: Any) -> str:
    """The notice for somebody who uses an old name."""
    new, now = renamed(name, value)
    return f"{name} has been renamed to {new}: use {new}={now!r}; the old name will be removed"


def with_new_names(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a section under their present names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name in DROPPED:
            continue
        new, now = renamed(name, value)
        # Two old names became one: a value other than auto wins.
        if new == name or new not in found or found[new] == "auto":
            found[new] = now
    return found


def sections(given: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The sections of an old `config.json` in the present form."""
    found = {name: with_new_names(values) for name, values in given.items()}
    if "backbone" not in found:
        own = {name: found["generator"].pop(name) for name in OF_RESNET if name in found["generator"]}
        found["backbone"] = own if found["generator"]["generator"] == "resnet" else {}
    found["own"] = {name: value for name, value in found["own"].items() if name not in OF_SAMPLING}
    # Before it could be chosen, all was float32.
    found["training"].setdefault("precision", "float32")
    return found


def sampling(given: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The sampler and its steps that the settings of a run of version 0.1.0 ask for; empty if they ask for none."""
    own = given["own"]
    steps = own.get("sampling_steps")
    if steps is None:
        return {}
    if "solver" in own:
        return {"sampler": own["solver"], "steps": steps}
    return {"sampler": "ancestral"} if steps == own["noise_steps"] else {"sampler": "ddim", "steps": steps}
