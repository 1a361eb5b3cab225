"""The linear discriminant of the two-sample test is that of scikit-learn."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler

from neurosql.metrics.discriminant import shrunk_covariance, tells


def groups(n, m, p, seed=0):
    """Two groups of n and m correlated rows of p columns in units of their own, and to which of them each belongs."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n + m, p)) @ random.normal(size=(p, p)) * np.geomspace(1e-3, 1e3, p)
    second = np.arange(n + m) >= n
    x[second] += 1.5 * x.std(0)
    return x, second


@pytest.mark.parametrize("size", [(30, 2), (20, 128), (300, 40), (2, 3)], ids=str)
def test_the_covariance_is_that_of_ledoit_and_wolf_in_standard_units(size):
    x, _ = groups(size[0], 0, size[1])
    scaler = StandardScaler().fit(x)
    expected = np.outer(scaler.scale_, scaler.scale_) * ledoit_wolf(scaler.transform(x))[0]
    unit = np.outer(scaler.scale_, scaler.scale_)
    np.testing.assert_allclose(shrunk_covariance(x) / unit, expected / unit, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("change", ["none", "constant column", "equal rows", "one column"])
@pytest.mark.parametrize("sizes", [(40, 40, 20), (19, 20, 128), (200, 50, 30), (4, 4, 6)], ids=str)
def test_it_decides_as_that_of_scikit_learn(sizes, change):
    decided = []
    for seed in range(5):
        x, second = groups(*sizes, seed)
        new, _ = groups(*sizes, seed + 100)
        if change == "constant column":
            x[:, 0] = new[:, 0] = 1 / 3
        elif change == "equal rows":
            x[1] = x[2] = x[0]
        elif change == "one column":
            x, new = x[:, :1], new[:, :1]
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(x, second)
        margin = np.abs(theirs.decision_function(new))
        clear = margin > 1e-6 * margin.max()
        np.testing.assert_array_equal(tells(x, second, new)[clear], theirs.predict(new)[clear])
        assert clear.mean() > 0.8
        decided.append(theirs.predict(new))
    assert 0 < np.concatenate(decided).mean() < 1


def test_rows_that_are_all_equal_tell_nothing():
    assert not tells(np.ones((6, 3)), np.arange(6) > 2, np.ones((4, 3))).any()
