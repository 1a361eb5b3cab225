"""The adversarial method: its losses, its penalty, its augmentation, and runs that resume to the same bits."""

import math
import os
import signal

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import chisquare, norm
from torch import nn

import neurosql
from neurosql import InputError, methods, presets
from neurosql import run as runs
from neurosql.data import from_array
from neurosql.methods import discriminators
from neurosql.methods.augmentation import augment, cut, translate
from neurosql.methods.base import Batch, Task
from neurosql.methods.gan import GAN, discriminator_loss, generator_loss, squared_gradient
from neurosql.settings.methods import GANSettings
from neurosql.training import Stopped, Trainer

SMALL = dict(generator="mlp", width=32, epochs=4, batch_size=20, checkpoint_every=2)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def fit(images, out=None, **settings):
    return neurosql.fit(images, method="gan", out=out, **(SMALL | settings))


def task(shape=(1, 8, 8), classes=None, bounded=True, **settings):
    kind = "image" if bounded else "vector"
    return Task(presets.settings("gan", **(SMALL | settings)).resolve(kind), shape, classes)


@pytest.mark.parametrize("c", [-30.0, -1.0, 0.0, 2.5, 30.0])
def test_losses_at_a_constant_logit(c):
    """D = c everywhere: log(1 + e^-c) + log(1 + e^c) = 2 log(1 + e^c) - c, and log(1 + e^-c)."""
    logits = torch.full((7,), c, dtype=torch.float64)
    assert discriminator_loss(logits, logits).item() == pytest.approx(2 * np.logaddexp(0, c) - c, abs=1e-12)
    assert generator_loss(logits).item() == pytest.approx(np.logaddexp(0, -c), abs=1e-12)
    targets = torch.ones_like(logits)
    bce = nn.functional.binary_cross_entropy_with_logits
    assert discriminator_loss(logits, logits).item() == pytest.approx(
        (bce(logits, targets) + bce(logits, 0 * targets)).item()
    )


def test_the_best_discriminator_of_two_gaussians_measures_their_divergence():
    """At D = log p - log q the loss is 2 log 2 - 2 JSD(p, q); any other D does no better."""
    p, q = norm(0, 1), norm(1.5, 0.7)

    def jsd_part(x):
        a, b = p.pdf(x), q.pdf(x)
        middle = (a + b) / 2
        return 0.5 * sum(f * math.log(f / middle) for f in (a, b) if f > 0)

    jsd = quad(jsd_part, -12, 12, limit=200)[0]
    # Quantiles in place of draws: the means over them are quadratures.
    levels = (np.arange(200_000) + 0.5) / 200_000
    real, fake = p.ppf(levels), q.ppf(levels)

    def best(x):
        return torch.from_numpy(p.logpdf(x) - q.logpdf(x))

    loss = discriminator_loss(best(real), best(fake)).item()
    assert loss == pytest.approx(2 * math.log(2) - 2 * jsd, abs=1e-4)
    for shift, slope in [(0.1, 1.0), (-0.2, 1.0), (0.0, 0.8), (0.0, 1.3)]:
        assert discriminator_loss(shift + slope * best(real), shift + slope * best(fake)).item() > loss


def test_r1_is_the_squared_gradient_of_a_quadratic_discriminator():
    """D(x) = x' A x / 2 + b' x has gradient A x + b; the gradient of the penalty in A agrees with differences."""
    a = torch.randn(6, 6, generator=rng(), dtype=torch.float64)
    a, b = (a + a.T) / 2, torch.randn(6, generator=rng(1), dtype=torch.float64)
    x = torch.randn(9, 6, generator=rng(2), dtype=torch.float64)

    def penalty(a):
        points = x.clone().requires_grad_(True)
        return squared_gradient(0.5 * ((points @ a) * points).sum(1) + points @ b, points)

    assert penalty(a).item() == pytest.approx((x @ a + b).square().sum(1).mean().item())
    direction = torch.randn(6, 6, generator=rng(3), dtype=torch.float64)
    direction = direction + direction.T
    weights = a.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(penalty(weights), weights)
    step = 1e-5
    difference = (penalty(a + step * direction) - penalty(a - step * direction)) / (2 * step)
    assert (gradient * direction).sum().item() == pytest.approx(difference.item(), rel=1e-6)


