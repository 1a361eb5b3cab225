"""Statistics: estimates, paired tests and Holm's correction are scipy's, and what a table makes of them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from toy_results import SSIM, TIME, TOY, TRAINED, toy_rows

from neurosql.bench import compare
from neurosql.metrics.column import resource
from neurosql.report import tables


def test_estimates_are_those_of_scipy():
    values = np.random.default_rng(0).normal(size=5)
    found = compare.estimate(values)
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), expected)
    assert np.isnan(compare.estimate([1.0]).low)


def test_the_paired_test_is_that_of_scipy():
    chance = np.random.default_rng(1)
    for _ in range(20):
        a, b = chance.normal(size=(2, 6))
        assert compare.paired_p(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert compare.paired_p([1.0, 2.0], [1.0, 2.0]) == 1.0 and compare.paired_p([1.0], [5.0]) == 1.0
    assert compare.paired_p([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]) == 0.0


def test_holm_rejects_step_by_step():
    chance = np.random.default_rng(2)
    for _ in range(50):
        p = chance.random(8) ** 3
        rejected = set()
        for rank, place in enumerate(np.argsort(p)):
            if p[place] > 0.05 / (8 - rank):
                break
            rejected.add(place)
        assert {i for i, q in enumerate(compare.holm(p)) if q <= 0.05} == rejected
    assert compare.holm([]) == []


def test_a_cell_is_bold_only_when_it_is_better_than_every_other():
    table = compare.build(TOY, toy_rows(a=0.5, b=0.4, c=0.3))
    assert table.bold == {(("mnist", 8), "a", SSIM)}
    assert table.wins() == {"a": (2, 0, 2), "b": (1, 1, 2), "c": (0, 2, 2)}
    # Level with one other, it isn't, however far the third is behind.
    level = compare.build(TOY, toy_rows(a=0.5, b=0.5, c=0.3))
    assert level.bold == set() and level.wins()["c"] == (0, 2, 2)
    assert compare.build(TOY, [row for row in toy_rows(a=0.5, b=0.1) if row["seed"] == 0]).bold == set()


def test_methods_without_a_latent_dimension_meet_those_of_every_dimension():
    results = toy_rows(a=0.5, b=0.4) + [row | {"latent_dim": 2} for row in toy_rows(a=0.5, b=0.4)]
    results += [row | {"latent_dim": ""} for row in toy_rows(c=0.3)]
    table = compare.build(TOY, results)
    assert table.wins()["c"][2] == 4 and table.wins()["a"][2] == 4
    assert {group for group, _, _ in table.bold} == {("mnist", 2), ("mnist", 8)}


def test_ratios_are_to_the_same_seed_of_the_same_group():
    taken = {
        ("a", 2): (10.0, 30.0),
        ("b", 2): (2.0, 3.0),
        ("a", 8): (5.0, 6.0),
        ("b", 8): (1.0, 1.0),
        ("c", ""): (4, 6),
    }
    results = [
        {"data": "mnist", "latent_dim": dim, "backbone": "convnet", "arm": arm, "seed": seed, "status": "done"}
        | {"epoch seconds": seconds}
        for (arm, dim), both in taken.items()
        for seed, seconds in enumerate(both)
    ]
    column = resource("epoch seconds", over="b")
    table = compare.build(replace(TOY, columns=(TIME, column)), results)
    means = {(group[1], arm): table.cells[group, arm, column].mean for group, arm in table.lines}
    assert means == {(2, "a"): 7.5, (2, "b"): 1.0, (8, "a"): 5.5, (8, "b"): 1.0, ("", "c"): 2.0}
    assert {d.column for d in table.differences} == {TIME}
    assert tables.heading(column) == ("epoch seconds ↓", "over b's")
    alone = compare.build(replace(TOY, columns=(column,)), [row for row in results if row["arm"] != "b"])
    assert alone.columns == ()


def test_what_is_chosen_beforehand_is_shown_and_not_tested():
    results = [row | {"parameters trained": len(row["arm"])} for row in toy_rows(a=0.5, bb=0.4)]
    table = compare.build(replace(TOY, columns=(SSIM, TRAINED)), results)
    assert table.cells[("mnist", 8), "bb", TRAINED].mean == 2
    assert {d.column for d in table.differences} == {SSIM}


def test_averages_are_of_contenders_that_ran_in_every_dimension():
    results = [row | {"latent_dim": dim} for dim in (2, 8) for row in toy_rows(a=0.5 + 0.01 * dim)]
    results += toy_rows(b=0.4) + [row | {"latent_dim": ""} for row in toy_rows(c=0.3)]
    table = compare.build(TOY, results, averaged=True)
    assert table.lines == [(("mnist",), "a"), (("mnist",), "c")]
    assert len(compare.build(TOY, results).lines) == 4
