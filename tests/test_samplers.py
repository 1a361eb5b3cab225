"""How samples are drawn is chosen when sampling: what each method offers, and what a fitted density does."""

import json

import numpy as np
import pytest
import torch

import neurosql
from neurosql import InputError, samplers
from neurosql.bench.declare import Arm, Experiment, Grid, Job
from neurosql.cli import main
from neurosql.data import from_array
from neurosql.density import Mixture
from neurosql.evaluate import Options, evaluate
from neurosql.samplers import Known
from neurosql.settings import METHODS, Sampling

QUICK = {"generator": "mlp", "width": 16, "epochs": 2, "latent_dim": 2, "batch_size": 30}


@pytest.fixture(scope="module")
def fitted(digits):
    """One small model per method."""
    data = from_array(digits[0][:90], digits[1][:90])
    return {name: neurosql.fit(data, method=name, **QUICK) for name in METHODS}


@pytest.mark.parametrize("name", list(METHODS))
def test_every_sampler_of_a_method_gives_samples(name, fitted):
    run = fitted[name]
    for sampler in METHODS[name].samplers:
        few = {"steps": 3} if sampler.steps else {}
        if sampler.name == "ancestral":
            continue
        first, again, other = (run.sample(6, seed=s, sampler=sampler.name, **few)[0] for s in (0, 0, 1))
        assert first.shape == (6, 1, 8, 8) and np.isfinite(first).all()
        assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize("name", list(METHODS))
def test_the_usual_sampler_is_the_first(name, fitted):
    first = METHODS[name].samplers[0]
    usual = fitted[name].sample(4, seed=3)[0]
    assert np.array_equal(usual, fitted[name].sample(4, seed=3, sampler=first.name)[0])


def test_a_sampler_that_a_method_has_not_is_refused(fitted):
    with pytest.raises(InputError, match="samplers of gan are prior, got 'mixture'"):
        fitted["gan"].sample(3, sampler="mixture")
    with pytest.raises(InputError, match="prior of neurosql has no steps"):
        fitted["neurosql"].sample(3, steps=10)
    with pytest.raises(InputError, match="components must be at least 1"):
        fitted["neurosql"].sample(3, sampler="mixture", components=0)
    assert METHODS["ddpm"].sampling(Sampling())[1] == Sampling("ddim", steps=100)


def codes_of(run, n=400, seed=0, label=None, **how):
    """Codes that a sampler draws, and their labels."""
    drawn, labels = run.method.draw_codes(n, label, torch.Generator().manual_seed(seed), Sampling(**how))
    return drawn.double(), labels


def distance_to_codes(run, z):
    return float(torch.cdist(z, run.method.codes.double()).amin(1).mean())


CODED = [name for name in METHODS if METHODS[name].codes]


