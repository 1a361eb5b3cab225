"""A run that somebody looks at: its model and, as far as they can be found, its images."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neurosql import run as runs
from neurosql.app.training import sets
from neurosql.checkpoint import CHECKPOINT, MODEL, RunFolder
from neurosql.data import ImageSet
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.restoring import open_checkpoint

BYTE = 255


@dataclass(frozen=True)
class Shown:
    """Samples as a page takes them: bytes for what lies in [0, 1], floats in the user's units for vectors."""

    values: np.ndarray
    """(n, *shape), uint8 or float32."""

    @classmethod
    def of(cls, run: Run, x: np.ndarray) -> Shown:
        """Samples (n, *shape) of a model."""
        if run.data.modality.bounded:
            return cls((x.clip(0, 1) * BYTE).round().astype(np.uint8))
        return cls(np.asarray(run.like.restore_new(x), np.float32))


@dataclass(frozen=True)
class Images:
    """The images that a run was trained on, and images that it was not trained on; or why they are not there."""

    train: ImageSet | None = None
    unseen: ImageSet | None = None
    why: str = ""


class Opened:
    """A run folder that is looked at. `source` is where its images are, if they have moved.

    What takes long is done when it is first asked for. Threads may share the object.
    """

    def __init__(self, path: str | Path, source: str | None = None) -> None:
        self.folder = RunFolder.existing(path)
        self.source = source
        self.version = version_of(self.folder)
        self.run = runs.open_run(path) if self.folder.has(MODEL) else open_checkpoint(path)
        self._guard = threading.Lock()
        self._images: Images | None = None

    @property
    def name(self) -> str:
        """What to call the run: the name of its folder."""
        return self.folder.path.resolve().name or str(self.folder.path)

    def renew(self) -> bool:
        """Take over the model of a run that is still being trained, if it has a new one; returns whether it had."""
        now = version_of(self.folder)
        if now == self.version:
            return False
        whole = self.folder.has(MODEL)
        run = runs.open_run(self.folder.path) if whole else open_checkpoint(self.folder.path)
        if not whole:
            run.index, run.labels = self.run.index, self.run.labels
        self.run, self.version = run, now
        return True

    @property
    def has_points(self) -> bool:
        """Whether there are codes of training images to show."""
        return self.run.has_codes and not self.run.shared

    def images(self) -> Images:
        """The images of the run, read when they are first asked for."""
        with self._guard:
            if self._images is None:
                self._images = self._read()
            return self._images

    @property
    def images_if_read(self) -> Images | None:
        """The images, if somebody has asked for them before."""
        return self._images

    def train(self) -> ImageSet:
        """The training images; an InputError if they are not there."""
        found = self.images()
        if found.train is None:
            raise InputError(found.why)
        return found.train

    def _read(self) -> Images:
        if self.run.shared:
            return Images(why="This model was shared without its training images.")
        try:
            train, unseen = sets(self.run, self.folder, self.source)
        except InputError as error:
            where = "Give their place with --data PATH" if self.source is None else "Give another place with --data"
            return Images(why=f"The training images can't be shown: {error}. {where}.")
        if self.run.labels is None and train.labels is not None:
            # A checkpoint does not have them.
            self.run.labels = train.labels
        return Images(train, unseen)


def version_of(folder: RunFolder) -> str:
    """What changes whenever the model of a run does."""
    name = MODEL if folder.has(MODEL) else CHECKPOINT
    try:
        found = os.stat(folder.path / name)
    except OSError:
        return ""
    return f"{name}-{found.st_mtime_ns}-{found.st_size}"