def test_r1_comes_every_few_steps_and_is_weighted_up(digits):
    """Its mean over a cycle is r1 / 2 E |grad D|^2, whatever the length of the cycle."""
    x = torch.from_numpy(digits[0][:16, None])
    for every in (1, 3):
        method = GAN.build(task(r1=2.0, r1_every=every, augment=0.0))
        method.attach(x, None, 0)
        penalties = []
        for method.steps in range(6):
            penalties.append(method._judge_real(x, None)[1].item())
        points = x.clone().requires_grad_(True)
        expected = squared_gradient(method.discriminator(points), points).item()
        assert np.mean(penalties) == pytest.approx(expected, rel=1e-5)
        assert [i for i, value in enumerate(penalties) if value] == list(range(0, 6, every))


def test_strength_zero_is_the_identity_and_vectors_are_left_alone():
    x = torch.rand(5, 3, 12, 9, generator=rng())
    assert augment(x, rng(), 0.0) is x
    vectors = torch.randn(5, 7, generator=rng())
    assert augment(vectors, rng(), 1.0) is vectors


@pytest.mark.parametrize("shape", [(1, 8, 5), (3, 5, 4), (2, 16), (1, 3, 4, 4)])
def test_augmentation_keeps_shape_and_is_differentiable(shape):
    x = torch.rand(2, *shape, generator=rng(), dtype=torch.float64).requires_grad_(True)
    changed = augment(x, rng(1))
    assert changed.shape == x.shape and changed.dtype == x.dtype
    assert torch.autograd.gradcheck(lambda x: augment(x, rng(1)), (x,))
    (gradient,) = torch.autograd.grad(changed.square().sum(), x)
    assert gradient.isfinite().all() and (gradient.flatten(1).abs().sum(1) > 0).all()


@pytest.mark.parametrize("shift", [(0, 0), (2, -3), (-1, 4), (7, 0)])
def test_translation_moves_an_impulse_exactly(shift):
    x = torch.zeros(1, 1, 9, 11)
    x[0, 0, 4, 5] = 1.0
    moved = translate(x, torch.tensor([shift]))
    expected = torch.zeros_like(x)
    row, column = 4 + shift[0], 5 + shift[1]
    if row < 9 and column < 11:
        expected[0, 0, row, column] = 1.0
    assert torch.equal(moved, expected)


def test_shifts_are_uniform_in_their_range(monkeypatch):
    """At full strength 16 pixels move by -2..2 and 24 by -3..3, each sample in its own way."""
    from neurosql.methods import augmentation

    seen = []

    def record(x, shifts):
        seen.append(shifts)
        return translate(x, shifts)

    monkeypatch.setattr(augmentation, "translate", record)
    augment(torch.rand(5000, 1, 16, 24, generator=rng()), rng(1))
    for axis, most in enumerate((2, 3)):
        values, counts = seen[0][:, axis].unique(return_counts=True)
        assert values.tolist() == list(range(-most, most + 1))
        assert chisquare(counts.numpy()).pvalue > 1e-3


def test_cutout_clears_one_box_of_the_given_sides():
    x = torch.ones(3, 2, 10, 8)
    centres = torch.tensor([[5, 4], [0, 0], [9, 7]])
    cleared = 1 - cut(x, centres, [5, 4])
    expected = torch.zeros_like(x)
    expected[0, :, 3:8, 2:6] = 1
    expected[1, :, 0:3, 0:2] = 1
    expected[2, :, 7:10, 5:8] = 1
    assert torch.equal(cleared, expected)
    assert torch.equal(cut(x, centres, [0, 0]), x)


def test_real_and_generated_samples_are_changed_by_one_law():
    """The law of the change does not depend on the sample: equal draws change both alike, as an affine map does."""
    x, y = torch.rand(2, 6, 3, 16, 16, generator=rng(), dtype=torch.float64).unbind()
    same = augment(x, rng(5)), augment(x, rng(5))
    assert torch.equal(*same)
    assert not torch.equal(augment(x, rng(5)), augment(x, rng(6)))
    blend = augment(0.25 * x + 0.75 * y, rng(5))
    assert torch.allclose(blend, 0.25 * augment(x, rng(5)) + 0.75 * augment(y, rng(5)), atol=1e-12)


