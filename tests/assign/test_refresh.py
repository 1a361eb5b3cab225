"""Partial refresh: fewer pairs, and an honest account of what they miss."""

import numpy as np
import pytest
import torch

from neurosql import assign
from neurosql.cost import Cost
from neurosql.refresh import PartialRefresh


def drifting_images(digits, passes, drift, n=120):
    """Images, and generated images that move a little from pass to pass."""
    random = np.random.default_rng(0)
    x = torch.from_numpy(digits[0][:n, None])
    y = torch.from_numpy(np.clip(digits[0][random.permutation(n), None] + 0.1 * random.normal(size=x.shape), 0, 1))
    for _ in range(passes):
        yield x, y.float()
        y = (y + drift * torch.from_numpy(random.normal(size=y.shape))).clamp(0, 1)


def run(digits, drift, **settings):
    keeper = PartialRefresh("exact", **{"best": 8, "every": 4, "bound": 1e-3} | settings)
    warm = assign.Warm(None, None)
    passes = []
    for x, y in drifting_images(digits, 14, drift):
        result = keeper.solve(Cost(), x, y, warm, 2**28)
        optimum = assign.solve(Cost().matrix(x, y)).cost
        true = float(Cost().pairs(x, y, torch.arange(len(x)), result.solution.permutation).double().mean())
        passes.append((result, true / optimum - 1))
        warm = result.solution
        assert sorted(result.solution.permutation.tolist()) == list(range(len(x)))
    return passes


def test_slow_drift_needs_few_pairs_and_loses_next_to_nothing(digits):
    passes = run(digits, drift=0.002)
    partial = [p for p, _ in passes if not p.full]
    assert len(partial) >= 6
    assert max(p.pairs for p in partial) < 0.25
    assert max(gap for _, gap in passes) < 1e-3


def test_every_so_many_passes_one_is_full_and_measures_what_was_missed(digits):
    passes = run(digits, drift=0.002)
    kinds = [p.full for p, _ in passes]
    first = kinds.index(False)
    assert kinds[first:] == [i % 4 == 3 for i in range(len(kinds) - first)]
    for result, gap in passes:
        if result.full:
            assert gap == pytest.approx(0, abs=1e-6)
    measured = [p.missed for p, _ in passes[first - 1 :] if p.full]
    assert len(measured) >= 3 and all(m is not None and m >= 0 for m in measured)


def test_fast_drift_is_noticed_and_every_pass_stays_full(digits):
    passes = run(digits, drift=0.5, best=1, bound=1e-6)
    assert all(p.full for p, _ in passes)


def test_a_measured_gap_above_the_bound_makes_the_next_pass_full(digits):
    keeper = PartialRefresh("exact", best=8, every=4, bound=1e-3)
    images = list(drifting_images(digits, 6, 0.002))
    warm = assign.Warm(None, None)
    for x, y in images[:4]:
        warm = keeper.solve(Cost(), x, y, warm, 2**28).solution
    assert keeper.since_full == 2
    keeper.measured = 0.5
    assert keeper.solve(Cost(), *images[4], warm, 2**28).full


def test_missing_pairs_are_named(digits):
    """At a full pass, the optimal pairs that a partial pass would not have looked at."""
    keeper = PartialRefresh("exact", best=1, every=4, bound=1e-3, calm=1.0)
    images = list(drifting_images(digits, 2, 0.3))
    first = keeper.solve(Cost(), *images[0], assign.Warm(None, None), 2**28)
    second = keeper.solve(Cost(), *images[1], first.solution, 2**28)
    assert second.full and second.missed > 0 and len(second.missing)
    for i, k in second.missing.tolist():
        assert second.solution.permutation[i] == k and first.solution.permutation[i] != k


def test_the_guess_follows_the_costs_of_the_pairs_that_matter(digits):
    """Images that move along a few directions, as a generator's do; a constant in all costs does not matter."""
    x, y = (torch.from_numpy(digits[0][part, None]) for part in (slice(120), slice(120, 240)))
    moved = [y + step * 0.2 * (y.roll(1, 0) - y) for step in range(4)]
    keeper = PartialRefresh("exact", best=16, every=9, bound=1.0)
    warm = assign.Warm(None, None)
    for images in moved[:3]:
        warm = keeper.solve(Cost(), x, images, warm, 2**28).solution
    new = Cost().matrix(x, moved[3])
    near = keeper._chosen(new, warm)
    stale = (keeper.costs - new)[near].std()
    keeper.costs += keeper.slope * keeper._moved(x, moved[3])
    assert (keeper.costs - new)[near].std() < 0.8 * stale


def test_pairs_grow_when_much_is_missed_and_shrink_when_nothing_is(digits):
    images = list(drifting_images(digits, 3, 0.5))
    keeper = PartialRefresh("exact", best=2, every=9, bound=1e-9)
    warm = assign.Warm(None, None)
    for x, y in images:
        warm = keeper.solve(Cost(), x, y, warm, 2**28).solution
    assert keeper.best == 8
    keeper = PartialRefresh("exact", best=64, every=9, bound=1e-2)
    warm = assign.Warm(None, None)
    for x, y in drifting_images(digits, 2, 0.001):
        warm = keeper.solve(Cost(), x, y, warm, 2**28).solution
    assert keeper.measured < 1e-3 and keeper.best == 32
