"""Evaluation gives the scores of version 0.1.0 to the last bit, on the same kind of processor.

`python tests/metrics/test_same_scores.py` prints what `fixtures/scores.json` holds for the machine that it runs on.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).parent.parent))
from small_vgg import small_weights
from test_same_bits import machine

from neurosql import fit
from neurosql.data import ImageSet, from_array
from neurosql.evaluate import Options, evaluate
from neurosql.metrics import weights
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.records import BIASED
from neurosql.metrics.score import Score

RECORDED = Path(__file__).parent.parent / "fixtures" / "scores.json"
SINCE = ("membership", "suspiciously close, moved")
"""What version 0.1.0 did not measure begins with these."""
QUICK = {"generator": "mlp", "width": 32, "epochs": 3, "batch_size": 50, "validation_share": 0.0, "latent_dim": 2}
DOWNSTREAM = {"downstream": True, "synthetic": 80, "classifier_steps": 5}
CASES = {
    "images by class": ({"conditional": True, "every": 1}, {"vgg": True, **DOWNSTREAM}),
    "images by nearest code": ({"method": "vae"}, DOWNSTREAM),
    "images without codes": ({"method": "gan"}, DOWNSTREAM),
    "images without others": ({"every": 1}, {}),
    "images without weights": ({"every": 1}, {"vgg": True}),
    "vectors": ({"every": 1}, {}),
    "signals": ({"every": 1}, {}),
}


def sets(case):
    bunch = load_digits()
    x, labels = (bunch.images[:220] / 16).astype(np.float32), bunch.target[:220]
    if case == "vectors":
        train = from_array(x[:120, 2, :5].astype(np.float64))
        return train, from_array(x[120:, 2, :5].astype(np.float64), mean=train.mean, std=train.std)
    if case == "signals":
        parts = (np.ascontiguousarray(part.reshape(-1, 1, 64)) for part in (x[:120], x[120:]))
        return tuple(ImageSet(part, layout="ncl") for part in parts)
    # 24 x 24: large enough for the five stages of VGG.
    x = x.repeat(3, 1).repeat(3, 2)
    return from_array(x[:120], labels[:120]), None if "others" in case else from_array(x[120:], labels[120:])


def scores(case):
    """Every score of a small model with all its fields, and what was left out."""
    settings, options = CASES[case]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train, heldout = sets(case)
        run = fit(train, **QUICK | settings)
        found = evaluate(run, train, heldout, Options(samples=60, image_pairs=12, seed=3, **options))
        return {"scores": {s.key: s.record() for s in found.scores}, "left out": found.left_out}
    finally:
        torch.set_num_threads(threads)


def loader(case):
    return (lambda name: None) if case == "images without weights" else small_weights


@pytest.mark.parametrize("case", CASES)
def test_a_model_has_the_scores_that_it_had(case, monkeypatch):
    here = json.loads(RECORDED.read_text("utf-8")).get(machine())
    if here is None:
        pytest.skip(f"no scores were recorded on this machine: {machine()}")
    monkeypatch.setattr(weights, "load", loader(case))
    found = json.loads(json.dumps(scores(case)))
    had = {key: record for key, record in found["scores"].items() if not key.startswith(SINCE)}
    assert list(had) == list(here[case]["scores"])
    assert [sentence for sentence in found["left out"] if not sentence.startswith(SINCE)] == here[case]["left out"]
    for key, record in had.items():
        record.pop("floor_interval", None)
        assert in_short(record) == in_short(told_today(here[case]["scores"][key]))


def told_today(record):
    """A recorded score in today's words; its figures stay."""
    told = json.loads(json.dumps(as_judged_today(Score.from_record(record)).record()))
    return told | ({"note": BIASED} if record.get("note", "").startswith("biased at finite n") else {})


def in_short(record):
    """A share of copies without interval and verdict: how alike the samples are was not recorded."""
    if record["name"] != "suspiciously close":
        return record
    return {name: value for name, value in record.items() if name not in ("interval", "note")}


if __name__ == "__main__":
    known = json.loads(RECORDED.read_text("utf-8")) if RECORDED.is_file() else {}
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NEUROSQL_CACHE"] = folder
        for name in CASES:
            weights.load = loader(name)
            made[name] = scores(name)
    print(json.dumps(known | {machine(): made}, indent=1))
