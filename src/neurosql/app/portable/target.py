"""Where an exported file goes, and from which run."""

from __future__ import annotations

from pathlib import Path

from neurosql import run as runs
from neurosql.checkpoint import RunFolder
from neurosql.errors import InputError
from neurosql.fitted import Run


def check_finished(path: str | Path) -> None:
    """Refuse a run that is not finished."""
    if not runs.is_finished(RunFolder.existing(path)):
        raise InputError(f"{path} is not finished: continue it with `neurosql resume {path}`, then export it")


def finished(path: str | Path) -> Run:
    """The run at a path, which must be finished."""
    check_finished(path)
    return runs.open_run(path)


def target(path: str | Path, out: str | Path | None, suffix: str) -> Path:
    """The file to write: what `out` names, or a file in the current folder with the run's name. It must not exist."""
    chosen = Path(out) if out else Path(Path(path).resolve().name + suffix)
    if chosen.suffix.lower() != suffix:
        raise InputError(f"the file's name must end in {suffix}, got {chosen}")
    if chosen.exists() or chosen.is_symlink():
        raise InputError(f"{chosen} exists: give another file with --out, or remove it")
    return chosen
