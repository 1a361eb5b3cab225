"""Declarations: which runs an experiment has, and what tells them apart."""

import json
from dataclasses import replace

import pytest

from neurosql import presets
from neurosql.bench import rows
from neurosql.bench.declare import IN_COLOUR, LATER, PICTURES, SCALES, Job
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.bench.experiments.choices import DIFFER, TO_OURS, TO_PAPER
from neurosql.modality import of_shape
from neurosql.settings import Settings


@pytest.mark.parametrize("budget", SCALES)
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_lines_of_a_table_are_told_apart(name, budget):
    jobs = list(EXPERIMENTS[name].jobs(budget, 1))
    lines = [tuple(v for k, v in rows.identity(job).items() if k not in ("seed", "config", "preset")) for job in jobs]
    assert len(set(lines)) == len(lines) == len({job.key for job in jobs})
    for job in jobs[:3]:
        again = Job.from_record(json.loads(json.dumps(job.record())))
        assert again == job and again.config == job.config


def test_methods_on_one_seed_share_images_budget_and_generator():
    for name in ("mnist", "celeba"):
        jobs = list(EXPERIMENTS[name].jobs("laptop", 1))
        for what in ("epochs", "batch_size", "validation_share", "clip"):
            assert len({getattr(job.settings.training, what) for job in jobs}) == 1
        assert len({(job.images, job.pixels, job.settings.generator.size) for job in jobs}) == 1


def test_the_published_benches_are_as_large_as_they_should_be():
    jobs = list(EXPERIMENTS["mnist"].jobs("laptop"))
    assert {job.seed for job in jobs} == set(range(5)) and {job.images for job in jobs} == {2000}
    assert all(job.settings.training.epochs >= 40 for job in jobs)
    for arm in ("NeuroSQL", "NeuroSQL, paper", "VAE", "GAN"):
        assert {job.latent_dim for job in jobs if job.arm == arm} == {2, 3, 8, 16}
    for name in ("celeba", "afhq", "oasis"):
        jobs = list(EXPERIMENTS[name].jobs("laptop"))
        assert {job.seed for job in jobs} == set(range(3)) and min(job.pixels for job in jobs) >= 32
        for arm in ("NeuroSQL", "VAE", "GAN"):
            assert {job.latent_dim for job in jobs if job.arm == arm} == {2, 8, 32}


def test_the_choices_are_all_that_ours_and_the_papers_settings_differ_in():
    # On digits, which have no colour, the recommended cost is the paper's. All runs of a bench are in float32.
    given = {"generator": "convnet", "precision": "float32"}
    ours, papers = (
        presets.settings("neurosql", preset, "laptop", **given).resolve(of_shape((1, 28, 28))).flat()
        for preset in ("plain", "paper")
    )
    differ = {name: (ours[name], papers[name]) for name in ours if ours[name] != papers[name]}
    assert {name: (own[1], other[1]) for name, (own, other) in DIFFER.items()} == differ
    # Each contender is one step away from one end; the ends are those of the other tables.
    jobs = {job.arm: job for job in EXPERIMENTS["choices"].jobs("laptop", 1)}
    for start, steps in (("NeuroSQL, paper", TO_OURS), ("NeuroSQL", TO_PAPER)):
        end = jobs[start].settings.flat()
        for arm in steps:
            step = jobs[arm.name].settings.flat()
            assert [name for name in end if end[name] != step[name]] == list(arm.own)
    longer = jobs["paper, but three times the epochs"].settings.training.epochs
    assert longer == 3 * jobs["NeuroSQL, paper"].settings.training.epochs
    assert {jobs[arm].key for arm in ("NeuroSQL, paper", "NeuroSQL")} <= {
        job.key for job in EXPERIMENTS["mnist"].jobs("laptop", 1)
    }


def test_settings_added_later_leave_the_hash_of_a_run_that_does_not_use_them():
    usual = Settings().flat() | {"precision": "float32"}
    assert {name: usual[name] for name in LATER} == LATER
    job = next(iter(EXPERIMENTS["mnist"].jobs("laptop", 1)))
    mapped = replace(job, settings=replace(job.settings, generator=replace(job.settings.generator, mapping=2)))
    assert mapped.config != job.config


OF_THE_PAPER = ("main", *(f"{data}{own}" for data in PICTURES for own in ("", "-resnet", "-unet")))


def test_photographs_and_scans_are_also_compared_by_vgg_features_unless_the_budget_is_the_smallest():
    for name in EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        assert not any(job.vgg for job in experiment.jobs("smoke", 1)), name
        for job in experiment.jobs("laptop", 1):
            assert job.vgg == (job.data in PICTURES and name not in OF_THE_PAPER), job.describe()
        if any(column.features == "vgg" for column in experiment.columns):
            assert all(job.vgg for job in experiment.jobs("laptop", 1)), name


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_the_papers_tables_of_pictures_have_its_loss(name):
    for job in EXPERIMENTS[name].jobs("laptop", 1):
        assert job.settings.resolve(of_shape((3, 32, 32))).flat()["cost"] == "ssim+l1", job.describe()


@pytest.mark.parametrize("budget", SCALES)
def test_a_run_of_two_experiments_is_one_run(budget):
    def keys(name, data, backbone="convnet"):
        jobs = EXPERIMENTS[name].jobs(budget, 1)
        return {job.key for job in jobs if (job.data, job.backbone) == (data, backbone)}

    for data in PICTURES:
        assert keys("main", data) == keys(data, data) != set()
    for data in IN_COLOUR:
        # Sheets have the loss for colour, as what people train has.
        assert keys("sheets", data) and not keys("main", data) & keys("sheets", data)
    assert keys("main", "mnist") < keys("mnist", "mnist")


def test_runs_without_vgg_features_keep_their_hash():
    job = next(iter(EXPERIMENTS["pictures"].jobs("laptop", 1)))
    without = replace(job, vgg=False)
    assert job.vgg and without.config != job.config
    # Jobs that were written down before there was a choice had none.
    record = json.loads(json.dumps(without.record()))
    del record["vgg"]
    assert Job.from_record(record) == without
