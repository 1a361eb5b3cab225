"""Membership inference: the AUC is the oracle's, its interval covers, and a model that memorises is found out."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from neurosql import data, fit
from neurosql.metrics import membership, records, whole
from neurosql.metrics.context import Context
from neurosql.metrics.evaluation import Evaluation, Options
from neurosql.metrics.membership import in_words, leaks
from neurosql.metrics.score import Score
from neurosql.metrics.statistics import auc_interval

QUICK = dict(generator="mlp", width=16, epochs=2, batch_size=50, validation_share=0.0, latent_dim=2)
BY_LOSS, BY_SAMPLE = "membership by loss", "membership by nearest sample"


def one_sided(x, y):
    return roc_auc_score(np.repeat([1, 0], [len(x), len(y)]), np.concatenate([x, y]))


@pytest.mark.parametrize("levels", [None, 7, 2])
@pytest.mark.parametrize("n, m", [(5, 9), (60, 40), (200, 3)])
def test_the_area_is_that_of_scikit_learn_with_ties_too(n, m, levels):
    random = np.random.default_rng(n + m)
    x, y = random.normal(0.4, 1, n), random.normal(0, 1, m)
    if levels:
        x, y = (np.digitize(z, np.linspace(-1, 1, levels)) for z in (x, y))
    area, (low, high) = auc_interval(x, y)
    assert area == pytest.approx(one_sided(x, y), abs=1e-12) and 0 <= low <= area <= high <= 1
    assert auc_interval(-x, -y)[0] == pytest.approx(1 - area, abs=1e-12)


def test_the_variance_is_that_of_every_pair_written_out():
    """DeLong's: the variances of the parts of each side, over the number of parts."""
    random = np.random.default_rng(0)
    x, y = random.normal(0.3, 1, 80), random.normal(0, 1, 50)
    wins = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    variance = wins.mean(1).var(ddof=1) / len(x) + wins.mean(0).var(ddof=1) / len(y)
    low, high = auc_interval(x, y)[1]
    assert (high - low) / (2 * 1.959964) == pytest.approx(np.sqrt(variance), rel=0.02)


@pytest.mark.parametrize("shift", [0.0, 0.7, 2.5])
def test_intervals_cover_at_their_rate(shift):
    from scipy.stats import norm

    random = np.random.default_rng(1)
    truth = norm.cdf(shift / np.sqrt(2))
    found = [auc_interval(random.normal(shift, 1, 60), random.normal(0, 1, 60))[1] for _ in range(1000)]
    assert 0.93 <= np.mean([low <= truth <= high for low, high in found]) <= 0.975


def test_intervals_cover_when_images_come_by_subject():
    """Eight nearly equal images per subject: as independent values they would cover far too rarely."""
    random = np.random.default_rng(2)
    ids = np.arange(30).repeat(8)

    def drawn():
        return random.normal(size=30)[ids] + 0.1 * random.normal(size=240)

    pairs = [(drawn(), drawn()) for _ in range(1500)]
    by_subject, plain = (
        np.mean([low <= 0.5 <= high for low, high in (auc_interval(x, y, groups)[1] for x, y in pairs)])
        for groups in ((ids, ids), (None, None))
    )
    assert by_subject > 0.93 and plain < 0.7


def test_sets_that_are_fully_apart_have_an_interval_that_is_not_a_point():
    area, (low, high) = auc_interval(np.arange(20) + 100.0, np.arange(20))
    assert area == high == 1 and 0.8 < low < 1
    assert auc_interval(np.ones(1), np.zeros(5)) == (1.0, (0.0, 1.0))


@pytest.fixture(scope="module")
def sets():
    digits = data.load("mnist-sample", limit=400)
    return digits.take(np.arange(150)), digits.take(np.arange(200, 350))


@pytest.fixture(scope="module")
def model(sets):
    return fit(sets[0], **QUICK)


def attacked(run, sets, **options):
    """The scores of both attacks on a run, by name."""
    context = Context(run, *sets, Options(samples=200, **options), Evaluation())
    whole.measure(context, [records.BY_LOSS, records.BY_SAMPLE])
    return {score.name: score for score in context.result.scores}, context.result.left_out


