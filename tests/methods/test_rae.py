"""The regularised autoencoder: its penalties as written, and samples from the density of its codes."""

import pytest
import torch

import neurosql
from neurosql.density import Mixture
from neurosql.methods.base import Batch, Task
from neurosql.methods.rae import RAE
from neurosql.settings import Settings

SMALL = dict(method="rae", generator="mlp", width=32, epochs=4, batch_size=30, validate_every=2, latent_dim=3)


def build(**settings):
    return RAE.build(Task(Settings.from_flat(SMALL | settings).resolve("image"), (1, 8, 8)))


def test_the_objective_is_the_sum_that_is_written_down(digits):
    x = torch.from_numpy(digits[0][:20, None])
    method = build(code_penalty=0.3, weight_penalty=0.002)
    method.attach(x, None, 0)
    losses = []
    figures = method.training_step(Batch(torch.arange(20), x, None), lambda name, loss: losses.append(loss.item()))
    z = method.encoder(x)
    with torch.no_grad():
        codes = 0.3 * torch.stack([row @ row / 2 for row in z]).mean()
        weights = 0.002 * sum(float(p.pow(2).sum()) for p in method.generator.parameters())
        reconstruction = method.cost.paired(x, method.generator(z)).mean()
    assert figures["loss"] == pytest.approx(float(reconstruction), abs=1e-6)
    assert figures["code_penalty"] == pytest.approx(float(codes), rel=1e-5)
    assert losses[0] == pytest.approx(float(reconstruction + codes) + weights, rel=1e-5)


def test_the_gradient_of_the_penalties_is_theirs():
    method = build(code_penalty=0.5, weight_penalty=0.25)
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.allclose(torch.autograd.grad(method.code_penalty(z), z)[0], 0.5 * z / 4)
    weight = method.generator.head.weight
    assert torch.allclose(torch.autograd.grad(method.weight_penalty(), weight)[0], 0.5 * weight)
    assert float(build(weight_penalty=0.0).weight_penalty()) == 0


def test_a_larger_penalty_draws_the_codes_together(digits):
    loose, tight = (
        neurosql.fit(digits[0][:200], **SMALL | {"code_penalty": weight, "epochs": 10, "patience": 0})
        for weight in (1e-4, 0.1)
    )
    assert tight.method.codes.square().mean() < 0.5 * loose.method.codes.square().mean()


def test_samples_are_decoded_draws_of_the_density(digits):
    run = neurosql.fit(digits[0][:200], **SMALL)
    method = run.method
    codes = method.density.sample(6, None, torch.Generator().manual_seed(3)).float()
    found = method.sample(6, None, torch.Generator().manual_seed(3))[0]
    assert torch.equal(found, method.decode(codes))
    again = Mixture.fit(method.codes, None, None, 10, 0)
    assert torch.equal(again.means, method.density.means)


def test_sampling_works_in_the_middle_of_training(digits):
    x = torch.from_numpy(digits[0][:60, None])
    method = build()
    method.attach(x, None, 0)
    method.start()
    assert method.density is None
    early = method.sample(4, None, torch.Generator().manual_seed(0))[0]
    assert early.shape == (4, 1, 8, 8) and method.density is None
    method.finish()
    assert torch.equal(early, method.sample(4, None, torch.Generator().manual_seed(0))[0])


def test_each_class_has_a_mixture_of_its_own(digits):
    run = neurosql.fit(digits[0][:400], digits[1][:400], **SMALL | {"conditional": True, "components": 2})
    assert run.method.density.weights.shape == (10, 2)
    assert torch.allclose(run.method.density.weights.sum(1), torch.ones(10).double())


def test_the_held_out_loss_is_loss_and_code_penalty(digits):
    run = neurosql.fit(digits[0][:200], **SMALL | {"code_penalty": 0.2})
    x = torch.from_numpy(digits[0][300:340, None])
    codes, _, losses = run.method.encode(x)
    expected = losses.mean() + 0.1 * codes.square().sum(1).mean()
    assert run.method.heldout_loss(x, None) == pytest.approx(float(expected), rel=1e-5)
