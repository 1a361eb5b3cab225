"""How data are read from disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from neurosql.errors import InputError
from neurosql.settings.checks import at_least, at_most, check_choices, check_types

T = TypeVar("T")
MOST_PIXELS = 2**14
"""Pixels per side to which images can be resized."""


@dataclass(frozen=True)
class DataSettings:
    """What is read from disk, and how it is brought to one shape."""

    limit: int | None = None
    """Use at most this many samples in all, parts for validation and test included: a seeded, class-balanced draw. If
    the data come in official parts, at most this many of each part; of mnist-sample, this many training digits, and all
    others for validation and test."""
    image_size: int | None = None
    """Centre-crop and resize to this many pixels per side, antialiased. 0 leaves images as they are, which is also the
    default, except for celeba, afhq and oasis (64)."""
    channels: Literal["auto", "grey", "colour"] = "auto"
    """Channels of images; auto keeps one channel if all images are grey, even if they were saved in colour."""
    skip_bad: bool = False
    """Skip files that can't be read; the run lists them."""
    split: str | None = None
    """A file of split indices, such as the split.json of another run; `limit` and `test_share` are then ignored."""
    test_share: float = 0.1
    """Share of the data that becomes the test part, if the data have none of their own."""
    group: Literal["auto", "near-duplicates", "none"] = "auto"
    """What is never split between parts; auto keeps all samples of a subject together, if subjects are known."""
    cache: bool = True
    """Keep decoded samples in the user's cache folder, or in the folder that NEUROSQL_CACHE names."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the readers, by field name. Each reader takes its own and ignores the others."""

    def check(self) -> None:
        """Refuse what can't be used. The reader's own settings are checked when the reader is known."""
        check_types(self)
        check_choices(self)
        at_least(self, 1, "limit")
        at_least(self, 0, "image_size")
        at_most(self, MOST_PIXELS, "image_size")
        if self.image_size is not None and self.image_size > 4096:
            raise InputError(f"image_size must be at most 4096, got {self.image_size}")
        if not 0 <= self.test_share < 1:
            raise InputError(f"test_share must be in [0, 1), got {self.test_share}")

    def of(self, kind: type[T]) -> T:
        """A reader's own settings as an instance of its class; fields that were not given have their defaults."""
        fields: Any = dataclasses.fields(kind)  # type: ignore[arg-type]
        own = kind(**{f.name: self.own[f.name] for f in fields if f.name in self.own})
        check_types(own)
        return own

    def flat(self) -> dict[str, Any]:
        """All settings, including the readers' own, as one dictionary that `from_record` takes."""
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "own"}
        return shared | dict(self.own)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> DataSettings:
        """Settings from the dictionary that `flat` returned, or from its JSON."""
        shared = {f.name for f in dataclasses.fields(cls)} - {"own"}
        own = {name: tuple(v) if isinstance(v, list) else v for name, v in record.items() if name not in shared}
        return cls(**{name: value for name, value in record.items() if name in shared}, own=own)
