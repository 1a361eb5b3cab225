"""Run folders of strangers: refused in one sentence, or used without harm. `benchmarks/fuzz_runs.py` tries far more."""

import json
import os
import resource
import shutil
import sys
import time

import numpy as np
import pytest
from crashes import tiny_images
from fuzz_runs import Fuzzer

from neurosql import InputError, app, networks, open_run, presets, recorded
from neurosql import run as runs
from neurosql.app.sampling import folder_names
from neurosql.checkpoint import CODES, CONFIG, MODEL, USED, RunFolder
from neurosql.cli import main
from neurosql.data import from_array
from neurosql.recorded import reading_of
from neurosql.report import canvas, pictures
from neurosql.settings import METHODS, Sampling, Settings
from neurosql.settings.checks import check_types
from neurosql.visible import in_one_line, visible

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs links, pipes and limits")
TINY = dict(generator="mlp", width=8, epochs=1, batch_size=20, validation_share=0.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    assert main(["train", str(tiny_images(folder / "waves.npz")), "--out", str(folder / "run"), *FLAGS]) == 0
    return folder / "run"


FLAGS = ["--generator", "mlp", "--width", "8", "--epochs", "1", "--conditional", "--preset", "plain"]


@pytest.fixture
def run(base, tmp_path):
    return shutil.copytree(base, tmp_path / "run")


def alter(run, change):
    config = json.loads((run / CONFIG).read_text())
    change(config)
    (run / CONFIG).write_text(json.dumps(config))


@pytest.mark.filterwarnings("ignore")
def test_mutated_folders_are_refused_in_one_sentence_or_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    fuzzer = Fuzzer(tmp_path, 7, ["neurosql", "vae"], drawn=0)
    found = [fuzzer.run(case) for case in range(200)]
    assert not [bad for bad in found if bad is not None]
    assert min(fuzzer.outcomes.values()) > 30


@pytest.mark.parametrize("size", [{"width": 9000}, {"mapping": 900, "mapping_width": 900}, {"latent_dim": 10**9}])
def test_sizes_are_compared_with_the_weights_before_a_network_is_built(run, size):
    alter(run, lambda config: config["settings"]["generator"].update(size))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(InputError, match="larger than the weights"):
        open_run(run)
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # kilobytes


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("ddpm", {"noise_steps": 10**12}),
        ("imle", {"pool": 10**12}),
        ("rae", {"components": 10**12}),
        ("neurosql", {"components": 10**12}),
        ("neurosql", {"final_components": 10**12}),
        ("neurosql", {"fresh_batch": 10**12}),
    ],
)
def test_settings_that_size_tables_are_bounded(method, setting):
    """`settings_of` checks those of a run before anything is built."""
    with pytest.raises(InputError, match=f"{next(iter(setting))} must be at most"):
        presets.settings(method, **setting)


@pytest.mark.parametrize("sampling", [{"components": 10**9}, {"steps": 10**9}])
def test_numbers_of_a_sampler_are_bounded(sampling):
    method, sampler = ("neurosql", "mixture") if "components" in sampling else ("ddpm", "ddim")
    with pytest.raises(InputError, match="must be at most"):
        METHODS[method].sampling(Sampling(sampler, **sampling))


@pytest.mark.parametrize("settings", [{"image_size": 4000}, {"image_size": 10**9}])
def test_images_are_not_read_in_a_size_that_nothing_was_trained_on(run, settings):
    alter(run, lambda config: config["data"]["settings"].update(settings))
    with pytest.raises(InputError, match="image_size"):
        reading_of(RunFolder.existing(run))


def test_a_network_that_can_not_be_trained_here_is_not_built_on_resume(run, monkeypatch):
    """Without a checkpoint there are no weights to compare its size with."""
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    for name in (MODEL, CODES, USED):
        (run / name).unlink()
    alter(run, lambda config: config["settings"]["generator"].update({"width": 60_000}))
    monkeypatch.setenv("NEUROSQL_MEMORY", "4G")
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    assert main(["resume", str(run)]) == 2
    assert time.process_time() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # kilobytes


def test_samples_of_any_shape_are_estimated_before_they_are_made():
    """A few weights can make images of many pixels; the estimate itself makes none."""
    from neurosql import estimate
    from neurosql.methods.base import Task

    def held(shape, at_once):
        chosen = presets.settings(preset="plain", generator="convnet", width=8).resolve("image")
        return estimate.decoding(Task(chosen, shape).generator(), at_once)

    small = held((1, 32, 32), 1)
    assert held((1, 32, 32), 64) == 64 * small
    assert held((1, 256, 256), 1) == 64 * small
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert held((3, 256, 256), 10**6) > 10**12
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # kilobytes


