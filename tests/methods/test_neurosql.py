"""The method: what the alternation between generator and assignment must satisfy."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from small_methods import build
from torch import nn

from neurosql import InputError, NeuroSQL, prior
from neurosql.cost import Cost
from neurosql.data import from_array
from neurosql.methods.base import Batch
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.settings import QuantileSettings, TrainingSettings
from neurosql.training import Trainer


def trainer(method, labels=None, **settings):
    return Trainer(method, method.x, labels, TrainingSettings(**settings))


class KernelRidge(nn.Module):
    """The exact decoder: the minimiser of (1/n) sum |x_i - f(z_i)|^2 / p + ridge |f|^2 in a Gaussian kernel's space."""

    classes = None

    def __init__(self, shape, ridge=1e-2):
        super().__init__()
        self.shape, self.ridge, self.weights, self.centres = shape, ridge, None, None
        self.device_mark = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def kernel(self, a, b):
        return torch.exp(-torch.cdist(a, b).square() / 0.5)

    def fit(self, z, x):
        n, p = x.shape
        self.centres = z.clone()
        self.weights = torch.linalg.solve(self.kernel(z, z) + n * p * self.ridge * torch.eye(n, dtype=z.dtype), x)

    def penalty(self):
        return self.ridge * (self.weights * (self.kernel(self.centres, self.centres) @ self.weights)).sum()

    def forward(self, z, label=None):
        return self.kernel(z, self.centres) @ self.weights


def test_the_objective_never_rises_in_either_half_step():
    random = np.random.default_rng(0)
    t = random.uniform(-1, 1, (120, 2))
    x = torch.from_numpy(
        np.column_stack([np.sin(3 * t[:, 0]), t[:, 1] ** 2, t.sum(1)]) + 0.05 * random.normal(size=(120, 3))
    )
    decoder = KernelRidge((3,))
    method = QuantileAssignment(
        decoder,
        prior.Normal(2),
        Cost.named("l2"),
        QuantileSettings(momentum=1.0, anneal=False, start="random"),
    )
    method.attach(x, None, 0)
    method.start()

    def objective():
        return float(method.cost.paired(x, decoder(method.codes)).mean() + decoder.penalty())

    decoder.fit(method.codes, x)
    values = [objective()]
    for _ in range(8):
        method.reassign()
        values.append(objective())
        decoder.fit(method.codes, x)
        values.append(objective())
    assert all(after <= before + 1e-12 for before, after in zip(values, values[1:]))
    assert values[-1] < 0.5 * values[0]


@pytest.mark.parametrize("start", ["random", "pca"])
@pytest.mark.parametrize("assignment", ["exact", "greedy", "greedy-cheapest", "greedy-regret"])
def test_full_batch_uses_each_code_once(digits, start, assignment):
    method = build(digits[0][:40, None], start=start, assignment=assignment, every=1)
    loop = trainer(method, epochs=3, batch_size=10)
    seen = []
    loop.record = lambda figures: seen.append(sorted(method.permutation.tolist()))
    assert sorted(method.permutation.tolist()) == list(range(40))
    loop.run()
    assert seen == [list(range(40))] * 3


@pytest.mark.parametrize("subset", ["owned", "partition", "random"])
@pytest.mark.parametrize("conditional", [False, True])
def test_mini_batches_offer_each_code_once_an_epoch(digits, subset, conditional):
    """True of owned and partition; the paper's random subset leaves codes out and uses others twice."""
    labels = digits[1][:90] if conditional else None
    method = build(digits[0][:90, None], labels, algorithm="mini-batch", subset=subset)
    offered = []
    assign = method._assign
    method._assign = lambda offers, *how: (offered.extend(block.columns for block in offers), assign(offers, *how))
    loop = trainer(method, epochs=3, batch_size=20)
    for _ in range(3):
        offered.clear()
        for batch in loop._epoch_batches():
            method.training_step(batch, loop._update)
            loop.batch += 1
        used = torch.cat(offered).tolist()
        assert len(used) == 90
        if subset == "random":
            assert len(set(used)) < 90
        else:
            assert sorted(used) == list(range(90))
            assert sorted(method.permutation.tolist()) == list(range(90))
        method.end_epoch(0, 3)
        loop.batch = 0


