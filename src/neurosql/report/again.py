"""How to reproduce a run: the command, or the call, with every setting that isn't the default."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from neurosql import presets
from neurosql.checkpoint import SPLIT
from neurosql.data import readers
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.modality import Modality
from neurosql.settings import METHODS, Settings, as_flags
from neurosql.settings.methods import RECOMMENDED

# Left out of the command: what the run's own split file says, and what belongs to the machine and not to the model.
SAID_BY_THE_SPLIT = ("limit", "test_share", "split")
OF_THE_MACHINE = ("cache", "device")
# What other settings follow, in the preset or by their names.
DECIDING = ("method", "generator", "latent_dim", "prior", "algorithm")


def how(run: Run, folder: Path) -> str:
    """The shell command that trains the same model on the same samples; a Python call if they were never on disk."""
    own = changed(run.settings, run.data.modality)
    if not run.data.settings:
        given = ", ".join(f"{name}={value!r}" for name, value in own.items())
        return f"neurosql.fit({', '.join(part for part in ('samples', given) if part)})"
    reading = readers.changed(run.data.settings, run.data.reader)
    reading = {name: v for name, v in reading.items() if name not in (*SAID_BY_THE_SPLIT, *OF_THE_MACHINE)}
    words = ["neurosql", "train", run.data.source, "--split", (folder / SPLIT).as_posix()]
    return shlex.join(words + as_flags(own | reading))


def changed(settings: Settings, modality: Modality) -> dict[str, Any]:
    """Settings of a run that aren't those of the nearest preset for its kind of data, by field name.

    The method and the preset come first, unless they are the usual ones.
    """
    method = {} if settings.method == Settings.method else {"method": settings.method}
    ways = []
    for preset in METHODS[settings.method].presets():
        # Some presets do not go with what was asked for.
        with suppress(InputError):
            named = {} if preset == RECOMMENDED else {"preset": preset}
            ways.append(named | _beyond(preset, settings, modality))
    return method | min(ways, key=len)


def _beyond(preset: str, settings: Settings, modality: Modality) -> dict[str, Any]:
    """What differs from a preset in the settings of a run, by field name."""
    chosen = settings.flat()
    asked = {name: chosen[name] for name in DECIDING if name in chosen}
    usual = presets.settings(preset=preset, **asked).resolve(modality).flat()
    unasked = presets.settings(settings.method, preset).resolve(modality).flat()
    usual |= {name: unasked[name] for name in asked}
    return {name: v for name, v in chosen.items() if v != usual[name] and name not in OF_THE_MACHINE}
