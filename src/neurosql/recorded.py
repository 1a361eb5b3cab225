"""What a run folder says about its run: its settings, its data, how far it is. Nothing here imports torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from neurosql.checkpoint import CHECKPOINT, MODEL, SPLIT, USED, RunFolder
from neurosql.errors import InputError
from neurosql.origin import Origin
from neurosql.settings import DataSettings, Settings

FINISHED, STOPPED, INTERRUPTED = "finished", "stopped", "interrupted"


@contextmanager
def damage_of(path: str | Path) -> Iterator[None]:
    """Say that a run is damaged where its files do not hold what they should."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, AssertionError) as error:
        words = str(error).strip().splitlines()
        raise InputError(f"{path} is damaged: {words[0][:300] if words else type(error).__name__}") from error


def origin_of(config: dict[str, Any]) -> Origin:
    """What a run was trained on, from its config."""
    try:
        return Origin.from_record(config["data"])
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the run does not say what it was trained on: {error}") from None


def settings_of(config: dict[str, Any]) -> Settings:
    """The settings in a run's config."""
    try:
        return Settings.from_sections(config["method"], config["settings"])
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the run's settings can't be read: {error}") from None


def is_finished(folder: RunFolder) -> bool:
    """Whether the training has finished and its model was written."""
    return state_of(folder) == FINISHED


def state_of(folder: RunFolder) -> str:
    """Whether a run is finished, was stopped and can go on, or was interrupted: killed, or ended by an error."""
    if not folder.has(CHECKPOINT):
        # A run that was trained here has a checkpoint: one with a model was saved from Python, or tidied up.
        return FINISHED if folder.has(MODEL) else INTERRUPTED
    plain = folder.read_plain(CHECKPOINT)
    # What it has used is written last when it is stopped.
    kept = folder.has(MODEL) and folder.has(USED) and folder.read_object(USED).get("steps") == plain.get("step")
    complete = plain.get("complete")
    if complete is None:
        # Runs of version 0.1.0 do not say that they are complete.
        phase, epoch, last = (plain.get(name) for name in ("phase", "epoch", "closing_epochs"))
        complete = kept and phase == "closing" and isinstance(epoch, int) and isinstance(last, int) and epoch >= last
    if complete is True:
        return FINISHED
    return STOPPED if kept and not folder.was_left() else INTERRUPTED


def reading_of(folder: RunFolder) -> tuple[DataSettings, int]:
    """How the samples of a run were read, with its own split if one was made, and the seed."""
    origin = origin_of(folder.config())
    how = DataSettings.from_record(origin.settings)
    how.check()
    if how.image_size and origin.modality.is_picture and set(origin.shape[1:]) != {how.image_size}:
        # Before images are read in a size that nothing was trained on.
        raise InputError(f"image_size is {how.image_size}, but the samples have the shape {origin.shape}")
    if origin.divided:
        how = dataclasses.replace(how, split=str(folder.path / SPLIT))
    return how, origin.seed
