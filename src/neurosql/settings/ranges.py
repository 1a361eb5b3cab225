"""What a search may try for a setting: a span of numbers, or some values.

The ranges of settings that all methods share stand here, those of a method's own settings in its record. A setting with
choices, or one that is on or off, needs none. Anything else is searched over the range that the user gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from neurosql.errors import InputError

Value = bool | int | float | str | None


@dataclass(frozen=True)
class Span:
    """All numbers from `low` to `high`; only whole ones for a setting that is a whole number."""

    low: float
    high: float
    log: bool = False
    """Whether orders of magnitude are equally likely, rather than numbers."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"a range must rise, got {self.low:g} to {self.high:g}")
        if self.log and self.low <= 0:
            raise InputError(f"a logarithmic range must begin above 0, got {self.low:g}")

    @property
    def ends(self) -> tuple[float, float]:
        """Its two ends."""
        return self.low, self.high

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', logarithmic' if self.log else ''}"


@dataclass(frozen=True)
class Choices:
    """These values, in any order."""

    values: tuple[Value, ...]

    @property
    def ends(self) -> tuple[Value, ...]:
        """All of them."""
        return self.values

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


Range = Span | Choices

SHARED: dict[str, Range] = {
    "learning_rate": Span(3e-4, 3e-2, log=True),
    "weight_decay": Span(1e-6, 1e-2, log=True),
    "batch_size": Choices((32, 64, 128, 256)),
    "beta1": Span(0.5, 0.95),
    "beta2": Span(0.9, 0.999),
    "ema": Choices((0.0, 0.99, 0.995, 0.999)),
    "clip": Span(0.1, 10, log=True),
    "latent_dim": Span(2, 64, log=True),
    "width": Choices((32, 64, 128)),
    "mapping": Span(0, 4),
    "mapping_width": Choices((64, 128, 256)),
    "scale": Span(0.5, 2, log=True),
}
"""Ranges of the settings that every method shares, by field name."""