def test_what_the_discriminator_sees_is_changed_on_both_sides(digits, monkeypatch):
    from neurosql.methods import gan

    seen = []

    def record(x, random, strength, part):
        seen.append((len(x), strength))
        return augment(x, random, strength)

    monkeypatch.setattr(gan, "augment", record)
    method = GAN.build(task(augment=0.7))
    method.attach(torch.from_numpy(digits[0][:12, None]), None, 0)
    method.training_step(Batch(torch.arange(12), method.x, None), lambda name, loss: None)
    assert seen == [(12, 0.7)] * 3


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 15), (1, 28, 28), (3, 64, 50), (1, 256, 256), (7,), (2, 30)])
@pytest.mark.parametrize("classes", [None, 3])
def test_discriminators_give_logits_and_are_as_large_as_asked(shape, classes):
    network = discriminators.make(shape, parameters=200_000, classes=classes, bounded=len(shape) > 1)
    count = sum(p.numel() for p in network.parameters())
    assert abs(count - 200_000) < 0.1 * 200_000
    label = None if classes is None else torch.tensor([0, 2, 2])
    logits = network(torch.rand(3, *shape, generator=rng()), label)
    assert logits.shape == (3,) and logits.isfinite().all()


def test_a_discriminator_s_weights_are_a_function_of_the_seed():
    before = torch.get_rng_state()
    first, second, other = (discriminators.make((1, 8, 8), parameters=9000, seed=s, classes=2) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]) and value.isfinite().all()
    assert not torch.equal(first.head.weight, other.head.weight)
    x = torch.rand(64, 1, 8, 8, generator=rng())
    assert 0.01 < first(x, torch.zeros(64, dtype=torch.int64)).abs().mean() < 2


def test_the_label_enters_by_projection():
    """D(x, a) - D(x, b) = <e_a - e_b, f(x)>."""
    network = discriminators.make((1, 8, 8), parameters=9000, classes=4)
    x = torch.rand(5, 1, 8, 8, generator=rng())
    a, b = torch.full((5,), 3), torch.full((5,), 1)
    features = network.features(2 * x - 1)
    e = network.embedding.weight
    assert torch.allclose(network(x, a) - network(x, b), features @ (e[3] - e[1]), atol=1e-5)
    with pytest.raises(InputError, match="labels"):
        network(x)
    with pytest.raises(InputError, match="shape"):
        network(x[:, :, :7], a)


def test_the_discriminator_sees_how_varied_a_batch_is():
    x = torch.rand(6, 1, 8, 8, generator=rng())
    assert discriminators.variety(x[:1].expand(6, -1, -1, -1)).item() == pytest.approx(0.0, abs=2e-4)
    assert discriminators.variety(x).item() == pytest.approx(x.std(0, correction=0).mean().item(), rel=1e-4)


def test_the_generator_starts_from_the_common_weights():
    built = task(generator="convnet", width=16)
    expected = built.generator().state_dict()
    found = methods.make(built).networks["generator"].state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_each_step_moves_both_networks_once_and_only_by_their_own_loss(digits):
    x = torch.from_numpy(digits[0][:20, None])
    method = GAN.build(task())
    method.attach(x, None, 0)
    names = []

    def update(name, loss):
        names.append(name)
        for network in method.networks.values():
            network.zero_grad()
        loss.backward()
        other = {"generator": "discriminator", "discriminator": "generator"}[name]
        assert all(p.grad is None for p in method.networks[other].parameters())
        assert any(p.grad is not None for p in method.networks[name].parameters())

    figures = method.training_step(Batch(torch.arange(20), x, None), update)
    assert names == ["discriminator", "generator"]
    assert set(figures) == {"loss", "discriminator_loss", "real_logit", "fake_logit"}
    assert all(p.requires_grad for p in method.discriminator.parameters())


