"""Generative latent optimisation: the projection, the codes' own steps, and the Gaussian that is sampled."""

import numpy as np
import pytest
import torch
from torch import nn

import neurosql
from neurosql import InputError
from neurosql.cost import Cost
from neurosql.generators.base import Generator
from neurosql.methods import glo, moving
from neurosql.methods.base import Batch, Task
from neurosql.settings import Settings
from neurosql.settings.methods import GLOSettings

SMALL = dict(method="glo", generator="mlp", width=32, epochs=4, batch_size=30, validate_every=2, latent_dim=3)


class Linear(Generator):
    """x = A z."""

    name = "linear"

    def __init__(self, weight):
        super().__init__((len(weight),), weight.shape[1], classes=None, bounded=False)
        self.head = nn.Linear(weight.shape[1], len(weight), bias=False)
        self.head.weight.data = weight.clone()

    def decode(self, code):
        return self.head(code)


def linear(n=12, p=5, d=2, **settings):
    rng = torch.Generator().manual_seed(0)
    method = glo.GLO(Linear(torch.randn(p, d, generator=rng)), Cost.named("l2"), GLOSettings(**settings), 0)
    method.attach(torch.randn(n, p, generator=rng), None, 0)
    method.start()
    return method


def step(method, index, update=lambda name, loss: loss.backward()):
    return method.training_step(Batch(index, method.x[index], None), update)


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_the_projection_is_the_nearest_point_of_the_ball(dim):
    rng = torch.Generator().manual_seed(dim)
    z = 3 * torch.randn(100, dim, generator=rng).double()
    found = glo.project(z, 1.5)
    assert (found.norm(dim=1) <= 1.5 + 1e-12).all()
    assert torch.allclose(glo.project(found, 1.5), found, atol=1e-12)
    inside = z.norm(dim=1) <= 1.5
    assert torch.equal(found[inside], z[inside])
    # No point of the ball is nearer: a nearest point p of a convex set has (z - p)(q - p) <= 0 for all q in it.
    others = torch.randn(200, dim, generator=rng).double()
    others *= 1.5 * torch.rand(200, 1, generator=rng) ** (1 / dim) / others.norm(dim=1, keepdim=True)
    assert (((z - found)[:, None] * (others - found[:, None])).sum(-1) <= 1e-9).all()
    assert torch.equal(glo.project(torch.zeros(1, dim), 1.5), torch.zeros(1, dim))


def test_one_step_is_the_hand_computed_one():
    """l = |x - A z|^2 / p has the gradient -2 A'(x - A z) / p; Adam's first step has length one in each coordinate."""
    method = linear(code_rate=0.02, radius=10.0)
    method.pace = 0.5
    index, before = torch.tensor([3, 7, 1]), method.codes.clone()
    weight = method.generator.head.weight.detach().clone()
    step(method, index)
    gradient = -2 / 5 * (method.x[index] - before[index] @ weight.T) @ weight
    expected = before[index] - 0.5 * 0.02 * gradient / (gradient.abs() + moving.EPSILON)
    assert torch.allclose(method.codes[index], expected, atol=1e-6)
    assert torch.allclose(method.moving.first[index], (1 - moving.BETA1) * gradient, atol=1e-6)


def test_many_steps_are_those_of_torchs_adam():
    method = linear(code_rate=0.03, radius=100.0)
    index, weight = torch.arange(12), method.generator.head.weight.detach()
    z = method.codes.clone().requires_grad_()
    optimizer = torch.optim.Adam([z], lr=0.03, betas=(moving.BETA1, moving.BETA2), eps=moving.EPSILON)
    for _ in range(20):
        step(method, index)
        optimizer.zero_grad()
        (method.x - z @ weight.T).square().mean(1).sum().backward()
        optimizer.step()
    assert torch.allclose(method.codes, z.detach(), atol=1e-4)


def test_codes_outside_the_batch_do_not_move():
    method = linear()
    index = torch.tensor([0, 5])
    before, rest = method.codes.clone(), torch.tensor([i for i in range(12) if i not in (0, 5)])
    for _ in range(3):
        step(method, index)
    assert torch.equal(method.codes[rest], before[rest])
    assert (method.codes[index] != before[index]).all()
    assert method.moving.steps.tolist() == [3 if i in (0, 5) else 0 for i in range(12)]
    assert not method.moving.first[rest].any() and not method.moving.second[rest].any()


