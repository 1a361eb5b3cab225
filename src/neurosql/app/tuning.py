"""Search for the best settings of a method: trials on one validation part, kept in a folder that others may join."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from neurosql import children, files, intake
from neurosql.app.observer import Observer
from neurosql.app.training import QUIET, stem_of
from neurosql.app.trials import DONE, HELDOUT, JOURNAL, OPEN, SPEC, Spec, Storage, library, validates, work
from neurosql.data import catalogue, check
from neurosql.errors import InputError
from neurosql.modality import Modality
from neurosql.report import again
from neurosql.report import search as page
from neurosql.settings import DataSettings, Settings, as_flags, search
from neurosql.training import Stopped

TABLE = "trials.csv"
POLL = 0.5
UNCOMPARABLE = ("cost", "likelihood", "predict")
"""Settings that change what the held-out loss is."""


@dataclass(frozen=True)
class Trial:
    """One training of a search."""

    number: int
    state: str
    """done, pruned, diverged, refused or under way."""
    value: float | None
    """The metric; None unless it is done."""
    settings: dict[str, Any]
    """What was searched, by field name."""
    epochs: int
    seconds: float
    reason: str = ""
    losses: dict[int, float] = field(default_factory=dict)
    """Held-out losses by epoch, as far as they decided about pruning."""


@dataclass(frozen=True)
class Tuned:
    """What came of a search."""

    folder: Path
    trials: list[Trial]
    best: Trial
    command: str
    """The shell command that trains with the best settings."""
    importance: dict[str, float]
    """Share of the differences between trials that each setting explains; empty if there are too few trials."""
    written: list[Path]


def tune(
    source: str,
    settings: Settings,
    words: Sequence[str] = (),
    out: str | Path | None = None,
    how: DataSettings | None = None,
    *,
    trials: int = 50,
    seconds: float | None = None,
    jobs: int = 1,
    metric: str = HELDOUT,
    prune: bool | None = None,
    samples: int = 1024,
    seed: int = 0,
    observer: Observer = QUIET,
) -> Tuned:
    """Search for the settings with the best metric on the validation part of a source; the test part is never used.

    `words` name what is searched, each with its range if it has none: `momentum`, `fresh=0:2`, `beta=1e-4:0.1:log`,
    `every=1,2,4`. Without words, the method's own ranges are searched. `trials` counts those that the folder holds
    already. Raises `Stopped` after Ctrl-C: the same call continues.
    """
    library()
    spec = _spec(source, settings, words, how or DataSettings(), metric, prune, samples, seed)
    for name, value in (("trials", trials), ("jobs", jobs)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    if seconds is not None and not seconds > 0:
        raise InputError(f"seconds must be positive, got {seconds}")
    images = spec.images()
    observer.say(check.brief(images))
    folder = Path(out) if out else Path("runs") / f"tune-{stem_of(source)}-{settings.method}"
    _join(spec, folder)
    for name, one in spec.space.items():
        observer.say(f"search     {name.replace('_', '-')}: {one}")
    storage = Storage(folder, spec)
    limit = math.inf if seconds is None else seconds
    with _Bar(trials, storage, observer.progress) as bar:
        if jobs == 1:
            work(spec, folder, trials, time.monotonic() + limit, lambda _: bar.show())
        else:
            _processes(folder, trials, limit, jobs, bar)
    return _finished(spec, folder, storage, images.modality, jobs)


def _spec(
    source: str,
    settings: Settings,
    words: Sequence[str],
    how: DataSettings,
    metric: str,
    prune: bool | None,
    samples: int,
    seed: int,
) -> Spec:
    """What to search, checked."""
    space = search.space(settings, words)
    has_loss = validates(settings.method)
    # A low held-out loss does not promise good samples: only the loss itself is a reason to stop a trial.
    pruned = (metric == HELDOUT and has_loss) if prune is None else prune
    spec = Spec(catalogue.absolute(source), how, settings, space, metric, pruned, samples, seed)
    if (metric == HELDOUT or pruned) and not has_loss:
        instead = "give --metric 'kid pixels sampled', say" if metric == HELDOUT else "leave out --prune"
        raise InputError(f"{settings.method} has no held-out loss: {instead}")
    if metric == HELDOUT and (odd := [name for name in UNCOMPARABLE if name in space]):
        if words:
            raise InputError(f"{odd[0]!r} changes what the held-out loss is: search it with the metric of a score")
        for name in odd:
            del space[name]
    if spec.column is not None and samples < 10:
        raise InputError(f"samples must be at least 10, got {samples}")
    return spec


def _join(spec: Spec, folder: Path) -> None:
    """Begin a search in a new folder, or join the one in it, if it is the same."""
    if folder.exists() and not (folder / SPEC).is_file() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty and no search: choose another folder with --out")
    folder.mkdir(parents=True, exist_ok=True)
    # As JSON, which is what the file has: tuples are lists there.
    record = json.loads(json.dumps(spec.record()))
    if not (folder / SPEC).is_file():
        files.replace(folder / SPEC, json.dumps(record, indent=1).encode())
        return
    try:
        there = json.loads(intake.read(folder / SPEC, 2**24))
        odd = sorted(name for name in record if record[name] != there[name])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{folder / SPEC} can't be read: choose another folder with --out") from None
    if odd:
        words = {"space": "ranges", "sections": "settings", "how": "way to read the data", "source": "data"}
        differing = " and ".join(words.get(name, name) for name in odd)
        raise InputError(f"{folder} holds a search with other {differing}: choose another folder with --out")


class _Bar:
    """How many trials have ended, and the best so far."""

    def __init__(self, most: int, storage: Storage, progress: bool) -> None:
        self.storage, self.most = storage, most
        form = "{desc} {n_fmt}/{total_fmt} |{bar:20}| {elapsed}{postfix}"
        self.bar = tqdm(total=most, desc="trials", bar_format=form, disable=None if progress else True)

    def __enter__(self) -> _Bar:
        self.show()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def show(self) -> None:
        """Draw what the storage has."""
        ended = self.storage.finished()
        self.bar.n = min(len(ended), self.most)
        values = [trial.value for trial in ended if trial.value is not None and trial.user_attrs.get("state") == DONE]
        if values:
            best = max(values) if self.storage.study.direction.name == "MAXIMIZE" else min(values)
            self.bar.set_postfix_str(f"best {best:.4g}", refresh=False)
        self.bar.refresh()


def _processes(folder: Path, most: int, limit: float, jobs: int, bar: _Bar) -> None:
    """Search with several processes, each with its share of the cores."""
    command = children.command("-m", "neurosql.app.trials", str(folder), str(most), str(limit))
    environment = children.environment(OMP_NUM_THREADS=str(_threads(jobs)))
    with ExitStack() as stack:
        said = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(min(jobs, most))]
        # In a session of their own, Ctrl-C reaches them through this process alone.
        common: dict[str, Any] = {"env": environment, "stdin": subprocess.DEVNULL, "start_new_session": True}
        started = [subprocess.Popen(command, stderr=words, **common) for words in said]
        try:
            while any(process.poll() is None for process in started):
                time.sleep(POLL)
                bar.show()
        except KeyboardInterrupt:
            raise Stopped from None
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
        for process, words in zip(started, said):
            if process.returncode:
                words.seek(0)
                told = words.read().strip() or "it was killed"
                raise InputError(f"a process of the search failed: {told.splitlines()[-1]}")


def _threads(jobs: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // jobs)


def _finished(spec: Spec, folder: Path, storage: Storage, modality: Modality, jobs: int) -> Tuned:
    """Write the table and the page of all trials so far."""
    trials = [_trial(trial, spec.higher) for trial in storage.trials()]
    done = {trial.value: trial for trial in reversed(trials) if trial.value is not None}
    if not done:
        reason = next((trial.reason for trial in trials if trial.reason), "none has ended yet")
        raise InputError(f"no trial of {folder} could be judged: {reason}")
    best = done[max(done) if spec.higher else min(done)]
    command = _command(spec, best, modality, jobs)
    importance = _importance(storage, spec)
    table = folder / TABLE
    files.replace(table, _csv(trials, list(spec.space)).encode())
    direction = "higher" if spec.higher else "lower"
    metric = f"{'held-out loss' if spec.metric == HELDOUT else spec.metric} ({direction} is better)"
    lines = [page.Line(trial.number, trial.state, trial.value, trial.epochs, trial.settings) for trial in trials]
    shown = page.Search(spec.settings.method, metric, spec.higher, lines, best.number, command, importance)
    written = [table, page.write(shown, folder), folder / JOURNAL]
    return Tuned(folder, trials, best, command, importance, written)


def _trial(trial: Any, higher: bool) -> Trial:
    known = trial.user_attrs
    state = known.get("state", OPEN) if trial.state.is_finished() else OPEN
    sign = -1 if higher else 1
    return Trial(
        trial.number,
        state,
        trial.value if state == DONE else None,
        dict(trial.params),
        int(known.get("epochs", 0)),
        float(known.get("seconds", 0.0)),
        str(known.get("reason", "")),
        {step: sign * value for step, value in trial.intermediate_values.items()},
    )


def _command(spec: Spec, best: Trial, modality: Modality, jobs: int) -> str:
    """The command that trains with the settings of a trial, on the same samples."""
    settings = search.chosen(spec.settings, best.settings).resolve(modality)
    words = ["neurosql", "train", spec.source, *as_flags(again.changed(settings, modality) | spec.reading)]
    # With another number of threads, sums are rounded otherwise.
    threads = "" if jobs == 1 else f"OMP_NUM_THREADS={_threads(jobs)} "
    return threads + shlex.join(words)


def _importance(storage: Storage, spec: Spec) -> dict[str, float]:
    """How much each setting matters, most important first; empty where that can't be told."""
    ended = [trial for trial in storage.finished() if trial.user_attrs.get("state") == DONE]
    if len(spec.space) < 2 or len({trial.value for trial in ended}) < 3:
        return {}
    of = storage.optuna.importance
    try:
        found = of.get_param_importances(storage.study, evaluator=of.FanovaImportanceEvaluator(seed=0))
    except (ValueError, RuntimeError):
        return {}
    return {name: float(share) for name, share in found.items()}


def _csv(trials: Sequence[Trial], names: Sequence[str]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["trial", "state", "value", "epochs", "seconds", *names, "reason"])
    for trial in trials:
        value = "" if trial.value is None else repr(trial.value)
        own = [trial.settings.get(name, "") for name in names]
        table.writerow([trial.number, trial.state, value, trial.epochs, trial.seconds, *own, trial.reason])
    return text.getvalue()