def test_owned_batches_never_raise_the_cost_of_the_batch(digits):
    method = build(
        digits[0][:60, None],
        algorithm="mini-batch",
        subset="owned",
        start="random",
        momentum=1.0,
        anneal=False,
    )
    rows = torch.arange(0, 60, 3)

    def cost():
        images = method.decode(method.lattice[method.permutation[rows]])
        return float(method.cost.paired(method.x[rows], images).mean())

    before = cost()
    method._assign(method.offers.of(rows, method.permutation, method.random), method.dense)
    assert cost() < before


@pytest.mark.parametrize("subset", ["owned", "partition", "random"])
def test_one_mini_batch_of_all_equals_one_full_iteration(digits, subset):
    """Algorithm 2 with m = n is Algorithm 1 with one gradient step, in float64, by SGD and without penalty."""
    states = []
    for settings in ({"algorithm": "full", "every": 1}, {"algorithm": "mini-batch", "subset": subset}):
        method = build(digits[0][:50, None], start="random", momentum=0.6, anneal=False, **settings)
        trainer(
            method,
            epochs=1,
            batch_size=50,
            optimizer="sgd",
            schedule="constant",
            learning_rate=0.5,
            weight_decay=0.0,
            clip=0.0,
        ).run()
        states.append(method)
    full, mini = states
    assert torch.equal(full.permutation, mini.permutation)
    assert torch.allclose(full.codes, mini.codes, atol=1e-8, rtol=0)
    for a, b in zip(full.generator.parameters(), mini.generator.parameters()):
        assert torch.allclose(a, b, atol=1e-8, rtol=0)


def test_permuting_the_data_permutes_the_codes(digits):
    x = digits[0][:80, None]
    order = np.random.default_rng(0).permutation(80)
    codes = []
    for images in (x, x[order]):
        method = build(images, start="pca", every=1)
        trainer(method, epochs=4, batch_size=80).run()
        codes.append(method.codes)
    assert not torch.allclose(codes[0], codes[1], atol=1e-3)
    assert torch.allclose(codes[0][torch.from_numpy(order)], codes[1], atol=1e-6)


def test_a_monotone_curve_is_recovered_in_one_dimension():
    random = np.random.default_rng(0)
    t = random.uniform(0, 1, 300)
    curve = np.column_stack([t, np.sin(2 * t), np.exp(t)]) + 0.005 * random.normal(size=(300, 3))
    model = NeuroSQL(latent_dim=1, epochs=20, every=2, validation_share=0.0, start="pca").fit(curve)
    assert abs(spearmanr(model.codes_[:, 0], t).statistic) > 0.99


def test_learned_codes_beat_frozen_random_ones_on_held_out_images(digits):
    """The negative control: without assignment the generator can only learn the mean image."""
    images = digits[0][:400]
    common = dict(
        preset="plain", generator="mlp", epochs=30, every=2, validation_share=0.25, patience=0, validate_every=30
    )
    losses = {}
    for name, settings in {"frozen": {"every": 0}, "learned": {}}.items():
        model = NeuroSQL(**common | {"start": "random"} | settings).fit(images)
        losses[name] = model.history_[-1]["heldout_loss"]
    assert losses["learned"] < 0.85 * losses["frozen"]


@pytest.mark.parametrize("conditional", [False, True])
def test_momentum_blends_the_old_code_and_the_new(digits, conditional):
    method = build(digits[0][:30, None], digits[1][:30] if conditional else None, momentum=0.3, anneal=False)
    before = method.codes.clone()
    method.reassign()
    expected = 0.3 * method.lattice[method.permutation] + 0.7 * before
    assert torch.allclose(method.codes, expected, atol=1e-12)


def test_annealed_momentum_ends_on_the_lattice(digits):
    method = build(digits[0][:60, None], momentum=0.5, anneal=True, every=2)
    trainer(method, epochs=4, batch_size=30).run()
    assert method.rho == 1
    assert torch.equal(method.codes, method.lattice[method.permutation])
    assert method.drift() == pytest.approx(1)


