"""The number of threads: the quickest in a trial, as said by the user, and kept when a run is resumed."""

import json

import numpy as np
import pytest
import torch

from neurosql import app, presets, threads
from neurosql.app.observer import Observer
from neurosql.errors import InputError
from neurosql.settings import DataSettings
from neurosql.training import Stopped

SMALL = presets.settings(generator="convnet", width=8, epochs=4, batch_size=16, checkpoint_every=1)
SHAPE = (1, 12, 12)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def digits(tmp_path):
    np.save(tmp_path / "digits.npy", np.random.default_rng(0).random((40, 12, 12), np.float32))
    return str(tmp_path / "digits.npy")


class Steps:
    """Steps that take as long as they are told to, by number of threads, and the clock that they turn."""

    def __init__(self, **seconds):
        self.seconds, self.now = {int(name[1:]): value for name, value in seconds.items()}, 0.0

    def __call__(self):
        self.now += self.seconds[torch.get_num_threads()]

    def clock(self):
        return self.now


@pytest.mark.parametrize(("seconds", "best"), [({"t1": 3, "t2": 2}, 2), ({"t1": 1, "t2": 4}, 1)])
def test_the_quickest_number_wins_and_threads_are_as_before(seconds, best):
    steps = Steps(**seconds)
    trial = threads.race(steps, (1, 2), steps.clock)
    assert trial.quickest == best and trial.seconds == {int(k[1:]): v for k, v in seconds.items()}
    assert str(trial).startswith(f"{best} of 2: ") and torch.get_num_threads() == 2


def test_one_slow_step_decides_nothing():
    steps = Steps(t1=3, t2=2)
    hiccup = iter([0] * 8 + [100] + [0] * 100)
    trial = threads.race(steps, (1, 2), lambda: steps.clock() + next(hiccup))
    assert trial.quickest == 2


def test_a_trial_is_said_and_sets_the_number_within_the_context(monkeypatch):
    monkeypatch.setattr(threads, "race", lambda step, counts: threads.Trial({1: 0.5, 2: 0.7}))
    said = []
    with threads.for_training(SMALL, SHAPE, None, said.append):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    assert said == ["threads    1 of 2: a step takes 500 ms with 1, 700 ms with 2"]


def test_a_real_trial_times_both_numbers_and_leaves_the_generator_s_seed_alone():
    state = torch.get_rng_state()
    trial = threads.race(threads.step_of(SMALL, SHAPE), (1, 2))
    assert set(trial.seconds) == {1, 2} and min(trial.seconds.values()) > 0
    assert torch.equal(torch.get_rng_state(), state)


def test_what_the_user_says_is_not_tried(monkeypatch):
    monkeypatch.setattr(threads, "race", lambda *_: pytest.fail("tried"))
    with threads.for_training(SMALL, SHAPE, 1, pytest.fail):
        assert torch.get_num_threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with threads.for_training(SMALL, SHAPE, None, pytest.fail):
        assert torch.get_num_threads() == 2
    with pytest.raises(InputError, match="threads must be at least 1, got 0"):
        threads.for_training(SMALL, SHAPE, 0, pytest.fail).__enter__()


def test_a_run_is_resumed_with_the_threads_that_it_began_with(digits, tmp_path):
    class Stopping(Observer):
        def epoch(self, figures):
            if figures["epoch"] == 2:
                raise KeyboardInterrupt

    class Listening(Observer):
        def __init__(self):
            self.said = []

        def say(self, line):
            self.said.append(line)

        def epoch(self, figures):
            self.said.append(f"{torch.get_num_threads()} threads")

    how = DataSettings(cache=False)
    with pytest.raises((KeyboardInterrupt, Stopped)):
        app.train(digits, SMALL, tmp_path / "run", how, Stopping(), 1)
    assert json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))["threads"] == 1
    heard = Listening()
    resumed = app.resume(tmp_path / "run", observer=heard)
    assert "1 threads" in heard.said and not any("other circumstances" in line for line in heard.said)
    assert torch.get_num_threads() == 2
    whole = app.train(digits, SMALL, tmp_path / "whole", how, use=1)
    ours, theirs = whole.run.method.state(), resumed.run.method.state()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
