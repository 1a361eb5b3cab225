"""Does a run survive whatever kills it? Every file-system call of a run made to fail, and kills at random moments.

    python benchmarks/crashes.py [--kills 200] [--methods neurosql vae ...] [--each 1] [--pictures] [--seed 0]

First, for each method: a small run is struck at every call by which it writes, once for each kind of fault: a kill
before the call, a kill after half of it, a full disk, a full disk after half of it, an I/O error. The same for every
call by which a stopped run is resumed. Then runs are killed at random moments (SIGKILL), again and again until they
finish. With --pictures, runs have pictures and a page, as those of the command line. After each case the run is
resumed: its weights and codes must be bit-equal to those of a run that was left alone, its history must be the same,
and nothing unfinished may be left in its folder.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faults
import numpy as np
import torch

from neurosql import InputError, app, data, presets, recorded
from neurosql import run as runs
from neurosql.checkpoint import CODES, CONFIG, MODEL, RunFolder
from neurosql.data import ImageSet
from neurosql.settings import METHODS, DataSettings, Settings
from neurosql.training import Stopped

TINY = {"generator": "mlp", "width": 8, "epochs": 2, "batch_size": 20, "checkpoint_every": 1, "validate_every": 2}


class Lost(Exception):
    """A run that can't go on, or that goes on to something else."""


class Story:
    """How a run is begun and resumed, and what it must come to.

    `begin(path)` and `resume(path)` train to the end; `reference` is the folder of a run that was left alone.
    """

    def __init__(self, begin: Callable[[Path], Any], resume: Callable[[Path], Any], reference: Path) -> None:
        self.begin, self.resume, self.reference = begin, resume, reference

    def go_on(self, path: Path) -> None:
        """What a user does after a crash: resume or, if there is no run yet, repeat the first command."""
        if (path / CONFIG).exists():
            self.resume(path)
        else:
            self.begin(path)

    def check_before(self, path: Path) -> None:
        """A run that was struck is not called finished, unless its model is whole."""
        if not (path / CONFIG).exists():
            return
        if any("finished" in line for line in app.describe(path)) and not self._same_model(path):
            raise Lost("info calls it finished")

    def check(self, path: Path) -> None:
        """The run has come to what it would have been."""
        if not self._same_model(path):
            raise Lost("other weights or codes")
        if _history(path) != _history(self.reference):
            raise Lost("another history")
        if recorded.state_of(RunFolder(path)) != recorded.FINISHED:
            raise Lost("it is not called finished")
        names = {entry.relative_to(path).as_posix() for entry in path.rglob("*")}
        expected = {entry.relative_to(self.reference).as_posix() for entry in self.reference.rglob("*")}
        if names != expected:
            raise Lost(f"other files: {sorted(names ^ expected)}")

    def _same_model(self, path: Path) -> bool:
        names = (MODEL, CODES)
        return all((path / n).is_file() and (path / n).read_bytes() == (self.reference / n).read_bytes() for n in names)


def _history(path: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "seconds"} for record in RunFolder(path).history()]


def of_arrays(images: ImageSet, settings: Settings, folder: Path) -> Story:
    """A run as `runs.train` writes it, without pictures."""
    story = Story(
        lambda path: runs.train(images, settings, path),
        lambda path: runs.resume(path, lambda source, how: images),
        folder / "reference",
    )
    story.begin(story.reference)
    return story


def of_files(source: Path, settings: Settings, folder: Path) -> Story:
    """A run as the command line writes it, with pictures and a page."""
    how = DataSettings(cache=False)
    story = Story(
        lambda path: app.train(str(source), settings, path, how), lambda path: app.resume(path), folder / "reference"
    )
    in_a_child(lambda: story.begin(story.reference))
    return story


def stopped(story: Story, images: ImageSet, settings: Settings, path: Path) -> None:
    """A run that was asked to stop after its first epoch."""
    with contextlib.suppress(Stopped):
        runs.train(images, settings, path, hear=lambda figures: os.kill(os.getpid(), signal.SIGTERM))


