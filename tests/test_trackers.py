"""Trackers pass on every number of every epoch, as callbacks and as observers."""

import json

import numpy as np
import pytest

import neurosql
from neurosql.app.trackers import TensorBoard, Tracker

IMAGES = np.random.default_rng(0).random((30, 8, 8))
QUICK = dict(preset="plain", generator="mlp", width=8, epochs=2, validation_share=0.0)


class Kept(Tracker):
    """Keeps what it hears, in order."""

    def __init__(self):
        self.heard, self.closed = [], False

    def number(self, name, value, step):
        self.heard.append((step, name, value))

    def close(self):
        self.closed = True


def test_every_number_of_the_history_is_passed_on(tmp_path):
    with Kept() as kept:
        run = neurosql.fit(IMAGES, callback=kept, out=tmp_path / "run", **QUICK)
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    numbers = [
        (line["epoch"], name, value)
        for line in lines
        for name, value in line.items()
        if name != "epoch" and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    assert kept.heard == numbers != []
    assert kept.closed and len(run.history) == 2


def test_a_tracker_never_stops_a_training():
    assert Kept()({"epoch": 1, "loss": 0.5, "note": "words", "done": True}) is None


def test_words_and_switches_are_no_numbers():
    kept = Kept()
    kept.epoch({"epoch": 3, "loss": np.float32(0.5), "note": "words", "done": True})
    assert kept.heard == [(3, "loss", 0.5)]


def test_tensorboard_has_the_losses(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    with TensorBoard(tmp_path) as tracker:
        for epoch in (1, 2):
            tracker.epoch({"epoch": epoch, "loss": 1 / epoch})
    found = events.EventAccumulator(str(tmp_path)).Reload().Scalars("loss")
    assert [(event.step, event.value) for event in found] == [(1, 1.0), (2, 0.5)]
