"""A search for settings: bad trials stop early, the best can be trained again, and no trial is lost."""

import csv
import json
import shlex
import signal
import statistics
import subprocess
import sys
import time

import numpy as np
import pytest

from neurosql import app, cli, presets
from neurosql import evaluate as evaluation
from neurosql import run as runs
from neurosql.app import trials as searching
from neurosql.errors import InputError
from neurosql.settings import METHODS, search
from neurosql.settings.ranges import Choices, Span

pytest.importorskip("optuna", reason="needs Optuna: the extra tune is not installed")

EPOCHS = 10
SMALL = {
    "epochs": EPOCHS,
    "width": 8,
    "validate_every": 1,
    "validate_on": 32,
    "batch_size": 32,
    "validation_share": 0.3,
}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def source(digits, tmp_path_factory):
    """120 digits of 8 x 8 pixels, with labels, in a file."""
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(path, images=digits[0][:120], labels=digits[1][:120])
    return str(path)


def settings(method="neurosql", **own):
    return presets.settings(method, **SMALL | own)


def outcome(done):
    """What a search is about: settings and values, in their order, without times."""
    return [(trial.state, trial.settings, trial.value, trial.epochs, trial.losses) for trial in done.trials]


@pytest.fixture(scope="module")
def found(source, tmp_path_factory):
    """A search among learning rates of which some are far too low."""
    out = tmp_path_factory.mktemp("search") / "out"
    return app.tune(source, settings(), ["learning_rate=1e-7:1e-2:log", "momentum"], out, trials=12)


def test_bad_trials_are_stopped_early_and_only_they(found, source, tmp_path):
    states = [trial.state for trial in found.trials]
    assert states.count("pruned") >= 3 and states.count("done") >= searching.LEAST
    assert states[: searching.LEAST] == ["done"] * searching.LEAST
    for number, trial in enumerate(found.trials):
        last = max(trial.losses)
        earlier = [other.losses[last] for other in found.trials[:number] if other.state == "done"]
        if trial.state == "pruned":
            assert last == trial.epochs < EPOCHS and min(trial.losses.values()) > statistics.median(earlier)
        else:
            assert trial.epochs == EPOCHS and trial.value == min(trial.losses.values())
    # Without pruning, the first trials are the same, and all go on to the end.
    words = ["learning_rate=1e-7:1e-2:log", "momentum"]
    whole = app.tune(source, settings(), words, tmp_path / "whole", trials=searching.LEAST + 2, prune=False)
    assert [trial.epochs for trial in whole.trials] == [EPOCHS] * (searching.LEAST + 2)
    first = slice(searching.LEAST)
    assert [t.value for t in whole.trials[first]] == [t.value for t in found.trials[first]]


def test_the_best_settings_trained_again_give_the_same_loss(found, tmp_path, capsys):
    program, *arguments = shlex.split(found.command)
    assert program == "neurosql" and cli.main([*arguments, "--out", str(tmp_path / "run")]) == 0
    lines = (tmp_path / "run" / "history.jsonl").read_text("utf-8").splitlines()
    losses = [figures["heldout_loss"] for figures in map(json.loads, lines) if "heldout_loss" in figures]
    assert min(losses) == found.best.value == min(t.value for t in found.trials if t.value is not None)