@pytest.mark.parametrize("name", CODED)
def test_near_goes_from_the_nearest_code_to_the_usual_draw(name, fitted):
    run = fitted[name]
    usual, half, none, all_of_it = (
        codes_of(run, **how)[0]
        for how in ({}, *({"sampler": "near", "fraction": fraction} for fraction in (0.5, 0.0, 1.0)))
    )
    torch.testing.assert_close(all_of_it, usual, atol=1e-5, rtol=0)
    assert distance_to_codes(run, none) < 1e-5
    torch.testing.assert_close(half, (usual + none) / 2, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", CODED)
def test_truncation_keeps_usual_draws_near_the_codes(name, fitted):
    run = fitted[name]
    usual, kept = codes_of(run)[0], codes_of(run, sampler="truncated", fraction=0.5)[0]
    assert len(kept) == 400 and distance_to_codes(run, kept) < distance_to_codes(run, usual)
    torch.testing.assert_close(
        codes_of(run, sampler="truncated", fraction=1.0)[0].sort(0).values, usual.sort(0).values, atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("name", CODED)
def test_between_is_on_segments_between_neighbouring_codes(name, fitted):
    run, codes = fitted[name], fitted[name].method.codes.double()
    drawn = codes_of(run, n=40, sampler="between")[0]
    near = codes[torch.cdist(codes, codes).topk(5, largest=False).indices]
    begin, way = codes[:, None], near - codes[:, None]
    for z in drawn:
        along = ((z - begin) * way).sum(-1) / way.square().sum(-1).clamp(min=1e-12)
        off = (begin + along.clamp(0, 1)[..., None] * way - z).norm(dim=-1)
        assert off.min() < 1e-5


@pytest.mark.parametrize("name", CODED)
def test_a_local_draw_that_moves_nowhere_is_a_training_code(name, fitted):
    run, codes = fitted[name], fitted[name].method.codes.double()
    still = codes_of(run, n=60, sampler="local", fraction=0.0)[0]
    assert torch.cdist(still, codes).amin(1).max() < 1e-5
    moved = codes_of(run, n=60, sampler="local")[0]
    assert torch.cdist(moved, codes).amin(1).mean() > 1e-3


def test_local_draws_follow_codes_on_a_curve():
    angle = torch.linspace(0, 6.28, 400, dtype=torch.float64)
    codes = torch.stack([angle.cos(), angle.sin()], 1)
    nothing = Known(codes, None, None, lambda n, random: (codes[:n], None), lambda z, y: z, None, lambda n: None)
    drawn, _ = samplers.local(nothing, Sampling("local"), 2000, torch.Generator().manual_seed(0))
    law = Mixture.fit(codes, None, None, 1, 0).sample(2000, None, torch.Generator().manual_seed(0))
    assert (drawn.norm(dim=1) - 1).abs().max() < 0.2 < (law.norm(dim=1) - 1).abs().mean()
    # All around the curve, not only where codes are.
    around = torch.atan2(drawn[:, 1], drawn[:, 0])
    assert torch.histc(around, 12, -3.15, 3.15).min() > 100
    assert torch.cdist(drawn, codes).amin(1).median() > 1e-3


@pytest.mark.parametrize("sampler", ["near", "truncated", "between", "local"])
def test_samplers_keep_to_the_codes_of_their_class(digits, sampler):
    data = from_array(digits[0][:100], digits[1][:100])
    run = neurosql.fit(data, conditional=True, **QUICK)
    method = run.method
    how = {"sampler": sampler} | ({"fraction": 0.0} if sampler in ("near", "local") else {})
    drawn, labels = codes_of(run, label=3, **how)
    assert (labels == 3).all()
    own = method.codes[method.labels == 3].double()
    if sampler in ("near", "local"):
        assert torch.cdist(drawn, own).amin(1).max() < 1e-5
    elif sampler == "between":
        low, high = own.amin(0), own.amax(0)
        assert ((drawn >= low - 1e-6) & (drawn <= high + 1e-6)).all()


def test_a_fraction_outside_its_range_is_refused(fitted):
    with pytest.raises(InputError, match=r"fraction must be in \[0, 1\], got 1.5"):
        fitted["neurosql"].sample(3, sampler="near", fraction=1.5)
    with pytest.raises(InputError, match="prior of neurosql has no fraction"):
        fitted["neurosql"].sample(3, fraction=0.5)


def test_a_mixture_follows_the_codes_where_the_prior_does_not():
    """Codes in two far clusters: a Gaussian mixture draws near them, the prior between them."""
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(-6, 0.3, (60, 2)), random.normal(6, 0.3, (60, 2))])
    run = neurosql.fit(x, method="rae", width=32, latent_dim=2, epochs=30, validation_share=0.0)
    codes = run.method.codes

    def spread(sampler, **more):
        made, _ = run.sample(400, seed=0, sampler=sampler, **more)
        return np.abs(np.abs(made.mean(1)) - np.abs(run.reconstruct().mean(1)).mean()).mean()

    assert len(codes) == 120
    assert spread("mixture", components=2) < 0.5 * spread("gaussian")


def test_classes_have_densities_of_their_own(digits):
    data = from_array(digits[0][:100], digits[1][:100])
    run = neurosql.fit(data, method="neurosql", conditional=True, **QUICK)
    images, labels = run.sample(30, label="3", seed=0, sampler="gaussian")
    assert images.shape == (30, 1, 8, 8) and (labels == 3).all()


