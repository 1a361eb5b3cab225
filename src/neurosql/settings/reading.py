"""How data are read from disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from neurosql.errors import InputError
from neurosql.settings.checks import at_least, check_choices


@dataclass(frozen=True)
class DataSettings:
    """What is read from disk, and how it is brought to one shape."""

    limit: int | None = None
    """Read at most so many samples (of each part, where the data come in parts): a seeded, class-balanced draw."""
    image_size: int | None = None
    """Centre-crop and resize to so many pixels a side, antialiased; 0 leaves images as they are, which is also the
    default but for celeba, afhq and oasis (64)."""
    channels: Literal["auto", "grey", "colour"] = "auto"
    """Channels of images; auto keeps one where all images are grey, even if they were saved as colour."""
    skip_bad: bool = False
    """Go on without files that can't be read; the run lists them."""
    split: str | None = None
    """A file of split indices, such as the split.json of another run; `limit` and `test_share` then do not count."""
    test_share: float = 0.1
    """Share that is left for the test part where the data have none of their own."""
    group: Literal["auto", "near-duplicates", "none"] = "auto"
    """What is never split between parts: auto is all samples of a subject, where subjects are known."""
    axis: int | None = None
    """NIfTI: read the slices along this axis (0, 1 or 2) as images; by default whole volumes."""
    window: tuple[float, float] | None = None
    """NIfTI: intensities that become 0 and 1; by default each volume's 0.5 and 99.5 percentiles."""
    audio: Literal["log-mel", "waveform"] = "log-mel"
    """Audio: as a picture of the log-mel spectrum, or as the signal itself."""
    audio_seconds: float = 1.0
    """Audio: length that clips are cut or padded to, from the middle."""
    audio_rate: int | None = None
    """Audio: samples a second, by resampling; by default the files' own."""
    cache: bool = True
    """Keep what was decoded in the user's cache folder, or in the one that NEUROSQL_CACHE names."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "limit", "audio_rate")
        at_least(self, 0, "image_size")
        if self.image_size is not None and self.image_size > 4096:
            raise InputError(f"image_size must be at most 4096, got {self.image_size}")
        if not 0 <= self.test_share < 1:
            raise InputError(f"test_share must be in [0, 1), got {self.test_share}")
        if self.axis not in (None, 0, 1, 2):
            raise InputError(f"axis must be 0, 1 or 2, got {self.axis}")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise InputError(f"window must be two rising numbers, got {self.window[0]} and {self.window[1]}")
        if not 0 < self.audio_seconds <= 600:
            raise InputError(f"audio_seconds must be in (0, 600], got {self.audio_seconds}")

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> DataSettings:
        """Settings from what `dataclasses.asdict` gave, by way of JSON."""
        window = record.get("window")
        return cls(**record | {"window": None if window is None else tuple(window)})
