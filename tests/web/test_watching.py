"""A run that is still being trained: its last checkpoint is shown, and what comes after it is taken over."""

import json
import shutil

import numpy as np
import pytest

from neurosql.app.explorer import Opened, decode, describe, points, progress
from neurosql.checkpoint import CHECKPOINT, RunFolder
from neurosql.errors import InputError


@pytest.fixture
def unfinished(folder, tmp_path):
    """The run as it was before its model was written."""
    run = tmp_path / "unfinished"
    shutil.copytree(folder / "run", run)
    for name in ("model.safetensors", "codes.safetensors", "used.json"):
        (run / name).unlink()
    return run


def test_a_checkpoint_is_shown_with_its_codes_and_its_images(unfinished, opened):
    looked = Opened(unfinished)
    kept = RunFolder(unfinished).read_tensors(CHECKPOINT)[0]["method.own.codes"]
    found, names = points(looked)
    np.testing.assert_array_equal(found["codes"], kept.float().numpy())
    assert names is None and "losses" not in found and "labels" not in found
    np.testing.assert_array_equal(looked.train().pixels, opened.train().pixels)
    # Labels come with the images.
    np.testing.assert_array_equal(points(looked)[0]["labels"], opened.run.labels)
    assert describe(looked)["count"] == len(kept) and decode(looked, np.zeros((1, 2), np.float32)).values.size == 64


def test_the_finished_model_is_taken_over_and_the_figures_are_those_of_the_history(unfinished, folder, opened):
    looked = Opened(unfinished)
    before = progress(looked)
    assert (before["epoch"], before["running"]) == (2, False) and before == progress(looked)
    lines = [json.loads(line) for line in (unfinished / "history.jsonl").read_text("utf-8").splitlines()]
    assert [figures["loss"] for figures in before["history"]] == [line["loss"] for line in lines]
    for name in ("codes.safetensors", "model.safetensors", "used.json"):
        shutil.copy(folder / "run" / name, unfinished / name)
    after = progress(looked)
    assert after["version"] != before["version"] and after["state"] == "finished"
    np.testing.assert_array_equal(points(looked)[0]["losses"], opened.run.trained_on().losses)


def test_before_the_first_checkpoint_a_sentence_says_so(unfinished):
    (unfinished / CHECKPOINT).unlink()
    with pytest.raises(InputError, match="before its first checkpoint"):
        Opened(unfinished)