def test_the_command_line_chooses_a_sampler(digits, tmp_path, capsys):
    np.savez(tmp_path / "digits.npz", images=digits[0][:80])
    options = ["--generator", "mlp", "--width", "16", "--budget", "smoke"]
    assert main(["train", str(tmp_path / "digits.npz"), "--out", str(tmp_path / "run"), *options]) == 0
    for more in ([], ["--sampler", "mixture", "--components", "3"]):
        assert (
            main(["sample", str(tmp_path / "run"), "-n", "5", "--out", str(tmp_path / f"x{len(more)}.npy"), *more]) == 0
        )
    assert not np.array_equal(np.load(tmp_path / "x0.npy"), np.load(tmp_path / "x4.npy"))
    assert main(["sample", str(tmp_path / "run"), "--sampler", "ddim"]) == 2
    assert (
        "the samplers of neurosql are prior, apart, near, truncated, between, local, gaussian, mixture"
        in capsys.readouterr().err
    )


def test_an_evaluation_looks_at_the_samples_of_the_sampler_that_was_asked_for(digits):
    data = from_array(digits[0][:140], digits[1][:140])
    train, heldout = data.take(np.arange(100)), data.take(np.arange(100, 140))
    run = neurosql.fit(train, validation_share=0.0, **QUICK)
    for sampling in (Sampling(), Sampling("gaussian")):
        found = evaluate(run, train, heldout, Options(samples=30, image_pairs=5, sampling=sampling))
        expected = run.sample(30, seed=0, sampler=sampling.sampler)[0]
        assert np.array_equal(found.samples, expected)


def test_a_contender_of_a_bench_may_have_a_sampler():
    plain, mixed = Arm("prior"), Arm("mixture", sampling=Sampling("mixture", components=3))
    experiment = Experiment("own", "t", "q", (Grid((plain, mixed)),), ())
    first, second = experiment.jobs("smoke", 1)
    assert first.config != second.config and second.sampling.components == 3
    again = Job.from_record(json.loads(json.dumps(second.record())))
    assert again == second and again.config == second.config


@pytest.mark.parametrize("name", CODED)
def test_apart_leaves_out_what_is_most_like_a_copy(name, fitted):
    run = fitted[name]
    cost, remade = run.method.cost, run.method.reconstruct()

    def like_copies(z):
        nearest = cost.matrix(run.method.decode(z.float()), remade).topk(8, largest=False).values
        return nearest[:, 0] / nearest[:, 1:].mean(1)

    usual, kept = (like_copies(codes_of(run, **how)[0]) for how in ({}, {"sampler": "apart", "fraction": 0.6}))
    assert kept.min() > usual.quantile(0.25) and kept.mean() > usual.mean()
    everything = codes_of(run, sampler="apart", fraction=1.0)[0]
    assert len(everything) == 400


def test_a_model_may_leave_out_copies_unless_a_sampler_is_named(digits):
    data = from_array(digits[0][:90], digits[1][:90])
    plain, apart = (neurosql.fit(data, **QUICK | own) for own in ({}, {"apart": 0.7}))
    assert torch.equal(plain.method.codes, apart.method.codes)
    named = plain.sample(20, seed=1, sampler="apart", fraction=0.7)[0]
    assert np.array_equal(apart.sample(20, seed=1)[0], named)
    assert np.array_equal(apart.sample(20, seed=1, sampler="prior")[0], plain.sample(20, seed=1)[0])
    with pytest.raises(InputError, match="apart must be in"):
        neurosql.fit(data, apart=0.0, **QUICK)


def test_apart_gives_every_class_its_samples(digits):
    data = from_array(digits[0][:90], digits[1][:90])
    run = neurosql.fit(data, conditional=True, **QUICK)
    images, labels = run.sample(30, seed=0, sampler="apart")
    assert len(images) == len(labels) == 30
    assert (run.sample(5, "3", seed=0, sampler="apart")[1] == 3).all()
