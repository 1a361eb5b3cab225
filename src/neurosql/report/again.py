"""How to reproduce a run: the command, or the call, with every setting that isn't the default."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from neurosql import presets
from neurosql.checkpoint import SPLIT
from neurosql.data import readers
from neurosql.modality import Modality
from neurosql.run import Run
from neurosql.settings import Settings

# Left out of the command: what the run's own split file says, and what belongs to the machine and not to the model.
SAID_BY_THE_SPLIT = ("limit", "test_share", "split")
OF_THE_MACHINE = ("cache", "device")


def how(run: Run, folder: Path) -> str:
    """The shell command that trains the same model on the same samples; a Python call if they were never on disk."""
    own = changed(run.settings, run.data.modality)
    if not run.data.settings:
        given = ", ".join(f"{name}={value!r}" for name, value in own.items())
        return f"neurosql.fit({', '.join(part for part in ('samples', given) if part)})"
    reading = readers.changed(run.data.settings, run.data.reader)
    reading = {name: v for name, v in reading.items() if name not in (*SAID_BY_THE_SPLIT, *OF_THE_MACHINE)}
    words = ["neurosql", "train", run.data.source, "--split", (folder / SPLIT).as_posix()]
    return shlex.join(words + [word for name, value in (own | reading).items() for word in _flag(name, value)])


def changed(settings: Settings, modality: Modality) -> dict[str, Any]:
    """Settings of a run that aren't the method's defaults for its kind of data, by field name; the method first."""
    usual = presets.settings(settings.method, generator=settings.generator.generator).resolve(modality).flat()
    usual["generator"] = modality.generator
    other = {name: value for name, value in settings.flat().items() if value != usual[name]}
    method = {} if settings.method == Settings.method else {"method": settings.method}
    return method | {name: value for name, value in other.items() if name not in OF_THE_MACHINE}


def _flag(name: str, value: Any) -> list[str]:
    """A setting as a flag of the command line."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *map(str, value if isinstance(value, tuple) else (value,))]
