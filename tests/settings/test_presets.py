"""Preset, size and budget: three words that mean the same for every method."""

import dataclasses
import itertools
from typing import get_args

import pytest

from neurosql import InputError, NeuroSQL, open_run, presets
from neurosql.cli import main, train_command
from neurosql.settings import METHODS, GeneratorSettings, LatentSettings, Settings, TrainingSettings

SHARED = {f.name for kind in (GeneratorSettings, LatentSettings, TrainingSettings) for f in dataclasses.fields(kind)}


COMBINATIONS = list(itertools.product(METHODS, ("recommended", "paper"), presets.BUDGETS))


@pytest.mark.parametrize("method, preset, budget", COMBINATIONS)
def test_every_combination_is_a_whole_set_of_settings(method, preset, budget):
    settings = presets.settings(method, preset, budget, seed=3)
    assert settings.method == method and settings.training.seed == 3
    assert settings.training.epochs == presets.BUDGETS[budget]["epochs"]
    assert Settings.from_flat(settings.flat()) == settings
    assert Settings.from_sections(method, settings.sections()) == settings


@pytest.mark.parametrize("budget", list(presets.BUDGETS))
def test_a_budget_is_the_same_for_all_methods(budget):
    spent = {(s.training.epochs, s.training.batch_size) for s in (presets.settings(m, budget=budget) for m in METHODS)}
    assert len(spent) == 1


def test_the_papers_optimiser_is_the_same_for_all_methods():
    assert len({presets.settings(method, "paper").training for method in METHODS}) == 1


@pytest.mark.parametrize("method", list(METHODS))
def test_a_methods_own_settings_have_names_of_their_own(method):
    own = {f.name for f in dataclasses.fields(METHODS[method].settings)}
    assert not own & SHARED and "method" not in own


def test_a_setting_of_the_callers_wins_over_preset_and_budget():
    settings = presets.settings("gan", "paper", "paper", r1=7.0, epochs=3)
    assert settings.own.r1 == 7.0 and settings.training.epochs == 3 and not settings.own.augment


def test_settings_of_another_method_are_refused():
    with pytest.raises(InputError, match="gan: momentum"):
        presets.settings("gan", momentum=0.5)
    with pytest.raises(InputError, match="method must be one of"):
        presets.settings("flow")
    with pytest.raises(InputError, match="preset"):
        presets.settings("vae", "best")
    with pytest.raises(InputError, match="budget"):
        presets.settings("vae", budget="large")


def test_the_command_line_takes_its_defaults_from_the_three_words():
    command = train_command(["train", "--method", "gan", "--preset=paper", "--budget", "smoke"])
    defaults = {f.name: f.default for f in dataclasses.fields(command)}
    assert defaults["own"] == METHODS["gan"].settings(r1=0.0, augment=False)
    assert defaults["training"].epochs == 2 and defaults["training"].learning_rate == 2e-4


def test_a_backbones_own_settings_are_refused_by_the_others():
    assert Settings.from_flat({"generator": "resnet", "taper": False}).backbone.taper is False
    for generator in ("auto", "convnet"):
        with pytest.raises(InputError, match="taper"):
            Settings.from_flat({"generator": generator, "taper": False})
    with pytest.raises(InputError, match="the settings of resnet must be ResNetSettings"):
        Settings(generator=GeneratorSettings("resnet"), backbone=TrainingSettings())


def test_settings_of_version_0_1_0_have_the_backbones_in_the_section_of_the_generator():
    for name, expected in (("resnet", {"taper": False, "resnet18": None}), ("convnet", {})):
        settings = Settings.from_flat({"generator": name} | expected)
        sections = settings.sections()
        del sections["backbone"]
        sections["generator"] |= {"taper": False, "resnet18": None}
        assert Settings.from_sections("neurosql", sections) == settings


def test_names_of_version_0_1_0_work_with_a_notice():
    with pytest.warns(FutureWarning, match="holdout has been renamed to validation_share"):
        settings = presets.settings("neurosql", holdout=0.3)
    assert settings.training.validation_share == 0.3
    for old, value, new in (
        ("pairs", "all", "dense"),
        ("pairs", "candidates", "candidates"),
        ("refresh", "full", "auto"),
    ):
        with pytest.warns(FutureWarning, match=f"{old} has been renamed to strategy"):
            assert presets.settings("neurosql", **{old: value}).quantile.strategy == new
    with pytest.warns(FutureWarning, match="holdout"):
        assert NeuroSQL(holdout=0.4).settings().training.validation_share == 0.4


def test_flags_of_version_0_1_0_work_with_a_notice(tmp_path, capsys):
    options = [
        "--generator",
        "mlp",
        "--width",
        "8",
        "--budget",
        "smoke",
        "--limit",
        "40",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(["train", "mnist-sample", *options, "--holdout", "0.2", "--pairs=candidates"]) == 0
    notices = capsys.readouterr().err
    assert (
        "--holdout has been renamed to --validation-share" in notices
        and "--pairs has been renamed to --strategy" in notices
    )
    assert open_run(tmp_path / "run").settings.quantile.strategy == "candidates"


def test_a_method_may_have_presets_for_one_purpose():
    for name, changes in METHODS["neurosql"].purposes.items():
        chosen, usual = (presets.settings(preset=preset).flat() for preset in (name, "plain"))
        assert {key for key in chosen if chosen[key] != usual[key]} <= changes.keys()
        assert all(chosen[key] == value for key, value in changes.items())
        assert presets.settings(preset=name, components=3).quantile.components == 3
    with pytest.raises(InputError, match="the presets of vae are recommended, paper, got 'map'"):
        presets.settings("vae", "map")
    assert set(get_args(presets.Preset)) == {"recommended", "paper", *METHODS["neurosql"].purposes}


RECOMMENDED_FOR = [
    ({}, "map"),
    ({"latent_dim": 3}, "map"),
    ({"latent_dim": 4}, "samples"),
    ({"latent_dim": "auto"}, "samples"),
    ({"latent_dim": 8, "algorithm": "mini-batch"}, "map"),
    ({"prior": "ball"}, "plain"),
    ({"latent_dim": 8, "prior": "cube"}, "plain"),
]


@pytest.mark.parametrize("given, purpose", RECOMMENDED_FOR)
def test_what_is_recommended_follows_what_was_asked_for(given, purpose):
    expected = presets.settings(preset=purpose, **given)
    assert presets.settings(**given) == expected == NeuroSQL(**given).settings()
    flags = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    for arguments in (flags, [f"{flag}={value}" for flag, value in zip(flags[::2], flags[1::2])]):
        sections = {f.name: f.default for f in dataclasses.fields(train_command(["train", *arguments]))}
        for name in ("components", "law", "fresh"):
            assert getattr(sections["own"], name) == getattr(expected.own, name)
        assert sections["generator"].mapping == expected.generator.mapping


def test_the_paper_and_plain_have_nothing_that_goes_beyond_the_paper():
    beyond = {"components": 1, "fresh": 0.0, "code_rate": 0.0, "shared_rate": 0.0, "apart": 1.0, "mapping": 0}
    for preset in ("paper", "plain"):
        for dim in (2, 8):
            assert beyond.items() <= presets.settings(preset=preset, latent_dim=dim).flat().items()
