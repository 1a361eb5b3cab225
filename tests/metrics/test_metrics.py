"""Scores: their values against references, what they must detect, and intervals that cover."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from neurosql import InputError
from neurosql.cost import Cost
from neurosql.metrics import codes, column, features
from neurosql.metrics.classifier import evaluate_classifier, train_classifier
from neurosql.metrics.column import paired_train, resource, sampled
from neurosql.metrics.frechet import frechet_distance
from neurosql.metrics.kernels import cubic_kernel, gaussian_kernel, median_bandwidths, mmd
from neurosql.metrics.memorisation import divided, memorisation, nearest_images
from neurosql.metrics.neighbours import prdc
from neurosql.metrics.score import Score, table
from neurosql.metrics.statistics import mean_interval, proportion_interval
from neurosql.metrics.two_sample import two_sample_accuracy

# --- references ---


@pytest.mark.parametrize("n, m, p", [(60, 80, 5), (20, 30, 40), (100, 7, 10)])
def test_frechet_distance_equals_the_formula_with_a_matrix_root(n, m, p):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(n, p)) @ random.normal(size=(p, p)), random.normal(1, 2, (m, p))
    sx, sy = np.cov(x.T), np.cov(y.T)
    root = np.real(sqrtm(sx @ sy + 1e-12 * np.eye(p)))
    expected = ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(sx + sy - 2 * root)
    assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-4)


def test_kid_and_frechet_are_those_of_torchmetrics():
    from torchmetrics.image.fid import _compute_fid
    from torchmetrics.image.kid import poly_mmd

    random = np.random.default_rng(3)
    x, y = random.normal(size=(90, 12)), random.normal(0.2, 1.3, (90, 12))
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    assert mmd(x, y, cubic_kernel)[0] == pytest.approx(float(poly_mmd(a, b)), rel=1e-9)
    expected = _compute_fid(a.mean(0), a.T.cov(), b.mean(0), b.T.cov())
    assert frechet_distance(x, y) == pytest.approx(float(expected), rel=1e-6)


def test_frechet_distance_of_gaussians_is_the_closed_form():
    random = np.random.default_rng(1)
    x, y = random.normal(size=(200_000, 2)), random.normal(size=(200_000, 2)) * [1.0, 3.0] + [2.0, 0.0]
    assert frechet_distance(x, y) == pytest.approx(4 + (3 - 1) ** 2, rel=0.02)


def test_mmd_is_the_mean_over_distinct_pairs():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(13, 4)), random.normal(0.5, 1, (9, 4))
    k = lambda a, b: (a @ b / 4 + 1) ** 3  # noqa: E731
    within = [np.mean([k(a, b) for i, a in enumerate(z) for j, b in enumerate(z) if i != j]) for z in (x, y)]
    across = np.mean([k(a, b) for a in x for b in y])
    value, (low, high) = mmd(x, y, cubic_kernel, chunk=5)
    assert value == pytest.approx(sum(within) - 2 * across, rel=1e-10)
    assert low < value < high


def test_the_jackknife_leaves_out_one_at_a_time():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(8, 3)), random.normal(size=(6, 3))
    value, (low, high) = mmd(x, y, cubic_kernel)
    without_x = [mmd(np.delete(x, i, 0), y, cubic_kernel)[0] for i in range(8)]
    without_y = [mmd(x, np.delete(y, i, 0), cubic_kernel)[0] for i in range(6)]
    variance = sum((len(w) - 1) / len(w) * np.sum((w - np.mean(w)) ** 2) for w in (without_x, without_y))
    assert (high - low) / 2 == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-5)
    assert (high + low) / 2 == pytest.approx(value)


def test_precision_recall_density_coverage_against_neighbour_searches():
    random = np.random.default_rng(0)
    real, made, k = random.normal(size=(70, 3)), random.normal(0.4, 0.7, (50, 3)), 4

    def radius(z):
        return NearestNeighbors(n_neighbors=k + 1).fit(z).kneighbors(z)[0][:, -1]

    apart = np.linalg.norm(real[:, None] - made[None], axis=2)
    inside = apart <= radius(real)[:, None]
    expected = {
        "precision": inside.any(0).mean(),
        "recall": (apart <= radius(made)).any(1).mean(),
        "density": inside.sum(0).mean() / k,
        "coverage": inside.any(1).mean(),
    }
    assert prdc(real, made, k, chunk=16) == pytest.approx(expected)


# --- intervals ---

SIMULATIONS = 1000


def covers(intervals, truth):
    return np.mean([low <= truth <= high for low, high in intervals])


def test_intervals_of_means_and_proportions_cover():
    random = np.random.default_rng(0)
    means = [mean_interval(random.gamma(4, size=50)) for _ in range(SIMULATIONS)]
    assert 0.92 <= covers(means, 4.0) <= 0.98
    for share in (0.02, 0.3, 0.9):
        counts = random.binomial(400, share, SIMULATIONS)
        assert 0.92 <= covers([proportion_interval(int(c), 400) for c in counts], share) <= 0.98


def test_intervals_of_kid_cover():
    random = np.random.default_rng(0)
    shift = np.array([0.8, 0.0, 0.0, 0.0])
    big = [random.normal(size=(4000, 4)) + s for s in (0, shift)]
    truth = np.mean([mmd(big[0][i::4], big[1][i::4], cubic_kernel)[0] for i in range(4)])
    drawn = [
        mmd(random.normal(size=(60, 4)), random.normal(size=(60, 4)) + shift, cubic_kernel) for _ in range(SIMULATIONS)
    ]
    assert np.mean([value for value, _ in drawn]) == pytest.approx(truth, rel=0.1)
    assert 0.92 <= covers([interval for _, interval in drawn], truth) <= 0.98


# --- what each score must detect ---


@pytest.fixture(scope="module")
def pictures():
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.images))
    x = (bunch.images / 16).astype(np.float32)[order, None]
    return x, bunch.target[order]


def scores_of(made, real):
    net = features.random_net((1, 8, 8), 0)
    a, b = net(made), net(real)
    found = {"frechet": frechet_distance(a, b), "kid": mmd(a, b, cubic_kernel)[0]}
    found["mmd"] = mmd(a, b, gaussian_kernel(median_bandwidths(b)))[0]
    found |= prdc(b, a)
    found["two-sample accuracy"] = two_sample_accuracy(b, a)[0]
    return found


DEFECTS = {
    "noise": lambda x, labels: np.clip(x + np.random.default_rng(1).normal(0, 0.25, x.shape), 0, 1).astype(np.float32),
    "blur": lambda x, labels: gaussian_filter(x, (0, 0, 1.2, 1.2)),
    "missing classes": lambda x, labels: np.concatenate([x[labels < 4]] * 3)[: len(x)],
    "duplicates": lambda x, labels: np.repeat(x[:12], len(x) // 12 + 1, axis=0)[: len(x)],
}
DETECTS = {
    "frechet": (1, DEFECTS),
    "kid": (1, DEFECTS),
    "mmd": (1, DEFECTS),
    "precision": (-1, ["noise", "blur"]),
    "recall": (-1, ["missing classes", "duplicates"]),
    "density": (-1, ["noise", "blur"]),
    "coverage": (-1, ["noise", "blur", "missing classes", "duplicates"]),
    "two-sample accuracy": (1, ["noise", "blur", "missing classes"]),
}


def test_every_score_detects_its_defects(pictures):
    x, labels = pictures
    half = len(x) // 2
    real, other, other_labels = x[:half], x[half : 2 * half], labels[half : 2 * half]
    floor = scores_of(other, real)
    for defect, plant in DEFECTS.items():
        found = scores_of(plant(other, other_labels), real)
        for name, (sign, detected) in DETECTS.items():
            if defect in detected:
                margin = 0.02 if abs(floor[name]) > 0.1 else 1.5 * abs(floor[name])
                assert sign * (found[name] - floor[name]) > margin, (name, defect, found[name], floor[name])


def test_values_on_identical_sets(pictures):
    x = pictures[0][:300]
    found = scores_of(x, x)
    assert found["frechet"] == pytest.approx(0, abs=1e-8)
    assert found["kid"] <= 0 and found["mmd"] <= 0
    assert found["precision"] == found["recall"] == found["coverage"] == 1
    assert found["two-sample accuracy"] < 0.55


def test_features_do_not_depend_on_the_batch(pictures):
    x = pictures[0][:300]
    for extract in (features.random_net((1, 8, 8), 3), features.pixels((1, 8, 8))):
        assert np.array_equal(extract(x)[:7], extract(x[:7]))
        assert np.array_equal(extract(x), extract(x))
    assert not np.array_equal(features.random_net((1, 8, 8), 3)(x), features.random_net((1, 8, 8), 4)(x))
    assert features.random_net((5,), 0)(np.zeros((3, 5), np.float32)).shape == (3, 128)
    assert features.random_net((3, 40, 24), 0)(np.zeros((2, 3, 40, 24), np.float32)).shape == (2, 128)


# --- memorisation ---


def test_planted_copies_are_found(pictures):
    x, _ = pictures
    train, heldout, fresh = x[:600], x[600:1000], x[1000:1400]
    cost = Cost.named("ssim+l1")
    honest = memorisation(cost, fresh, train, heldout)
    assert honest.verdict == "no sign" and honest.share < 0.04
    copied = fresh.copy()
    copied[:60] = train[:60]
    found = memorisation(cost, copied, train, heldout)
    assert found.verdict == "clear"
    assert set(range(60)) <= set(found.suspicious.tolist())
    assert np.array_equal(found.nearest[:60], np.arange(60))
    assert "clear" in found.sentence()


@pytest.mark.parametrize("how", ["noise", "blur", "shift"])
def test_near_copies_are_a_sign(how, pictures):
    x, _ = pictures
    train, heldout, fresh = x[:600], x[600:1000], x[1000:1400].copy()
    if how == "noise":
        fresh[:40] = np.clip(train[:40] + np.random.default_rng(0).normal(0, 0.03, train[:40].shape), 0, 1)
    elif how == "blur":
        fresh[:40] = gaussian_filter(train[:40], (0, 0, 0.4, 0.4))
    else:
        fresh[:40] = 0.9 * train[:40] + 0.1 * np.roll(train[:40], 1, 3)
    found = memorisation(Cost.named("ssim+l1"), fresh, train, heldout)
    assert found.verdict in ("some", "clear")
    assert np.isin(np.arange(40), found.suspicious).mean() > 0.8


@pytest.mark.parametrize("contrast", [0.7, 0.8, 0.9])
def test_soft_samples_are_no_copies(contrast, pictures):
    """An image that is pulled towards the mean is near every other one; a copy is nearer to one than to all others."""
    x, _ = pictures
    train, heldout = x[:600], x[600:1000]
    soft = contrast * x[1000:1400] + (1 - contrast) * x.mean(0)
    cost = Cost.named("l2")
    apart = nearest_images(cost, heldout, train)[1]
    assert np.median(nearest_images(cost, soft, train)[1]) < np.median(apart)
    assert memorisation(cost, soft, train, heldout).verdict == "no sign"


@pytest.mark.parametrize(("n", "k", "m"), [(600, 400, 400), (800, 100, 500), (300, 600, 500), (1000, 40, 300)])
def test_honest_samples_are_suspected_by_chance_only(n, k, m, pictures):
    """Real images in place of samples: about 1 % of them are suspicious, and there is hardly ever a verdict."""
    x = pictures[0].reshape(len(pictures[0]), -1)
    shares, verdicts = [], []
    for seed in range(30):
        order = np.random.default_rng(seed).permutation(len(x))
        train, heldout, fresh = x[order[:n]], x[order[n : n + k]], x[order[n + k : n + k + m]]
        found = memorisation(Cost.named("l1"), fresh, train, heldout)
        shares.append(found.share)
        verdicts.append(found.verdict)
        assert found.heldout == round(n / math.ceil(n / k)) and len(found.ratios) == m
    assert 0.002 < np.median(shares) < 0.015
    assert verdicts.count("no sign") >= 29


def test_a_model_that_knows_nothing_but_copies_is_clear(pictures):
    x, _ = pictures
    rng = np.random.default_rng(1)
    copies = np.clip(x[:400] + rng.normal(0, 0.03, x[:400].shape).astype(np.float32), 0, 1)
    found = memorisation(Cost.named("ssim+l1"), copies, x[:600], x[600:1000])
    assert found.verdict == "clear" and found.share > 0.9 and found.threshold <= 1


@pytest.mark.parametrize(("n", "size"), [(100, 30), (100, 100), (7, 100), (1000, 33)])
def test_training_images_are_compared_in_parts_of_the_held_out_set_size(n, size):
    parts = divided(n, size)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert len(parts) == math.ceil(n / size) and max(map(len, parts)) - min(map(len, parts)) <= 1
    subjects = np.random.default_rng(0).integers(0, max(2, n // 5), n)
    parts = divided(n, size, subjects)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    owners = [set(subjects[part].tolist()) for part in parts]
    assert sum(map(len, owners)) == len(set(subjects.tolist()))


def test_memorisation_needs_held_out_images(pictures):
    with pytest.raises(InputError, match="held-out"):
        memorisation(Cost.named("l1"), pictures[0][:50], pictures[0][:50], pictures[0][:5])


# --- codes and the classifier ---


def test_scores_of_codes_on_known_planes():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 60)
    apart = random.normal(size=(180, 2)) * 0.1 + np.array([[0, 0], [5, 0], [0, 5]])[labels]
    mixed = random.normal(size=(180, 2))
    assert codes.knn_purity(apart, labels).mean() == 1
    assert codes.knn_purity(mixed, labels).mean() == pytest.approx(1 / 3, abs=0.08)
    assert codes.silhouette(apart, labels) > 0.9 and abs(codes.silhouette(mixed, labels)) < 0.1
    assert codes.neighbourhood_trust(apart @ random.normal(size=(2, 20)), apart) > 0.95
    assert codes.share_in_use(np.repeat(mixed[:90], 2, axis=0)) == 0.5
    assert codes.drift(0.5 * mixed, mixed) == pytest.approx(0.25)


def test_purity_does_not_count_a_code_as_its_own_neighbour():
    same = np.zeros((12, 2))
    labels = np.arange(12)
    assert codes.knn_purity(same, labels, k=3).max() == 0
    assert codes.knn_purity(same, np.zeros(12, dtype=int), k=3).min() == 1


def test_the_classifier_learns_and_has_a_seed(pictures):
    x, labels = pictures
    nets = [train_classifier(x[:1200], labels[:1200], 10, seed=5, steps=250) for _ in range(2)]
    found = [evaluate_classifier(net, x[1200:], labels[1200:]) for net in nets]
    assert found[0] == found[1] and found[0].accuracy > 0.9
    assert found[0].accuracy == found[0].right / found[0].n
    shuffled = np.random.default_rng(0).permutation(labels[:1200])
    chance = evaluate_classifier(train_classifier(x[:1200], shuffled, 10, steps=100), x[1200:], labels[1200:])
    assert chance.accuracy < 0.3
    before = torch.get_rng_state()
    train_classifier(x[:50], labels[:50], 10, steps=2)
    assert torch.equal(before, torch.get_rng_state())


# --- scores as objects ---


def test_a_column_does_not_mix_modes():
    one = Score("ssim", 0.1, "sampled", "higher", 50)
    assert one.column == Score("ssim", 0.3, "sampled", "higher", 20).column == sampled("ssim")
    others = [
        Score("ssim", 0.1, "paired-train", "higher", 50),
        Score("lpips", 0.1, "sampled", "lower", 50),
        Score("kid", 0.1, "sampled", "lower", 50, features="pixels"),
        Score("kid", 0.1, "sampled", "lower", 50, features="classifier"),
    ]
    assert len({score.column for score in [one, *others]}) == len({score.key for score in [one, *others]}) == 5
    assert column.find([score.column for score in others], "kid pixels sampled") == sampled("kid", "pixels")
    with pytest.raises(InputError, match="no column 'ssim sampled'"):
        column.find([score.column for score in others], one.key)


@pytest.mark.parametrize("wrong", [sampled("kid"), sampled("kid", "taste"), paired_train("kid"), resource("ssim")])
def test_a_column_has_only_what_its_record_has(wrong):
    with pytest.raises(InputError, match=r"(features|mode) of '(kid|ssim)' must be one of"):
        wrong.check()


def test_a_score_survives_its_record():
    score = Score("kid", 0.01, "sampled", "lower", 100, 100, features="pixels", interval=(0.0, 0.02), floor=-0.001)
    assert Score.from_record(score.record()) == score
    text = table([score, Score("ssim", 0.6, "paired-train", "higher", 50)])
    assert (
        "kid (pixels) ↓" in text and "0.0000 to 0.0200" in text and text.index("sampled:") < text.index("paired-train:")
    )