def test_a_code_does_not_depend_on_how_large_its_batch_is():
    small, large = linear(), linear()
    step(small, torch.tensor([2, 4]))
    step(large, torch.arange(12))
    assert torch.allclose(small.codes[[2, 4]], large.codes[[2, 4]], atol=1e-6)


def test_codes_stay_in_the_ball_and_the_loss_falls():
    method = linear(code_rate=0.5, radius=0.5)
    losses = [step(method, torch.arange(12))["loss"] for _ in range(50)]
    assert (method.codes.norm(dim=1) <= 0.5 * 2**0.5 + 1e-6).all()
    assert 0 < method.end_epoch(0, 1)["on_sphere"] <= 1
    assert losses[-1] < losses[0]


def test_codes_start_at_whitened_pca_scores(digits):
    x = torch.from_numpy(digits[0][:200, None])
    method = glo.GLO.build(Task(Settings.from_flat(SMALL | {"radius": 5.0}).resolve("image"), (1, 8, 8)))
    method.attach(x, None, 0)
    method.start()
    flat = x.flatten(1).double() - x.flatten(1).double().mean(0)
    scores = flat @ torch.linalg.svd(flat, full_matrices=False)[2][:3].T
    expected = 5.0 * scores / scores.std(0)
    inside = method.codes.norm(dim=1) < 5.0 * 3**0.5 * (1 - 1e-4)
    assert 20 < inside.sum() < 200
    assert torch.allclose(method.codes[inside].abs().double(), expected[inside].abs(), atol=1e-3)


def test_draws_have_the_codes_mean_and_covariance(digits):
    run = neurosql.fit(digits[0][:200], **SMALL)
    method = run.method
    z = method.density.sample(100_000, None, torch.Generator().manual_seed(0))
    codes = method.codes.double()
    assert torch.allclose(z.mean(0), codes.mean(0), atol=0.02)
    assert torch.allclose(z.T.cov(), codes.T.cov(correction=0), atol=0.03)
    found = method.sample(3, None, torch.Generator().manual_seed(1))[0]
    drawn = method.density.sample(3, None, torch.Generator().manual_seed(1)).float()
    assert torch.equal(found, method.decode(drawn))


def test_the_codes_follow_the_schedule(digits):
    paces = []

    class Recorder(glo.GLO):
        def training_step(self, batch, update):
            paces.append(self.pace)
            return super().training_step(batch, update)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glo, "GLO", Recorder)
        neurosql.fit(digits[0][:90], **SMALL | {"validation_share": 0.0, "patience": 0})
    total = 4 * 3
    assert paces == pytest.approx(0.5 * (1 + np.cos(np.pi * np.arange(total) / total)))


def test_refinement_only_improves_on_the_nearest_code(digits):
    run = neurosql.fit(digits[0][:300], **SMALL | {"epochs": 10})
    x = torch.from_numpy(digits[0][400:440, None])
    start, end = (run.method.encode(x, steps=steps)[2].mean() for steps in (0, 40))
    assert end < start
    of_training = run.method.encode(run.method.x)[2].mean()
    own = run.method.cost.paired(run.method.x, run.method.reconstruct()).mean()
    assert of_training < own * 1.05


def test_each_class_has_a_gaussian_and_a_start_of_its_own(digits):
    x, y = digits[0][:300], digits[1][:300]
    run = neurosql.fit(x, y, **SMALL | {"conditional": True})
    assert run.method.density.weights.shape == (10, 1)
    _, labels, losses = run.method.encode(run.method.x[:30], run.method.labels[:30])
    assert torch.equal(labels, run.method.labels[:30]) and torch.isfinite(losses).all()
    guessed = run.method.encode(run.method.x[:30])[1]
    assert (guessed == run.method.labels[:30]).double().mean() > 0.25
    with pytest.raises(InputError, match="not trained on"):
        run.method.encode(run.method.x[:2], torch.tensor([0, 11]))