@pytest.mark.parametrize("epochs, every", [(7, 3), (3, 5), (5, 1), (4, 4)])
def test_whatever_the_budget_the_last_assignment_is_on_the_lattice(digits, epochs, every):
    method = build(digits[0][:40, None], momentum=0.5, anneal=True, every=every)
    loop = trainer(method, epochs=epochs, batch_size=40)
    records = []
    loop.record = records.append
    loop.run()
    assert torch.equal(method.codes, method.lattice[method.permutation])
    assert sum("cost" in record for record in records) == max(1, epochs // every)


def test_constant_momentum_shrinks_the_codes_and_drift_says_so(digits):
    method = build(digits[0][:60, None], momentum=0.5, anneal=False, start="random", every=1)
    trainer(method, epochs=2, batch_size=60, learning_rate=1e-4).run()
    assert method.drift() < 0.95
    assert method.drift() == pytest.approx(float(method.codes.var(0).sum() / method.lattice.var(0).sum()))


@pytest.mark.parametrize("settings", [{}, {"algorithm": "mini-batch", "subset": "random"}])
def test_the_closing_snap_puts_every_image_on_a_code_of_its_own(digits, settings):
    method = build(digits[0][:60, None], momentum=0.5, anneal=False, every=2, snap=2, **settings)
    loop = trainer(method, epochs=3, batch_size=30)
    records = []
    loop.record = records.append
    loop.run()
    assert torch.equal(method.codes, method.lattice[method.permutation])
    assert sorted(method.permutation.tolist()) == list(range(60))
    assert [record["phase"] for record in records] == ["main"] * 3 + ["closing"] * 2


def test_classes_keep_to_their_own_sublattices(digits):
    x, labels = digits[0][:120, None], digits[1][:120]
    method = build(x, labels, every=1)
    trainer(method, torch.as_tensor(labels), epochs=2, batch_size=40).run()
    assert method.lattice_labels[method.permutation].tolist() == labels.tolist()
    assert sorted(method.permutation.tolist()) == list(range(120))
    for label in range(10):
        own = method.lattice[method.lattice_labels == label]
        other = build(x[labels == label], np.zeros((labels == label).sum(), int)).lattice
        # The same law and number of points, but seeded by the class.
        assert own.shape == other.shape and (label == 0) == torch.equal(own, other)


def test_a_class_keeps_its_sublattice_when_other_classes_come_or_go(digits):
    x, labels = digits[0][:120, None], digits[1][:120]
    some = labels < 5
    whole, part = build(x, labels), build(x[some], labels[some])
    for label in range(5):
        assert torch.equal(whole.lattice[whole.lattice_labels == label], part.lattice[part.lattice_labels == label])


def test_the_penalty_is_the_sum_of_squared_weights(digits):
    method = build(digits[0][:20, None], penalty=0.01)
    total = sum(float(p.detach().square().sum()) for p in method.generator.parameters())
    assert method.regulariser().item() == pytest.approx(total)
    free = build(digits[0][:20, None])
    for m in (method, free):
        trainer(m, epochs=40, batch_size=20, weight_decay=0.0).run()
    assert method.regulariser().item() < free.regulariser().item()


def test_the_pca_start_beats_a_random_one(digits):
    costs = {}
    for start in ("pca", "random"):
        method = build(digits[0][:150, None], start=start, every=0)
        loop = trainer(method, epochs=15, batch_size=50)
        records = []
        loop.record = records.append
        loop.run()
        costs[start] = records[-1]["loss"]
    assert costs["pca"] < 0.95 * costs["random"]


def test_more_latent_dimensions_than_the_data_have_still_start():
    x = np.random.default_rng(0).normal(size=(12, 3))
    method = build(x, dim=7)
    assert sorted(method.permutation.tolist()) == list(range(12))


@pytest.mark.parametrize(
    "law", [prior.Cube(2), prior.Ball(2), prior.Ball(2, law="spherical"), prior.Normal(2, scale=3.0)]
)
def test_every_prior_trains_and_encodes_within_its_support(digits, law):
    method = build(digits[0][:60, None], law=law, every=2)
    trainer(method, epochs=4, batch_size=30).run()
    codes, _, losses = method.encode(method.x[:10])
    assert torch.isfinite(law.log_prob(codes)).all()
    assert torch.isfinite(losses).all()


def test_settings_outside_their_range_are_refused():
    from neurosql.settings import Settings

    for name, value in [
        ("momentum", 0.0),
        ("momentum", 1.1),
        ("every", -1),
        ("scale", 0.0),
        ("latent_dim", 0),
    ]:
        with pytest.raises(InputError, match=name):
            Settings.from_flat({name: value})
    for name, value in [
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("ema", 1.0),
        ("validation_share", 1.0),
    ]:
        with pytest.raises(InputError, match=name):
            Settings.from_flat({name: value})
    with pytest.raises(InputError, match="unknown setting"):
        Settings.from_flat({"latent": 2})
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().training.epochs = 3


def test_a_conditional_model_needs_labels(digits):
    with pytest.raises(InputError, match="labels"):
        NeuroSQL(conditional=True, epochs=1).fit(digits[0][:20])
    assert from_array(digits[0][:4]).labels is None


def test_candidates_take_the_place_of_the_matrix_and_say_what_they_cost(digits):
    x = digits[0][:120, None]
    dense, sparse = (build(x, dtype=torch.float32, strategy=name, candidates=16) for name in ("dense", "candidates"))
    assert sorted(sparse.permutation.tolist()) == list(range(120))
    sparse.permutation, sparse.codes = dense.permutation.clone(), dense.codes.clone()
    for method in (dense, sparse):
        method.reassign()
    assert sorted(sparse.permutation.tolist()) == list(range(120))
    costs = [method._mean_figures()["cost"] for method in (dense, sparse)]
    assert costs[0] <= costs[1] + 1e-6 and costs[1] < 1.02 * costs[0]


@pytest.mark.parametrize("own", [{}, {"components": 3}, {"conditional": True}, {"conditional": True, "components": 2}])
def test_blocks_improve_the_assignment_within_classes_and_components(digits, own):
    x, labels = digits[0][:160, None], digits[1][:160] % 2
    settings = {"strategy": "blocks", "block_size": 12, "start": "random", "momentum": 1.0}
    given = labels if own.pop("conditional", False) else None
    method = build(x, labels=given, dtype=torch.float32, **settings, **own)

    def state():
        return method.permutation.clone(), float(method.cost.paired(method.x, method.reconstruct()).mean())

    before, value = state()
    for _ in range(3):
        method.reassign()
        after, found = state()
        assert sorted(after.tolist()) == list(range(160)) and not torch.equal(before, after)
        assert found <= value * (1 + 1e-6)
        if given is not None:
            assert torch.equal(method.lattice_labels[after], method.labels)
        parts = torch.empty(160, dtype=torch.int64)
        for number, part in enumerate(method.parts):
            parts[part.columns] = number
        assert torch.equal(parts[before], parts[after])
        figures = method._mean_figures()
        assert 0 < figures["compared"] <= 1 and figures["cost"] == pytest.approx(found, rel=1e-5)
        assert figures["relative_gap_estimate"] >= 0
        before, value = after, found


@pytest.mark.parametrize("classes", [1, 3])
def test_reused_images_of_a_step_give_the_assignment_of_new_ones_while_nothing_moves(digits, classes):
    """With codes on the lattice, no update and no batch statistics, both are the same images."""
    x, labels = digits[0][:60, None], digits[1][:60] % classes if classes > 1 else None
    own = {"algorithm": "mini-batch", "momentum": 1.0, "anneal": False, "start": "random"}
    anew, reused = (build(x, labels, reuse=reuse, **own) for reuse in (False, True))
    assert torch.equal(anew.permutation, reused.permutation)
    before = anew.permutation.clone()
    for index in torch.randperm(60, generator=torch.Generator().manual_seed(1)).split(20):
        for method in (anew, reused):
            label = None if method.labels is None else method.labels[index]
            method.training_step(Batch(index, method.x[index], label), lambda name, loss: None)
    assert torch.equal(anew.permutation, reused.permutation) and not torch.equal(before, reused.permutation)
    for wrong in ({"subset": "random"}, {"algorithm": "full"}, {"match": "codes", "code_rate": 0.1}):
        with pytest.raises(InputError, match="reuse is for"):
            QuantileSettings(**own | {"reuse": True} | wrong).check()


def test_the_strategy_is_chosen_by_the_number_of_images():
    settings = QuantileSettings()
    assert settings.strategy_for(12_000) == "dense" and settings.strategy_for(12_001) == "blocks"
    assert QuantileSettings(block_size=20_000).strategy_for(20_000) == "dense"
    assert [QuantileSettings(strategy="blocks").strategy_for(n) for n in (1024, 1025)] == ["dense", "blocks"]
    assert QuantileSettings(assignment="greedy").strategy_for(60_000) == "dense"
    for strategy in ("dense", "candidates"):
        assert {QuantileSettings(strategy=strategy).strategy_for(n) for n in (10, 60_000)} == {strategy}
    for strategy in ("candidates", "blocks"):
        with pytest.raises(InputError, match=f"strategy {strategy} needs assignment exact"):
            QuantileSettings(strategy=strategy, assignment="greedy").check()
