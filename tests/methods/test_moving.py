"""Codes that move together, fresh samples that are drawn evenly, and a law that follows the codes."""

import os
import signal

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from small_methods import build

from neurosql import InputError, fit, open_run, presets
from neurosql.data import from_array
from neurosql.density import Mixture
from neurosql.methods.base import Batch, Task
from neurosql.methods.fresh import even_draws
from neurosql.methods.moving import CodeSteps, Motion, SharedSteps
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.run import resume
from neurosql.training import Stopped, Trainer

QUICK = dict(preset="plain", generator="mlp", width=32, epochs=6, batch_size=30, every=1, validation_share=0.0)
TOGETHER = dict(components=3, shared_rate=0.002, law="learnt", anneal=False, momentum=0.2)


@pytest.fixture
def images(digits):
    return from_array(digits[0][:120], digits[1][:120])


def shared_steps(n=50, dim=3):
    return SharedSteps(torch.randn(n, 7, generator=torch.Generator().manual_seed(0)), dim, seed=1)


def test_features_are_standardised_over_the_images():
    features = shared_steps(3000).features(slice(None))
    torch.testing.assert_close(features.mean(0), torch.zeros(features.shape[1]), atol=1e-4, rtol=0)
    alive = features.std(0, correction=0) > 0.5
    torch.testing.assert_close(features.std(0, correction=0)[alive], torch.ones(int(alive.sum())), atol=1e-3, rtol=0)
    assert alive.double().mean() > 0.95


def test_equal_images_move_alike_and_collecting_moves_nothing():
    steps = SharedSteps(torch.tensor([[0.0, 1.0], [2.0, 0.5], [0.0, 1.0]]), 3, seed=0)
    steps.step(torch.tensor([0]), torch.ones(1, 3), rate=0.01)
    offsets = steps.offsets(torch.arange(3))
    assert torch.equal(offsets[0], offsets[2]) and not torch.allclose(offsets[0], offsets[1])
    torch.testing.assert_close(steps.collected(), offsets)
    assert not steps.offsets(torch.arange(3)).any()