def test_a_bound_refuses_larger_networks_and_leaves_others_alone():
    def build(width):
        return lambda: networks.nn.Linear(width, width)

    def fill(network, random):
        networks.fill(network, random)

    with networks.at_most(2 * networks.LEAST_BOUND):
        assert networks.made(build(4096), fill, 0).weight.shape == (4096, 4096)
        with pytest.raises(InputError):
            networks.made(build(6000), fill, 0)
    assert networks.outline(build(6000)).weight.shape == (6000, 6000)


def test_a_flipped_bit_does_not_go_unnoticed(run):
    content = bytearray((run / MODEL).read_bytes())
    content[-5] ^= 1
    (run / MODEL).write_bytes(content)
    with pytest.raises(InputError, match="not what was written"):
        open_run(run)


@pytest.mark.parametrize("command", ["sample", "codes", "report", "info", "resume"])
def test_nothing_is_written_or_read_outside(command, run, tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.png").write_bytes(b"secret")
    (run / "samples.png").unlink()
    for name in ("samples.png", "samples-seed0.png", "codes.csv", ".neurosql-x"):
        (run / name).symlink_to(outside / "secret.png")
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(outside)
    assert main([command, str(run)]) in (0, 2)
    assert [entry.name for entry in outside.iterdir()] == ["secret.png"]
    assert (outside / "secret.png").read_bytes() == b"secret"
    if command == "report":
        assert "is a link that leads out of" in capsys.readouterr().err


@pytest.mark.parametrize("name", [CONFIG, MODEL, "codes.safetensors", "history.jsonl", "used.json", ".lock"])
def test_a_pipe_in_place_of_a_file_does_not_hang(name, run):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for command in ("info", "sample", "report", "resume"):
        assert main([command, str(run)]) in (0, 2)


def test_a_class_is_drawn_as_it_is_called(tmp_path):
    names = [r"$\frac{$", "_hidden", "\x1b[31m", "a\nb", "\udcff", "x" * 10_000]
    images = from_array(np.random.default_rng(0).random((24, 8, 8)), np.array(names * 4))
    for conditional in (False, True):
        run = runs.train(images, Settings.from_flat(TINY | {"conditional": conditional}))
        assert len(pictures.draw_all(run, images.x[run.index], tmp_path)) >= 5
    assert canvas.verbatim("$x$") == r"\$x\$" and canvas.verbatim("_a") == " _a"


def test_names_of_classes_never_lead_out_of_a_folder():
    names = folder_names(
        ["..", "../x", "/etc", "a\0b", "\x1b", "NUL", "con.txt", "é" * 500, "x" * 500, "\udcff", ".", ""]
    )
    assert all(0 < len(os.fsencode(name)) < 140 and name.isprintable() for name in names)
    assert not [n for n in names if "/" in n or n.startswith(".") or n.lower() in ("nul", "con.txt")]
    assert len({name.lower() for name in names}) == len(names)


def test_a_label_never_leads_out_of_the_folder(run, tmp_path):
    alter(run, lambda config: config["data"].update(classes=["../../up", "other"]))
    done = app.sample(run, 2, label="../../up")
    assert done.path.parent == run and done.path.is_file()


def test_names_can_not_control_the_terminal(run, capsys):
    alter(
        run,
        lambda config: config["data"].update(description="\x1b]0;owned\x07\x9b2J\u202e", source="a\nstate finished"),
    )
    assert main(["info", str(run)]) == 0
    out = capsys.readouterr().out
    assert not [letter for letter in out if letter != "\n" and not letter.isprintable()]
    assert r"\x1b]0;owned\x07" in out and "\nstate finished" not in out
    assert visible("plain ünïcode\n") == "plain ünïcode\n" and in_one_line("a\nb") == r"a\nb"


def test_values_are_of_the_kind_that_their_field_says():
    for bad in (
        {"epochs": "3"},
        {"epochs": 2.5},
        {"learning_rate": float("nan")},
        {"learning_rate": [1]},
        {"width": {}},
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            Settings.from_flat(bad)
    check_types(Settings.from_flat({"epochs": np.int64(3), "learning_rate": np.float32(0.1), "width": None}).training)


def test_info_of_a_finished_run_says_so(run, capsys):
    assert main(["info", str(run)]) == 0
    assert "finished after" in capsys.readouterr().out
    assert recorded.state_of(RunFolder(run)) == recorded.FINISHED
