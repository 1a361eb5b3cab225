"""Evaluation of whole runs."""

import html
import json
import re

import numpy as np
import pytest
import torch

from neurosql import InputError, data, fit
from neurosql.cli import main
from neurosql.data import from_array
from neurosql.evaluate import Options, evaluate
from neurosql.metrics.column import Column
from neurosql.metrics.memorisation import follows
from neurosql.metrics.pairs import random_pairs
from neurosql.similarity import ssim

QUICK = dict(generator="mlp", width=32, epochs=3, every=1, batch_size=50, validation_share=0.0)


@pytest.fixture(scope="module")
def sets():
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = (bunch.images / 16).astype(np.float32)
    return from_array(x[:300], bunch.target[:300]), from_array(x[300:700], bunch.target[300:700])


@pytest.fixture(scope="module")
def plain(sets):
    """A small model of the training images."""
    return fit(sets[0], **QUICK)


@pytest.fixture(scope="module")
def downstream(sets):
    """Evaluations with the downstream test, by whether the model knows the classes."""
    options = Options(samples=100, downstream=True, synthetic=400, classifier_steps=150)
    runs = {
        conditional: fit(sets[0], conditional=conditional, **QUICK | {"epochs": 12}) for conditional in (True, False)
    }
    return {conditional: evaluate(run, *sets, options) for conditional, run in runs.items()}


def test_every_family_has_its_modes_and_floors(plain, sets):
    train, heldout = sets
    found = evaluate(plain, train, heldout, Options(samples=300, image_pairs=20))
    modes = {score.mode for score in found.scores}
    assert modes == {"sampled", "paired-train", "paired-heldout", "train-heldout", "codes"}
    for score in found.scores:
        assert np.isfinite(score.value)
        if score.mode == "sampled":
            assert score.floor is not None and score.n <= 300
        if score.interval is not None:
            assert score.interval[0] <= score.value <= score.interval[1]
    assert {"random net", "pixels", "classifier"} <= {score.features for score in found.scores}
    assert found.memorisation.verdict == "no sign"
    assert found.find("ssim", "sampled").value < found.find("ssim", "paired-train").value
    assert any("lpips" in sentence for sentence in found.left_out) or found.find("lpips", "sampled").value > 0
    again = evaluate(plain, train, heldout, Options(samples=300, image_pairs=20))
    assert [score.value for score in again.scores] == [score.value for score in found.scores]


def test_downstream_classifier_by_class_and_by_nearest_code(downstream):
    for conditional, how in ((True, "class-conditional"), (False, "nearest training code")):
        accuracy = downstream[conditional].find("downstream accuracy")
        assert how in accuracy.note and accuracy.floor > 0.8
        assert 0.15 < accuracy.value <= 1


def test_every_score_has_the_direction_that_it_declares(downstream):
    found = downstream[True].scores
    assert found and {s.key for s in found if s.direction != s.column.record.direction} == set()
    for score in found:
        score.column.check()
    with pytest.raises(InputError, match="score must be one of"):
        assert Column("beauty").record is None


def test_without_held_out_images_the_rest_is_still_scored(plain, sets):
    found = evaluate(plain, sets[0], None, Options(samples=50))
    assert any("held out" in sentence or "not trained on" in sentence for sentence in found.left_out)
    assert {score.mode for score in found.scores} == {"sampled", "paired-train", "codes"}
    with pytest.raises(InputError, match="at least 10"):
        evaluate(plain, sets[0], None, Options(samples=2))


def test_vectors_are_evaluated_too():
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3)) @ random.normal(size=(3, 3))
    train, heldout = (
        from_array(x[:120]),
        from_array(x[120:], mean=from_array(x[:120]).mean, std=from_array(x[:120]).std),
    )
    run = fit(train, **QUICK)
    found = evaluate(run, train, heldout, Options(samples=80))
    assert {score.mode for score in found.scores} == {"sampled", "paired-train", "train-heldout", "codes"}


def test_the_command_writes_scores_and_pictures(tmp_path, capsys):
    from sklearn.datasets import load_digits

    bunch = load_digits()
    path = tmp_path / "digits.npz"
    np.savez(path, images=(bunch.images * 15.9).astype(np.uint8)[:260], labels=bunch.target[:260])
    out = tmp_path / "run"
    parts = ["--validation-share", "0.2", "--test-share", "0.2"]
    options = ["--epochs", "2", "--width", "32", "--generator", "mlp", *parts]
    assert main(["train", str(path), "--out", str(out), *options]) == 0
    assert main(["evaluate", str(out), "--samples", "60", "--image-pairs", "10"]) == 0
    page = (out / "report.html").read_text("utf-8")
    assert "two-sample accuracy" in page and "real vs. real: best possible" in page and "Not measured" not in page
    assert "unrelated: nothing learned" in page and "two real: perfect model" in page
    assert "floor" not in page.partition("<body")[2]
    assert page.count("data:image/png") == len(list(out.glob("*.png")))
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0 and (out / "report.html").read_text("utf-8") == page
    text = capsys.readouterr().out
    told = re.search(r"memorisation: ([a-z ]+)\. (.*\.)\n", text)
    interval = tuple(json.loads((out / "scores.json").read_text())["suspiciously close sampled"]["interval"])
    what_follows = follows(told[1], interval)
    assert page.count(html.escape(what_follows)) == text.count(what_follows) == 1
    assert re.search(r"membership: The model's loss .* and the distance .*; 50 % is guessing", text)
    assert "Can others tell which images it was trained on?" in page and "guessing: nothing given away" in page
    assert "memorisation: " in text and "proxy-fid" in text and "real vs. real 0." in text and "floor" not in text
    scores = json.loads((out / "scores.json").read_text())
    assert scores["suspiciously close sampled"]["note"] == f"{told[1]}: {told[2].partition('; ')[2][:-1]}"
    assert html.escape(told[2]).replace(" %", "&nbsp;%") in page
    scores = json.loads((out / "scores.json").read_text())
    assert scores["proxy-fid random net sampled"]["floor"] > 0
    assert (out / "closest.png").stat().st_size > 1000 and (out / "memorisation.png").stat().st_size > 1000
    assert main(["info", str(out)]) == 0
    assert "proxy-fid" in capsys.readouterr().out
    assert main(["evaluate", str(out), "--against", str(tmp_path / "nothing.npz")]) == 2


def test_two_random_digits_score_what_the_literature_has_confused_with_a_model():
    """Mean SSIM of random pairs of real digits, Gaussian window, valid: 0.11. A sampled model can't do much better."""
    digits = torch.from_numpy(data.load("mnist-sample", limit=2000).x)
    first, second = random_pairs(len(digits), 2000, seed=0)
    assert float(ssim(digits[first], digits[second]).mean()) == pytest.approx(0.11, abs=0.01)


def test_pairs_are_of_two_different_images():
    first, second = random_pairs(7, 50, seed=3)
    assert (first != second).all() and len(first) == 50
    assert sorted(first[:7].tolist()) == list(range(7))