def test_a_shared_step_is_adams_step_of_the_matrix():
    steps, oracle = shared_steps(), torch.zeros(2048, 3, requires_grad=True)
    adam = torch.optim.Adam([oracle], lr=0.01)
    index, random = torch.arange(0, 50, 3), torch.Generator().manual_seed(2)
    for _ in range(4):
        gradient = torch.randn(len(index), 3, generator=random)
        steps.step(index, gradient, rate=0.01)
        adam.zero_grad()
        ((steps.features(index) @ oracle) * gradient).sum().div(len(index)).backward()
        adam.step()
    torch.testing.assert_close(steps.matrix, oracle.detach(), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_codes_are_where_they_were_put_before_and_after_collecting(own, together):
    codes, index = torch.zeros(50, 3), torch.arange(0, 50, 3)
    motion = Motion(CodeSteps(codes) if own else None, shared_steps() if together else None)
    motion.step(codes, index, motion.places(codes, index), torch.ones(len(index), 3), 0.1, 0.01)
    moved = motion.places(codes, torch.arange(50)).any(1)
    assert int(moved.sum()) == (50 if together else len(index) if own else 0)
    places = torch.randn(len(index), 3, generator=torch.Generator().manual_seed(3))
    motion.put(codes, index, places)
    torch.testing.assert_close(motion.places(codes, index), places)
    codes = motion.collected(codes)
    torch.testing.assert_close(codes[index], places)
    assert torch.equal(motion.places(codes, index), codes[index])


def test_all_codes_move_with_a_batch_and_the_loss_falls(digits):
    method = build(digits[0][:40, None], shared_rate=0.0005, dtype=torch.float32)
    index = torch.arange(20)
    with torch.no_grad():
        before = method.cost.paired(method.x[index], method.generator(method.codes[index])).mean()
    started = method.codes.clone()
    method.training_step(Batch(index, method.x[index], None), lambda name, loss: loss.backward())
    assert torch.equal(method.codes, started)
    method._collect()
    assert (method.codes != started).any(1).all()
    with torch.no_grad():
        after = method.cost.paired(method.x[index], method.generator(method.codes[index])).mean()
    assert after < before


@pytest.mark.parametrize("more", [{}, {"conditional": True}, {"match": "codes"}, {"code_rate": 0.1, "fresh": 1.0}])
def test_a_law_that_follows_the_codes_keeps_a_permutation(images, more):
    method = fit(images, **QUICK | TOGETHER | more).method
    assert sorted(method.permutation.tolist()) == list(range(120))
    if more.get("conditional"):
        assert torch.equal(method.lattice_labels[method.permutation], method.labels)
    parts = torch.cat([part.columns for part in method.parts])
    assert torch.equal(parts.sort().values, torch.arange(120))
    # The codes follow the law that is sampled.
    drawn, _ = method.draw_usual(4000, None, torch.Generator().manual_seed(0))
    assert float(method.codes.var(0).sum() / drawn.var(0).sum()) == pytest.approx(1, abs=0.25)


def test_with_annealing_codes_end_on_the_learnt_lattice(images):
    method = fit(images, **QUICK | TOGETHER | {"anneal": True}).method
    torch.testing.assert_close(method.codes, method.lattice[method.permutation])


RESUMED = {
    "together": {},
    "each on its own too": {"code_rate": 0.1, "fresh": 1.0, "fresh_batch": 16, "fresh_every": 2},
    "a density at the end": {"final_components": 6, "conditional": True},
    "from the scores": {"start": "scores", "latent_dim": 5, "match": "codes"},
    "early stop": {"validation_share": 0.2, "patience": 2, "validate_every": 1, "learning_rate": 0.1},
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(case, images, tmp_path, monkeypatch):
    settings = QUICK | TOGETHER | RESUMED[case]
    whole = fit(images, out=tmp_path / "whole", **settings)
    update, count = Trainer._update, iter(range(1, 1000))

    def stopped_in_mid_epoch(self, *arguments):
        update(self, *arguments)
        if next(count) == 10:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", stopped_in_mid_epoch)
        with pytest.raises(Stopped):
            fit(images, out=tmp_path / "stopped", **settings)
    again = resume(tmp_path / "stopped", lambda *_: images)
    for name in ("codes", "lattice", "permutation"):
        assert torch.equal(getattr(whole.method, name), getattr(again.method, name))
    opened = open_run(tmp_path / "stopped")
    assert np.array_equal(whole.sample(9, seed=1)[0], opened.sample(9, seed=1)[0])


@pytest.mark.parametrize("conditional", [False, True])
def test_codes_may_begin_at_the_scores_of_their_images(digits, conditional):
    images, labels = torch.from_numpy(digits[0][:120, None]).double(), torch.from_numpy(digits[1][:120])
    own = TOGETHER | {"start": "scores", "latent_dim": 5, "conditional": conditional}
    chosen = presets.settings(**QUICK | own).resolve("image")
    method = QuantileAssignment.build(Task(chosen, tuple(images.shape[1:]), 10 if conditional else None))
    method.attach(images, labels, seed=0)
    method.start()
    for block in method.blocks:
        scores = PCA(5, whiten=True).fit_transform(images[block.rows].flatten(1).numpy())
        torch.testing.assert_close(method.codes[block.rows], torch.from_numpy(scores), atol=1e-3, rtol=0)
    # The lattice is that of a law of these codes, matched to them.
    assert sorted(method.permutation.tolist()) == list(range(120))
    assert float(method.lattice.var(0).mean() / method.codes.var(0).mean()) == pytest.approx(1, abs=0.15)
    spread = (method.lattice[method.permutation] - method.codes).norm(dim=1).mean()
    assert spread < 0.75 * (method.lattice - method.codes).norm(dim=1).mean()


def test_codes_of_a_fixed_law_can_not_begin_at_scores(images):
    with pytest.raises(InputError, match="start scores needs law learnt"):
        fit(images, **QUICK | {"start": "scores"})


@pytest.mark.parametrize("conditional", [False, True])
def test_the_law_at_the_end_is_a_mixture_of_the_codes(images, conditional, tmp_path):
    own = {"final_components": 5, "conditional": conditional, "momentum": 0.05}
    run = fit(images, out=tmp_path / "run", **QUICK | TOGETHER | own)
    method = run.method
    oracle = Mixture.fit(method.codes, method.labels, method.classes, 5, method.seed)
    # Fitted before the codes were given other units, which changes nothing but rounding.
    torch.testing.assert_close(method.law.means, oracle.means, atol=0.05, rtol=0)
    assert sorted(method.permutation.tolist()) == list(range(120))
    assert len(torch.cat([part.columns for part in method.parts]).unique()) == 120
    assert np.array_equal(run.sample(5, seed=0)[0], open_run(tmp_path / "run").sample(5, seed=0)[0])


def test_in_mini_batches_codes_move_together_too(images):
    method = fit(images, **QUICK | {"algorithm": "mini-batch", "shared_rate": 0.002}).method
    assert sorted(method.permutation.tolist()) == list(range(120)) and torch.isfinite(method.codes).all()


@pytest.mark.parametrize("more", [{}, {"mapping": 1}, {"conditional": True}, {"generator": "convnet", "width": 8}])
def test_codes_end_with_the_variance_of_the_prior_and_the_same_images(images, more, monkeypatch):
    before = {}
    standardise = QuantileAssignment._standardise

    def watched(method):
        before["images"], before["spread"] = method.reconstruct(), float(method.codes.var(0).mean())
        standardise(method)

    monkeypatch.setattr(QuantileAssignment, "_standardise", watched)
    method = fit(images, **QUICK | TOGETHER | {"shared_rate": 0.01} | more).method
    assert abs(before["spread"] - 1) > 0.2
    assert float(method.codes.var(0).mean()) == pytest.approx(1, abs=1e-3)
    torch.testing.assert_close(method.codes.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(method.reconstruct(), before["images"], atol=1e-4, rtol=0)
    drawn, _ = method.draw_usual(4000, None, torch.Generator().manual_seed(0))
    assert float(drawn.var(0).mean()) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("settings", [{"law": "learnt"}, {"law": "learnt", "components": 3}])
def test_a_law_can_only_be_learnt_from_components_and_codes_that_move(images, settings):
    with pytest.raises(InputError, match="law learnt needs components and codes that move"):
        fit(images, **QUICK | settings)
    with pytest.raises(InputError, match="law learnt needs algorithm full"):
        fit(images, **QUICK | TOGETHER | {"algorithm": "mini-batch"})


@pytest.mark.parametrize("classes", [1, 3])
def test_even_draws_have_every_component_as_often_as_expected(classes):
    weights = torch.tensor([[0.2, 0.5, 0.3, 0.0]]).double().repeat(classes, 1)
    means = 100.0 * torch.arange(4 * classes).double().reshape(classes, 4, 1)
    law = Mixture(weights, means, torch.ones(classes, 4, 1, 1).double())
    counts = torch.tensor([10, 20, 70]) if classes > 1 else None
    share = torch.ones(1) if counts is None else counts / counts.sum()
    for seed in range(5):
        codes, labels = even_draws(law, counts, 64, torch.Generator().manual_seed(seed))
        found = torch.bincount((codes[:, 0] / 100).round().long(), minlength=4 * classes)
        expected = 64 * (share[:, None] * weights).flatten()
        assert ((found - expected).abs() < 1).all()
        if counts is not None:
            assert torch.equal(labels, (codes[:, 0] / 100).round().long() // 4)


def test_even_draws_follow_the_law():
    random = torch.Generator().manual_seed(0)
    factors = torch.randn(1, 3, 2, 2, generator=random).double().tril() + torch.eye(2).double()
    law = Mixture(torch.tensor([[0.6, 0.1, 0.3]]).double(), torch.randn(1, 3, 2, generator=random).double(), factors)
    even, usual = even_draws(law, None, 40_000, random)[0], law.sample(40_000, None, random)
    torch.testing.assert_close(even.mean(0), usual.mean(0), atol=0.03, rtol=0)
    torch.testing.assert_close(even.T.cov(), usual.T.cov(), atol=0.06, rtol=0.03)