def struck(
    story: Story, folder: Path, before: Path | None = None, kinds: tuple[str, ...] = faults.KINDS, each: int = 1
) -> Iterator[tuple[str, str]]:
    """Strike a run, or the resumption of the run `before`, at every `each`-th call; yields each case and what was lost.

    The words on what was lost are empty if nothing was.
    """
    for number in itertools.count(0, each):
        last = True
        for kind in kinds:
            path = folder / "struck"
            shutil.rmtree(path, ignore_errors=True)
            if before is not None:
                shutil.copytree(before, path)
            with faults.injected(kind, number) as faulty:
                story.begin(path) if before is None else story.resume(path)
            if number >= len(faulty.calls):
                continue
            last = False
            name = f"{kind} at call {number} ({faulty.calls[number]})" + ("" if before is None else " of a resumption")
            yield name, _survived(story, path)
        if last:
            return


def _survived(story: Story, path: Path) -> str:
    try:
        story.check_before(path)
        with faults.injected():
            story.go_on(path)
        story.check(path)
    except (Lost, InputError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def in_a_child(work: Callable[[], Any], kill_after: float | None = None) -> int:
    """Do something in a forked process, which is killed after some seconds; its exit code, -9 if it was killed."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException), open(os.devnull, "w") as nowhere:
            with contextlib.redirect_stdout(nowhere):
                work()
            code = 0
        os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(story: Story, folder: Path, wanted: int, chance: random.Random) -> Iterator[tuple[str, str, int]]:
    """Kill runs at random moments until `wanted` kills have hit; yields each run, what was lost, and its kills."""
    path = folder / "killed"
    began = time.perf_counter()
    in_a_child(lambda: story.begin(path))
    usual = time.perf_counter() - began
    done = 0
    while done < wanted:
        shutil.rmtree(path, ignore_errors=True)
        hits, lost = 0, ""
        for _ in range(chance.randint(1, 5)):
            code = in_a_child(lambda: story.go_on(path), chance.uniform(0, 1.1 * usual))
            hits += code == -signal.SIGKILL
            if code not in (0, -signal.SIGKILL):
                lost = f"a resumption failed with exit code {code}"
        if code := in_a_child(lambda: story.go_on(path)):
            lost = f"the last resumption failed with exit code {code}"
        if not lost:
            try:
                story.check(path)
            except (Lost, InputError, OSError) as error:
                lost = f"{type(error).__name__}: {error}"
        done += hits
        yield f"{hits} kills", lost, hits


def tiny_images(path: Path) -> Path:
    """A file of 40 smooth images of two classes."""
    chance = np.random.default_rng(0)
    across = np.linspace(0, 1, 8)
    waves = np.sin(chance.uniform(1, 6, (40, 1, 1)) * across[:, None] + chance.uniform(1, 6, (40, 1, 1)) * across)
    np.savez(path, images=((waves + 1) / 2).astype(np.float32), labels=np.arange(40) % 2)
    return path


def main() -> int:
    """Strike and kill, method by method; the exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="kills at random moments, over all methods")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="methods to go through")
    parser.add_argument("--each", type=int, default=1, help="strike at every call of that number only")
    parser.add_argument(
        "--pictures", action="store_true", help="strike and kill runs with pictures and pages: takes hours"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    chance = random.Random(chosen.seed)
    total: dict[str, int] = {"calls struck": 0, "runs killed": 0, "kills": 0, "lost": 0}

    def count(method: str, what: str, name: str, lost: str, hits: int = 0) -> None:
        total[what] += 1
        total["kills"] += hits
        if lost:
            total["lost"] += 1
            print(f"LOST       {method}: {name}: {lost}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = tiny_images(folder / "waves.npz")
        images = data.load(str(source))
        for number, method in enumerate(chosen.methods):
            arena = folder / method
            settings = presets.settings(method, **TINY)
            plain = of_arrays(images, settings, arena / "plain")
            stopped(plain, images, settings, arena / "stopped")
            for before in (None, arena / "stopped"):
                for what, lost in struck(plain, arena, before, each=chosen.each):
                    count(method, "calls struck", what, lost)
            print(f"{method:<10} {json.dumps(total)}", flush=True)
            story = of_files(source, settings, arena) if chosen.pictures else plain
            share = chosen.kills // len(chosen.methods) + (number < chosen.kills % len(chosen.methods))
            for what, lost, hits in killed(story, arena, share, chance):
                count(method, "runs killed", what, lost, hits)
            if chosen.pictures:
                for what, lost in struck(story, arena, each=chosen.each):
                    count(method, "calls struck", what, lost)
            shutil.rmtree(arena)
            print(f"{method:<10} {json.dumps(total)}", flush=True)
    return int(total["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
