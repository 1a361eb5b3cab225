"""Run folders: one writer at a time, nothing half-written, and beginnings that can be begun again."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from neurosql import InputError, children, files, locks, recorded
from neurosql import run as runs
from neurosql.app import training
from neurosql.checkpoint import CHECKPOINT, CONFIG, LOCK, MODEL, SPLIT, RunFolder
from neurosql.cli import main
from neurosql.data import from_array
from neurosql.settings import Settings
from neurosql.signals import asked_to_stop
from neurosql.training import Stopped, Trainer

TINY = dict(generator="mlp", width=8, epochs=4, batch_size=20, every=2, validate_every=2, checkpoint_every=2)
FLAGS = ["--generator", "mlp", "--width", "8", "--epochs", "2", "--every", "2"]
HOLD = """
import pathlib, sys
from neurosql import locks
with locks.held(pathlib.Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def images(digits):
    return from_array(digits[0][:40], digits[1][:40])


@pytest.fixture(scope="module")
def source(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(path, images=digits[0][:40], labels=digits[1][:40])
    return str(path)


@pytest.fixture
def other():
    """A function that has another process hold a lock; returns that process."""
    started = []

    def hold(path):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(children.command("-c", HOLD, str(path)), env=children.environment(), **pipes))
        assert started[-1].stdout.readline() == "1\n"
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def train(images, out, **settings):
    return runs.train(images, Settings.from_flat(TINY | settings), out)


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stop(images, path, **settings):
    """Train, and stop after the first epoch."""
    with pytest.raises(Stopped):
        heard = lambda figures: os.kill(os.getpid(), signal.SIGTERM)  # noqa: E731
        runs.train(images, Settings.from_flat(TINY | settings), path, hear=heard)


def test_a_run_has_one_writer_and_others_are_told_who_it_is(images, source, tmp_path, other, capsys):
    path = tmp_path / "run"
    stop(images, path)
    holder = other(path / LOCK)
    before = files_of(path)
    for command in (["resume", str(path)], ["report", str(path)], ["evaluate", str(path)]):
        assert main(command) == 2
        assert f"{path} is in use by process {holder.pid} on " in capsys.readouterr().err
    assert files_of(path) == before
    assert main(["info", str(path)]) == 0
    assert f"process {holder.pid}" in capsys.readouterr().out
    (tmp_path / "new").mkdir()
    other(tmp_path / "new" / LOCK)
    assert main(["train", source, "--out", str(tmp_path / "new"), *FLAGS]) == 2
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == [LOCK]


def test_a_lock_vanishes_with_its_owner(tmp_path, other):
    path = tmp_path / LOCK
    killed = other(path)
    with pytest.raises(locks.Held, match=f"process {killed.pid} on .* since 2"), locks.held(path):
        pass
    killed.kill()
    killed.wait()
    assert path.exists() and locks.holder(path) is None and RunFolder(tmp_path).was_left()
    with locks.held(path), locks.held(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


def test_two_threads_do_not_share_a_lock(tmp_path):
    found = []

    def attempt():
        try:
            with locks.held(tmp_path / LOCK):
                found.append("held")
        except locks.Held:
            found.append("refused")

    with locks.held(tmp_path / LOCK):
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    attempt()
    assert found == ["refused", "held"]


def test_a_lock_file_is_never_somebody_else_s_file(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for make in (os.symlink, os.link):
        folder = tmp_path / make.__name__
        folder.mkdir()
        make(mine, folder / LOCK)
        with pytest.raises(InputError), locks.held(folder / LOCK):
            pass
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(InputError), locks.held(tmp_path / LOCK):
        pass
    assert mine.read_text() == "mine"


def test_new_files_honour_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        files.replace(tmp_path / "private", b"x")
        os.umask(0o002)
        files.replace(tmp_path / "shared", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o664


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path):
    files.replace(tmp_path / ("x" * 255), b"content")
    assert (tmp_path / ("x" * 255)).read_bytes() == b"content"


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_stays(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "checkpoints").mkdir()
    for place in (folder.path, folder.path / "checkpoints"):
        (place / f"{files.TEMPORARY}dead").write_bytes(b"half")
    path, handle = files._unfinished(folder.path)
    with folder.writing():
        assert {entry.name for entry in folder.path.iterdir()} == {LOCK, "checkpoints", path.name}
        assert not list((folder.path / "checkpoints").iterdir())
    os.close(handle)


@pytest.mark.parametrize("there", [[], [SPLIT], [SPLIT, CONFIG], [SPLIT, CONFIG, "history.jsonl"]])
def test_a_run_killed_before_its_first_checkpoint_begins_again(there, images, tmp_path, capsys):
    whole, path = train(images, tmp_path / "whole"), tmp_path / "run"
    train(images, path)
    for file in [file for file in path.rglob("*") if file.is_file() and file.name not in there]:
        file.unlink()
    (path / LOCK).write_text("{}")
    for name in there[1:]:
        (path / name).write_text((path / name).read_text())
    if CONFIG in there:
        assert recorded.state_of(RunFolder(path)) == recorded.INTERRUPTED
        assert main(["info", str(path)]) == 0 and "interrupted after" in capsys.readouterr().out
    else:
        with pytest.raises(InputError, match="interrupted before its settings"):
            runs.resume(path, lambda source, how: images)
    said = []
    again = runs.train(images, Settings.from_flat(TINY), path, say=said.append)
    assert any("starts again" in line for line in said) == bool(there)
    assert (path / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()
    assert len(again.history) == len(whole.history)


def test_train_never_begins_where_something_is_worth_keeping(images, tmp_path):
    stop(images, tmp_path / "run")
    before = files_of(tmp_path / "run")
    with pytest.raises(InputError, match="resume"):
        train(images, tmp_path / "run")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / CONFIG).write_text("{}")
    (tmp_path / "notes" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError):
        train(images, tmp_path / "notes")
    assert files_of(tmp_path / "run") == before and len(files_of(tmp_path / "notes")) == 2


def test_a_run_is_finished_stopped_or_interrupted(images, tmp_path, monkeypatch):
    train(images, tmp_path / "finished")
    stop(images, tmp_path / "stopped")
    update = Trainer._update

    def fatal(self, name, loss):
        if self.step == 7:
            raise MemoryError
        update(self, name, loss)

    monkeypatch.setattr(Trainer, "_update", fatal)
    with pytest.raises(MemoryError):
        train(images, tmp_path / "interrupted")
    for name in ("finished", "stopped", "interrupted"):
        assert recorded.state_of(RunFolder(tmp_path / name)) == name
    # Killed, and not even able to let go of its lock.
    (tmp_path / "stopped" / LOCK).write_text("{}")
    assert recorded.state_of(RunFolder(tmp_path / "stopped")) == "interrupted"


def test_weights_and_codes_of_two_moments_are_not_used_together(images, tmp_path):
    stop(images, tmp_path / "run")
    train(images, tmp_path / "whole")
    (tmp_path / "run" / MODEL).write_bytes((tmp_path / "whole" / MODEL).read_bytes())
    with pytest.raises(InputError, match="interrupted while its model was saved"):
        runs.open_run(tmp_path / "run")
    runs.resume(tmp_path / "run", lambda source, how: images)
    assert runs.open_run(tmp_path / "run").sample(2)[0].shape == (2, 1, 8, 8)


def test_more_training_that_was_killed_at_its_beginning_is_no_run(images, tmp_path):
    """Only the checkpoint knows the model that it goes on from: without the config, there is nothing to resume."""
    begin = runs.Beginning(train(images, None))
    path = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "write_config", lambda self, config: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            runs.train(images, begin.run.settings, path, begin=begin)
    assert (path / CHECKPOINT).exists()
    with pytest.raises(InputError, match="interrupted before"):
        runs.resume(path, lambda source, how: images)
    again = runs.train(images, begin.run.settings, path, begin=begin)
    whole = runs.train(images, begin.run.settings, tmp_path / "whole", begin=begin)
    assert (path / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()
    assert len(again.history) == len(whole.history) == 2 * len(begin.run.history)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_every_polite_signal_asks_and_none_that_is_ignored(number):
    with asked_to_stop() as asked:
        os.kill(os.getpid(), number)
        assert asked()
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with asked_to_stop() as asked:
            os.kill(os.getpid(), number)
            assert not asked()
    finally:
        signal.signal(number, before)


def test_a_second_ctrl_c_while_the_run_is_saved_loses_nothing(images, tmp_path, monkeypatch):
    whole = train(images, tmp_path / "whole")
    fsync = os.fsync
    calls = iter(range(100))

    def interrupted(handle):
        if next(calls) in (4, 5, 6):
            os.kill(os.getpid(), signal.SIGINT)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises((KeyboardInterrupt, Stopped)):
        train(images, tmp_path / "run")
    monkeypatch.undo()
    assert not list((tmp_path / "run").rglob(f"{files.TEMPORARY}*"))
    again = runs.resume(tmp_path / "run", lambda source, how: images)
    assert len(again.history) == len(whole.history)
    assert (tmp_path / "run" / MODEL).read_bytes() == (tmp_path / "whole" / MODEL).read_bytes()


def test_a_page_is_drawn_again_if_the_run_was_killed_before_its_own(source, tmp_path, monkeypatch):
    path = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "finish", lambda *given: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            main(["train", source, "--out", str(path), *FLAGS])
    assert runs.is_finished(RunFolder(path)) and not (path / "report.html").exists()
    assert main(["resume", str(path)]) == 0
    assert {"report.html", "samples.png", "scores.json"} <= {entry.name for entry in path.iterdir()}


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_pictures_are_written_whole_and_not_through_links(source, tmp_path):
    path, mine = tmp_path / "run", tmp_path / "mine.png"
    assert main(["train", source, "--out", str(path), *FLAGS]) == 0
    mine.write_bytes(b"mine")
    (path / "samples-seed0.png").symlink_to(mine)
    assert main(["sample", str(path), "-n", "4"]) == 0
    assert mine.read_bytes() == b"mine" and not (path / "samples-seed0.png").is_symlink()
