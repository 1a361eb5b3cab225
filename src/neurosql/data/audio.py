"""A folder of WAV files, as signals or as pictures of their log-mel spectra."""

from __future__ import annotations

import re

from neurosql.data.folder import label_by_folder
from neurosql.data.listing import Listing
from neurosql.data.tree import Entry, Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

NAME = "audio"
SUFFIXES = (".wav", ".wave")
# As the Speech Commands name their speakers.
SPEAKER = re.compile(r"^([0-9a-f]{8})_nohash_\d+$")


def recognises(tree: Tree) -> bool:
    return bool(tree.matching(*SUFFIXES))


def scan(tree: Tree, settings: DataSettings) -> Listing:
    found = tree.matching(*SUFFIXES)
    if not found:
        raise InputError(f"no .wav files in {str(tree.path)!r}")
    return Listing(label_by_folder(found, _speaker), "audio")


def _speaker(entry: Entry) -> str | None:
    named = SPEAKER.match(entry.stem)
    return named.group(1) if named else None