def test_a_line_is_learnt():
    """Points on a curve in the plane: most samples of a trained model are near it, on both of its halves."""
    t = torch.rand(600, generator=rng(), dtype=torch.float64).numpy() * 2 - 1
    x = np.column_stack([t, np.abs(t)]).astype(np.float32)
    run = neurosql.fit(x, method="gan", latent_dim=2, width=64, epochs=80, validation_share=0.0)
    samples = run.like.restore(run.sample(500, seed=0)[0])
    assert np.median(np.abs(samples[:, 1] - np.abs(samples[:, 0]))) < 0.1
    assert 0.2 < np.mean(samples[:, 0] > 0) < 0.8


def interrupt_after(patch, steps):
    update = Trainer._update
    count = iter(range(steps, -1, -1))

    def counted(self, name, loss):
        update(self, name, loss)
        if next(count, -1) == 0:
            os.kill(os.getpid(), signal.SIGINT)

    patch.setattr(Trainer, "_update", counted)


CASES = {
    "recommended": {},
    "paper": {"preset": "paper"},
    "conditional convnet": {"conditional": True, "generator": "convnet", "width": 16},
    "lazy penalty": {"r1_every": 3, "ema": 0.0},
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_equals_one_that_was_not_stopped(case, digits, tmp_path):
    data = from_array(digits[0][:90], digits[1][:90])
    whole = fit(data, tmp_path / "whole", **CASES[case])
    for stop_after in (1, 13):
        path = tmp_path / f"stopped-{stop_after}"
        with pytest.MonkeyPatch.context() as patch:
            interrupt_after(patch, stop_after)
            with pytest.raises(Stopped):
                fit(data, path, **CASES[case])
        again = runs.resume(path, lambda source, limit: data)
        assert (path / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
        without = [[{k: v for k, v in r.items() if k != "seconds"} for r in run.history] for run in (whole, again)]
        assert without[0] == without[1]


@pytest.mark.parametrize("conditional", [False, True])
def test_an_opened_run_gives_the_same_samples(conditional, digits, tmp_path):
    run = fit(from_array(digits[0][:90], digits[1][:90]), tmp_path / "run", conditional=conditional)
    again = neurosql.open_run(tmp_path / "run")
    first, second = run.sample(9, seed=3), again.sample(9, seed=3)
    assert np.array_equal(first[0], second[0])
    assert first[0].shape == (9, 1, 8, 8) and 0 <= first[0].min() <= first[0].max() <= 1
    if conditional:
        assert np.array_equal(first[1], second[1])
        assert (again.sample(4, label="7", seed=0)[1] == 7).all()
    with pytest.raises(InputError, match="no codes"):
        again.encode(digits[0][:2, None])
    with pytest.raises(InputError, match="no codes"):
        again.reconstruct()


@pytest.mark.parametrize("shape", [(60, 5), (60, 2, 20), (60, 1, 6, 6, 6)])
def test_vectors_signals_and_volumes_work(shape):
    layout = {2: None, 3: "ncl", 5: "ncdhw"}[len(shape)]
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    run = fit(from_array(x, layout=layout) if layout else x, epochs=2)
    samples = run.sample(3, seed=0)[0]
    assert samples.shape == (3, *run.data.shape) and np.isfinite(samples).all()
    assert type(run.method.discriminator) is discriminators.MLPDiscriminator


def test_the_history_has_both_losses_and_the_logits(digits):
    run = fit(digits[0][:90])
    assert {"loss", "discriminator_loss", "real_logit", "fake_logit"} <= run.history[-1].keys()
    assert "heldout_loss" not in run.history[-1]
    assert {"discriminator", "generator"} <= run.history[-1]["seconds"].keys()


def test_the_paper_s_preset_is_the_plain_method():
    own = presets.settings("gan", "paper").own
    assert own == GANSettings(r1=0.0, augment=0.0)
    assert presets.settings("gan", "paper").training.ema == 0


@pytest.mark.parametrize("wrong", [{"r1": -1.0}, {"r1_every": 0}, {"augment": 1.5}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        presets.settings("gan", **wrong)