def test_samples_that_are_training_images_give_every_one_of_them_away(model, sets, monkeypatch):
    monkeypatch.setattr(type(model), "draw", lambda run, n, **_: (sets[0].x[np.arange(n) % len(sets[0])], None))
    found, _ = attacked(model, sets)
    score = found[BY_SAMPLE]
    assert score.value > 0.999 and score.interval[0] > 0.95 and score.floor == 0.5 and score.direction == "lower"
    assert "finds 100.0 % of the training images" in score.note
    assert leaks(list(found.values())) and "only with people" in in_words(list(found.values()))


def test_a_model_that_reproduces_its_training_images_gives_them_away_by_its_loss(model, sets, monkeypatch):
    """A generator that knows the training images by heart: the search finds each of them, and no held-out image."""
    known = torch.from_numpy(sets[0].x)
    places = model.method.draw_usual(len(known), None, torch.Generator().manual_seed(7))[0]

    def by_heart(z, label=None):
        return known[torch.cdist(z.detach(), places).argmin(1)] + 0 * z.sum(1)[:, None, None, None]

    monkeypatch.setattr(model.method.generator, "forward", by_heart)
    score = attacked(model, sets)[0][BY_LOSS]
    assert score.value > 0.95 and leaks([score])


def test_a_model_of_two_epochs_gives_nothing_away_and_the_score_is_the_same_again(model, sets):
    found, left_out = attacked(model, sets)
    for score in found.values():
        assert score.interval[0] <= 0.5 and score.mode == "train-heldout" and (score.n, score.n_real) == (150, 150)
    assert attacked(model, sets) == (found, left_out) and not left_out
    words = in_words(list(found.values()))
    assert leaks(list(found.values())) is False and "50 % is guessing. These two attacks found nothing" in words


def test_the_search_does_not_know_the_codes_of_training_images(model, sets):
    x = torch.from_numpy(sets[0].x[:20])
    before = model.method.encode(x, afresh=True)[2]
    lattice, codes = model.method.lattice, model.method.codes
    model.method.lattice, model.method.codes = lattice + 100, codes[:0]
    try:
        assert torch.equal(model.method.encode(x, afresh=True)[2], before)
    finally:
        model.method.lattice, model.method.codes = lattice, codes


def test_at_most_so_many_images_are_tried_and_the_seed_says_which(model, sets, monkeypatch):
    for name in ("MOST", "SEARCHED"):
        monkeypatch.setattr(membership, name, 40)
    found, other = attacked(model, sets)[0], attacked(model, sets, seed=5)[0]
    assert {(score.n, score.n_real) for score in found.values()} == {(40, 40)}
    assert other[BY_LOSS].value != found[BY_LOSS].value


def test_without_codes_or_without_others_it_is_left_out(sets):
    gan = fit(sets[0], method="gan", **{k: v for k, v in QUICK.items() if k != "latent_dim"})
    found, left_out = attacked(gan, sets)
    assert set(found) == {BY_SAMPLE} and left_out[0].startswith("membership by loss: gan has no codes")
    assert attacked(gan, (sets[0], None)) == ({}, []) and leaks([]) is None and in_words([]) == ""


def test_encoders_are_asked_for_codes_of_both(sets):
    train, heldout = sets
    vae = fit(train, method="vae", **QUICK)
    found = attacked(vae, sets)[0][BY_LOSS]
    inside, outside = (vae.encode(images.x)[2] for images in (train, heldout))
    assert found.value == pytest.approx(one_sided(-inside, -outside), abs=1e-12)


def test_one_leak_is_enough():
    def score(name, low):
        return Score(name, low + 0.1, "train-heldout", "lower", 100, interval=(low, low + 0.2))

    assert leaks([score(BY_LOSS, 0.4), score(BY_SAMPLE, 0.51)]) is True
    assert leaks([score(BY_LOSS, 0.4)]) is False
