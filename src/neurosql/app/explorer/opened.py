"""A run that somebody looks at: its model and, as far as they can be found, its images."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neurosql import run as runs
from neurosql.app.training import sets
from neurosql.checkpoint import RunFolder
from neurosql.data import ImageSet
from neurosql.errors import InputError
from neurosql.fitted import Run

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
        self.run = runs.open_run(path)
        self._guard = threading.Lock()
        self._images: Images | None = None

    @property
    def name(self) -> str:
        """What to call the run: the name of its folder."""
        return self.folder.path.resolve().name or str(self.folder.path)

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
        return Images(train, unseen)