def test_the_table_and_the_page_have_every_trial(found):
    with (found.folder / "trials.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [row["state"] for row in table] == [trial.state for trial in found.trials]
    assert [float(row["learning_rate"]) for row in table] == [t.settings["learning_rate"] for t in found.trials]
    assert [float(row["value"]) if row["value"] else None for row in table] == [t.value for t in found.trials]
    page = (found.folder / "search.html").read_text("utf-8")
    assert page.count("<tr>") == 1 + len(found.trials) and page.count("data:image/png") == 2
    assert shlex.split(found.command)[2] in page
    # Rates over five orders of magnitude matter more than the momentum.
    assert list(found.importance) == ["learning_rate", "momentum"]
    assert sum(found.importance.values()) == pytest.approx(1)


def command(source, out, *more):
    return [sys.executable, "-m", "neurosql", "tune", source, "learning_rate", "--out", str(out), *FLAGS, *more]


def wait_for(out, count):
    """Wait until a search has begun that many trials."""
    table, deadline = out / searching.JOURNAL, time.monotonic() + 120
    while not (table.is_file() and table.read_bytes().count(b'"worker"') >= count):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_killed_search_continues_to_what_it_would_have_been(source, tmp_path):
    out, most = tmp_path / "killed", 7
    process = subprocess.Popen(command(source, out, "--trials", str(most)), stdout=subprocess.DEVNULL)
    wait_for(out, 3)
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    # A line that was not written in full is no obstacle.
    with (out / searching.JOURNAL).open("ab") as file:
        file.write(b'{"op_code":')
    done = app.tune(source, settings(), ["learning_rate"], out, trials=most)
    whole = app.tune(source, settings(), ["learning_rate"], tmp_path / "whole", trials=most)
    assert outcome(done) == outcome(whole) and len(done.trials) == most
    # It is finished: the same call adds nothing, and one that wants more goes on.
    assert outcome(app.tune(source, settings(), ["learning_rate"], out, trials=most)) == outcome(whole)
    assert len(app.tune(source, settings(), ["learning_rate"], out, trials=most + 1).trials) == most + 1


def test_processes_that_share_a_search_lose_no_trial_and_add_none(source, tmp_path):
    out, most = tmp_path / "shared", 9
    other = subprocess.Popen(command(source, out, "--trials", str(most)), stdout=subprocess.DEVNULL)
    wait_for(out, 1)
    app.tune(source, settings(), ["learning_rate"], out, trials=most)
    assert other.wait(timeout=300) == 0
    spec = searching.Spec.from_record(json.loads((out / searching.SPEC).read_text("utf-8")))
    ended = searching.Storage(out, spec).finished()
    assert len(ended) == most and len({trial.params["learning_rate"] for trial in ended}) == most
    assert all(trial.user_attrs["state"] in ("done", "pruned") for trial in ended)
    # Each did some of them, and nobody's lock stays behind.
    assert len({trial.user_attrs["worker"] for trial in ended}) == 2
    assert not list((out / searching.WORKERS).iterdir())


def test_jobs_are_processes_of_their_own(source, tmp_path, capfd):
    arguments = command(source, tmp_path / "out", "--trials", "3", "--jobs", "2")[3:]
    assert cli.main(arguments) == 0
    said = capfd.readouterr().out
    assert "trials     3 done" in said and "next       OMP_NUM_THREADS=1 neurosql train" in said
    # A process that fails says why.
    broken = [*command(source, tmp_path / "bad", "--trials", "1", "--jobs", "2")[3:], "--metric", "lpips paired-train"]
    assert cli.main(broken) == 2
    assert "the score 'lpips paired-train' can't be computed" in capfd.readouterr().err


def test_ctrl_c_gives_the_trial_back(source, tmp_path):
    out = tmp_path / "out"
    more = ["--epochs", "100000", "--patience", "0", "--trials", "2"]
    process = subprocess.Popen(command(source, out, *more), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for(out, 1)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert b"run the same command again to continue" in process.communicate(timeout=60)[1]
    assert process.returncode == cli.STOPPED
    spec = searching.Spec.from_record(json.loads((out / searching.SPEC).read_text("utf-8")))
    storage = searching.Storage(out, spec)
    states = [trial.state.name for trial in storage.study.get_trials(deepcopy=False)]
    assert sorted(states) == ["FAIL", "WAITING"]
    first, again = (trial.system_attrs.get("fixed_params") for trial in storage.study.get_trials(deepcopy=False))
    assert first is None and again == storage.study.get_trials(deepcopy=False)[0].params


def test_the_test_part_is_never_seen_and_scores_are_those_of_the_validation_part(source, tmp_path):
    chosen = settings(epochs=2)
    metric = "kid pixels sampled"
    done = app.tune(source, chosen, ["momentum"], tmp_path / "out", trials=2, metric=metric, samples=64)
    spec = searching.Spec.from_record(json.loads((tmp_path / "out" / searching.SPEC).read_text("utf-8")))
    images = spec.images()
    assert images.test is None and searching.read(source, spec.how, chosen).test is not None
    run = runs.train(images, search.chosen(chosen, done.best.settings))
    options = evaluation.Options(samples=64)
    score = evaluation.evaluate(run, images.take(run.index), images.validation, options).find("kid", of="pixels")
    assert score.value == done.best.value and score.n_real <= len(images.validation)
    assert all(trial.state == "done" for trial in done.trials)


@pytest.mark.parametrize("method", METHODS.names())
def test_every_method_can_be_tuned(method, source, tmp_path):
    metric = "heldout_loss" if searching.validates(method) else "kid pixels sampled"
    done = app.tune(source, settings(method, epochs=1), [], tmp_path, trials=2, metric=metric, samples=32)
    assert [trial.state for trial in done.trials] == ["done"] * 2
    assert done.trials[0].settings.keys() == done.trials[1].settings.keys() > {"learning_rate"}
    assert f"--method {method}" in done.command or method == "neurosql"


@pytest.mark.parametrize("method", METHODS.names())
def test_declared_ranges_hold_the_default_and_are_of_their_settings(method):
    chosen, declared = presets.settings(method), METHODS[method].search
    assert declared and search.space(chosen, list(declared)) == dict(declared)
    for name, one in search.space(chosen, [*search.SHARED]).items():
        value = chosen.flat()[name]
        inside = value in one.values if isinstance(one, Choices) else one.low <= (value or one.low) <= one.high
        assert inside or value in (None, 0, 0.0, "auto"), (name, value)
        assert isinstance(one, Choices) or search.whole(chosen, name) == (name in ("latent_dim", "mapping"))


def test_words_become_ranges():
    chosen = presets.settings()
    words = ["fresh=0:2", "code-rate=1e-3:0.3:log", "every=1,2,4", "match", "anneal", "width=none,16", "latent_dim"]
    assert search.space(chosen, words) == {
        "fresh": Span(0, 2),
        "code_rate": Span(1e-3, 0.3, log=True),
        "every": Choices((1, 2, 4)),
        "match": Choices(("cost", "codes")),
        "anneal": Choices((False, True)),
        "width": Choices((None, 16)),
        "latent_dim": Span(2, 64, log=True),
    }
    other = search.chosen(presets.settings(generator="resnet", taper=False), {"generator": "convnet", "momentum": 0.5})
    assert (other.generator.generator, other.quantile.momentum) == ("convnet", 0.5)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["momentun"], "no setting 'momentun' to search: did you mean momentum"),
        (["learning_rat"], "did you mean learning_rate"),
        (["xyzzy"], "`neurosql train --help` lists the settings"),
        (["beta"], "neurosql has no setting 'beta'"),
        (["seed=1,2"], "'seed' can't be searched"),
        (["momentum", "momentum=0.1:1"], "named twice"),
        (["momentum=0:2"], "momentum must be in (0, 1], got 0"),
        (["momentum=1:0.1"], "a range must rise, got 1 to 0.1"),
        (["momentum=0:1:log"], "must begin above 0, got 0"),
        (["momentum=a:b"], "must be numbers, got 'a:b'"),
        (["every=1.5:3"], "must be whole numbers, got '1.5:3'"),
        (["momentum=0.1:0.5:cubic"], "give LOW:HIGH, LOW:HIGH:log or A,B,C"),
        (["start=pca:random"], "give LOW:HIGH, LOW:HIGH:log or A,B,C"),
        (["start=pca,pci"], "'start' can't be 'pci': it must be pca or scores or random"),
        (["anneal=yes,no"], "'anneal' can't be 'yes': it must be true or false"),
        (["momentum=0.5"], "needs two values or more, got '0.5'"),
        (["shared_rate"], "has no range of its own: give one, such as shared_rate=LOW:HIGH"),
        (["cost"], "'cost' changes what the held-out loss is"),
    ],
)
def test_what_can_not_be_searched_is_refused(words, sentence, source, tmp_path):
    with pytest.raises(InputError) as error:
        app.tune(source, settings(), words, tmp_path / "out")
    assert sentence in str(error.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--metric", "kid pixel sampled"], "did you mean 'kid pixels sampled'"),
        (["--metric", "seconds"], "metric must be heldout_loss or a score"),
        (["--method", "gan"], "gan has no held-out loss: give --metric"),
        (["--method", "gan", "--metric", "kid pixels sampled", "--prune", "True"], "leave out --prune"),
        (["--trials", "0"], "trials must be at least 1, got 0"),
        (["--jobs", "-1"], "jobs must be at least 1, got -1"),
        (["--seconds", "0"], "seconds must be positive, got 0"),
        (["--validation-share", "0"], "a search needs samples for validation"),
    ],
)
def test_bad_options_give_one_sentence(options, sentence, source, tmp_path, capsys):
    assert cli.main(["tune", source, "--out", str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_another_search_is_not_joined(found, source, tmp_path):
    words = ["learning_rate=1e-7:1e-2:log", "momentum"]
    for changed, what in (
        ({"words": ["momentum"]}, "ranges"),
        ({"settings": settings(epochs=3)}, "settings"),
        ({"metric": "kid pixels sampled", "prune": True}, "metric"),
    ):
        arguments = {"settings": settings(), "words": words} | changed
        with pytest.raises(InputError, match=f"holds a search with other {what}: choose another folder"):
            app.tune(source, out=found.folder, trials=1, **arguments)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match="not empty and no search"):
        app.tune(source, settings(), words, tmp_path)


def test_settings_that_do_not_go_together_are_trials_that_were_refused(source, tmp_path):
    chosen = settings(epochs=1)
    done = app.tune(source, chosen, ["match=cost,codes"], tmp_path / "some", trials=6)
    refused = [trial for trial in done.trials if trial.state == "refused"]
    assert refused and all("needs codes that move" in trial.reason for trial in refused)
    assert done.best.settings == {"match": "cost"} and {t.settings["match"] for t in refused} == {"codes"}
    with pytest.raises(InputError, match=r"no trial of .* could be judged: training diverged"):
        app.tune(source, chosen, ["learning_rate=1e30:1e31"], tmp_path / "none", trials=1)


def test_the_time_limit_is_kept(source, tmp_path):
    began = time.monotonic()
    done = app.tune(source, settings(epochs=1), [], tmp_path, trials=10_000, seconds=1)
    assert 1 <= len(done.trials) < 10_000 and time.monotonic() - began < 60


def test_help_imports_neither_torch_nor_optuna():
    program = (
        "import sys; from neurosql import cli; cli.main(['--help'])\n"
        "try: cli.main(['tune', '--help'])\nexcept SystemExit: pass\n"
        "print({'torch', 'optuna', 'distributed'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert run.stdout.splitlines()[-1] == "set()", run.stderr


def test_without_the_extra_it_says_what_to_install(source, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.main(["tune", source, "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'neurosql-torch[tune]'" in capsys.readouterr().err
