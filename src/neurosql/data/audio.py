"""A folder of WAV files, as signals or as pictures of their log-mel spectra."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from neurosql.data.listing import Listing, label_by_folder
from neurosql.data.tree import Entry, Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings
from neurosql.settings.checks import at_least, check_choices

SUFFIXES = (".wav", ".wave")
# How Speech Commands names its speakers.
SPEAKER = re.compile(r"^([0-9a-f]{8})_nohash_\d+$")


@dataclass(frozen=True)
class AudioSettings:
    """How sounds are read."""

    audio: Literal["log-mel", "waveform"] = "log-mel"
    """Audio: read each sound as a picture of its log-mel spectrum, or as the signal itself."""
    audio_seconds: float = 1.0
    """Audio: cut or pad each clip to this many seconds around its middle."""
    audio_rate: int | None = None
    """Audio: resample to this many samples per second; by default the files' own rate."""

    def check(self) -> None:
        """Refuse what can't be used."""
        check_choices(self)
        at_least(self, 1, "audio_rate")
        if not 0 < self.audio_seconds <= 600:
            raise InputError(f"audio_seconds must be in (0, 600], got {self.audio_seconds}")


def recognises(tree: Tree) -> bool:
    """Whether there are WAV files."""
    return bool(tree.matching(*SUFFIXES))


def scan(tree: Tree, settings: DataSettings) -> Listing:
    """Sounds, with one class per folder."""
    found = tree.matching(*SUFFIXES)
    if not found:
        raise InputError(f"no .wav files in {str(tree.path)!r}")
    return Listing(label_by_folder(found, _speaker))


def _speaker(entry: Entry) -> str | None:
    named = SPEAKER.match(entry.stem)
    return named.group(1) if named else None
