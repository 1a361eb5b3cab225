"""Quantile assignment with components, with codes that move, and with fresh samples in the loss."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from small_methods import build

from neurosql import InputError, fit, open_run, prior
from neurosql.data import from_array
from neurosql.encode import decode

QUICK = dict(preset="plain", generator="mlp", width=32, epochs=6, batch_size=30, every=1, validation_share=0.0)


@pytest.fixture
def images(digits):
    return from_array(digits[0][:120], digits[1][:120])


def is_permutation(method):
    return sorted(method.permutation.tolist()) == list(range(len(method.permutation)))


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("settings", [{"exchange": 1}, {"exchange": 2}, {"exchange": 0}, {"algorithm": "mini-batch"}])
def test_with_components_each_code_is_used_once(images, conditional, settings):
    method = fit(images, components=3, conditional=conditional, **QUICK | settings).method
    assert is_permutation(method)
    if conditional:
        assert torch.equal(method.lattice_labels[method.permutation], method.labels)
    if settings.get("algorithm") != "mini-batch":
        torch.testing.assert_close(method.codes, method.lattice[method.permutation])


def component_of(method):
    """The component of each image, by the lattice row that it holds."""
    own = torch.empty(len(method.lattice), dtype=torch.int64)
    for number, part in enumerate(method.parts):
        own[part.columns] = number
    return own[method.permutation]


def test_images_stay_in_their_component_until_they_may_change_it(images):
    never = fit(images, components=4, **QUICK | {"exchange": 0}).method
    begun = torch.empty(120, dtype=torch.int64)
    for number, part in enumerate(never.parts):
        begun[part.rows] = number
    assert torch.equal(component_of(never), begun)
    often = fit(images, components=4, **QUICK | {"exchange": 1}).method
    assert not torch.equal(component_of(often), begun)
    # The sizes of the components are kept.
    assert torch.equal(component_of(often).bincount(), begun.bincount())


@pytest.mark.parametrize("exchange", [1, 0])
def test_with_components_the_objective_never_rises_in_an_assignment(digits, exchange):
    method = build(digits[0][:100, None], components=4, exchange=exchange, momentum=1.0)
    for _ in range(3):

        def objective():
            return float(method.cost.paired(method.x, decode(method.generator, method.codes)).mean())

        before = objective()
        method.reassign()
        assert objective() <= before + 1e-12
        with torch.no_grad():
            for parameter in method.generator.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=method.random, dtype=parameter.dtype))


def test_an_exchange_is_at_least_as_cheap_as_staying(digits):
    costs = {}
    for exchange in (0, 1):
        method = build(digits[0][:100, None], components=4, exchange=exchange, momentum=1.0)
        method.reassign()
        costs[exchange] = float(method.cost.paired(method.x, decode(method.generator, method.codes)).mean())
    assert costs[1] <= costs[0] + 1e-12


def test_one_component_gives_the_bits_of_the_plain_prior(images):
    plain, one = (fit(images, **QUICK | settings) for settings in ({}, {"components": 1, "exchange": 3}))
    assert torch.equal(plain.method.codes, one.method.codes)
    assert np.array_equal(plain.sample(9, seed=1)[0], one.sample(9, seed=1)[0])


@pytest.mark.parametrize("conditional", [False, True])
def test_a_mixture_is_saved_sampled_and_encoded(images, conditional, tmp_path):
    run = fit(images, components=3, conditional=conditional, out=tmp_path / "run", **QUICK)
    again = open_run(tmp_path / "run")
    label = "3" if conditional else None
    assert np.array_equal(run.sample(9, label, seed=1)[0], again.sample(9, label, seed=1)[0])
    codes, _, losses = again.encode(images.x[:5])
    assert np.isfinite(codes).all() and np.isfinite(losses).all()
    # Draws follow the lattice: their spread is the same.
    drawn, _ = again.method.draw_usual(2000, None, torch.Generator().manual_seed(0))
    assert float(drawn.var(0).mean() / again.method.lattice.var(0).mean()) == pytest.approx(1, abs=0.15)
    assert "components" in again.method.facts()["lattice"]


def test_a_map_is_blank_where_no_samples_come_from(images, tmp_path):
    from neurosql.report.maps import latent_map

    plain, mixed = (fit(images, components=count, **QUICK) for count in (1, 3))
    blank = [(latent_map(run) == 1).all((1, 2, 3)) for run in (plain, mixed)]
    assert not blank[0].any() and 0.05 < blank[1].mean() < 0.9
    drawn, _ = mixed.method.draw_usual(1000, None, torch.Generator().manual_seed(0))
    assert mixed.method.reaches(drawn).double().mean() > 0.9
    assert not mixed.method.reaches(torch.full((1, 2), 50.0)).any()


def test_components_are_for_the_normal_prior(digits):
    with pytest.raises(InputError, match="components are for the normal prior, got 3 and ball"):
        build(digits[0][:50, None], components=3, law=prior.Ball(2))


def test_moving_codes_go_down_their_own_gradient_and_end_on_the_lattice(digits, images):
    method = build(digits[0][:40, None], code_rate=0.01, dtype=torch.float32)
    from neurosql.methods.base import Batch

    index = torch.arange(40)
    before, start = method.codes.clone(), method.cost.paired(method.x, method.generator(method.codes)).detach()
    method.training_step(Batch(index, method.x, None), lambda name, loss: loss.backward())
    moved = method.codes - before
    # Adam's first step has the length of the rate in each coordinate.
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, 0.01), rtol=0.05, atol=1e-4)
    with torch.no_grad():
        after = method.cost.paired(method.x, method.generator(method.codes))
    assert after.mean() < start.mean()
    method = fit(images, code_rate=0.1, **QUICK | {"momentum": 0.1}).method
    assert is_permutation(method)
    torch.testing.assert_close(method.codes, method.lattice[method.permutation])


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("strategy", ["dense", "candidates", "blocks"])
def test_moved_codes_are_matched_to_the_nearest_lattice_points_together(digits, components, strategy):
    method = build(
        digits[0][:60, None],
        **{"code_rate": 0.1, "match": "codes", "components": components, "exchange": 1},
        **{"strategy": strategy, "block_size": 16},
    )
    method.codes = method.codes + 0.3 * torch.randn(method.codes.shape, generator=method.random, dtype=torch.float64)
    moved = method.codes.clone()
    method.reassign()
    costs = torch.cdist(moved, method.lattice).square()
    rows, columns = linear_sum_assignment(costs.numpy())
    found = costs[torch.arange(60), method.permutation].sum()
    assert is_permutation(method)
    assert float(found) == pytest.approx(float(costs[rows, columns].sum()), rel=1e-9 if strategy == "dense" else 0.05)
    torch.testing.assert_close(method.codes, method.rho * method.lattice[method.permutation] + (1 - method.rho) * moved)


def test_codes_that_do_not_move_can_not_be_matched_by_themselves(images):
    with pytest.raises(InputError, match="match codes needs codes that move"):
        fit(images, match="codes", **QUICK)


def test_fresh_samples_come_closer_to_the_data(digits):
    from neurosql.sliced import SlicedDistance

    found = {}
    for weight in (0.0, 1.0):
        run = fit(from_array(digits[0][:200]), fresh=weight, fresh_batch=64, fresh_every=1, **QUICK | {"epochs": 20})
        made = torch.from_numpy(run.sample(200, seed=0)[0])
        judge = SlicedDistance(torch.from_numpy(digits[0][:200, None]), 200, seed=123)
        found[weight] = float(judge(made, torch.Generator().manual_seed(0)))
        assert ("fresh" in run.history[-1]) == bool(weight)
    assert found[1.0] < 0.8 * found[0.0]


def test_fresh_samples_are_drawn_every_few_steps(images):
    run = fit(images, fresh=1.0, fresh_batch=8, fresh_every=5, **QUICK)
    assert run.method.steps == 24
    assert sum("fresh" in record for record in run.history) == 4


@pytest.mark.parametrize("bad", [{"components": -1}, {"fresh": -1.0}, {"fresh_batch": 1}, {"code_rate": -0.1}])
def test_settings_outside_their_range_are_refused(images, bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        fit(images, **QUICK | bad)


@pytest.mark.parametrize("shape", [(5,), (1, 40), (1, 4, 4, 4)])
def test_other_data_than_images_take_all_of_it(shape):
    x = np.random.default_rng(0).random((60, *shape)).astype(np.float32)
    from neurosql.data import ImageSet

    data = from_array(x) if len(shape) == 1 else ImageSet(x, layout="ncl" if len(shape) == 2 else "ncdhw")
    run = fit(data, components=2, fresh=0.5, fresh_batch=16, code_rate=0.1, mapping=1, **QUICK)
    assert np.isfinite(run.sample(4, seed=0)[0]).all()
