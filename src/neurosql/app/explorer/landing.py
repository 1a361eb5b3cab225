"""Where an image of the user's lands: it is decoded apart, brought to the model's shape, and encoded."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from neurosql.app.explorer.making import like
from neurosql.app.explorer.opened import Opened, Shown
from neurosql.data.decode import Bad, Prep
from neurosql.data.worker import Worker
from neurosql.errors import InputError

DECODER = "neurosql.data.picture:DECODER"
MOST_BYTES = 2**25
NEAREST = 6
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Landed:
    """A sample of the user's, and what the model makes of it."""

    sample: Shown
    remade: Shown
    code: np.ndarray
    """(d,)."""
    label: int | None
    """The class that a class-conditional model found."""
    loss: float
    nearest: np.ndarray
    """The training images most like it, nearest first; empty if they are not there."""
    known: int
    """The number of the training image that it equals, or -1."""
    notes: list[str] = field(default_factory=list)


def locate(opened: Opened, content: bytes) -> Landed:
    """The code of the image in a file of the user's, given as its bytes."""
    run = opened.run
    if not run.has_codes or not run.data.modality.is_picture:
        raise InputError("only images can be placed on the map")
    x, notes = prepared(run.data.shape, content)
    known = -1
    remembered = None if run.shared else run.trained_on()
    if remembered is not None:
        known = int(remembered.find(x)[0])
    if known >= 0:
        code = run.method.codes[known].cpu().numpy()
        classes = run.method.code_labels()
        label = None if classes is None else int(classes[known])
        loss = float(remembered.losses[known]) if remembered is not None else 0.0
        notes.append("The model was trained on this image: it has the place that training gave it.")
    else:
        codes, found, losses = run.encode(x)
        code, label, loss = codes[0], None if found is None else int(found[0]), float(losses[0])
    remade = run.decode(code[None], None if label is None else np.array([label]))
    there = not run.shared and opened.images().train is not None
    nearest = like(opened, x, NEAREST) if there else np.empty(0, np.int64)
    return Landed(Shown.of(run, x), Shown.of(run, remade), code, label, loss, nearest, known, notes)


def prepared(shape: tuple[int, ...], content: bytes) -> tuple[np.ndarray, list[str]]:
    """The image in a file as a sample (1, *shape), and what was done to it.

    It is decoded by a process with few rights, as all images of strangers are.
    """
    if not 0 < len(content) <= MOST_BYTES:
        raise InputError(f"an image must have from 1 byte to {MOST_BYTES >> 20} MiB, got {len(content):,} bytes")
    channels, height, width = shape
    if channels not in (1, 3):
        raise InputError(f"the model's images have {channels} channels: no picture file has as many")
    square = height == width
    prep = Prep(DECODER, height if square else None, "colour" if channels == 3 else "grey")
    with _one_at_a_time:
        worker = Worker(prep)
        try:
            (answer,) = worker.ask([(content, [None])])
        finally:
            worker.close()
    if isinstance(answer, Bad):
        raise InputError(f"The file {answer}.")
    if answer.array.shape != shape:
        raise InputError(
            f"The image has {answer.size} pixels, but the model's have {width} x {height}: resize it first."
        )
    notes = []
    if answer.size != f"{width} x {height}":
        notes.append(f"It was centre-cropped and resized from {answer.size} to {width} x {height} pixels.")
    if answer.remark:
        notes.append(f"It is {answer.remark}.")
    values = answer.array[None]
    return (values.astype(np.float32) / np.float32(255) if values.dtype == np.uint8 else values), notes
