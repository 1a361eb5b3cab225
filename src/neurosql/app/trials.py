"""The trials of a search: asked for, trained, judged on the validation part and told to a storage that processes share.

`python -m neurosql.app.trials FOLDER TRIALS SECONDS` joins the search in a folder.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import os
import platform
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neurosql import evaluate, intake, locks
from neurosql import run as runs
from neurosql.app.training import read
from neurosql.data import ImageSet, readers
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.metrics.column import Column
from neurosql.metrics.records import RESOURCE, SCORES, record_of
from neurosql.registry import imported
from neurosql.settings import METHODS, DataSettings, Settings, search
from neurosql.settings.ranges import Choices, Range, Span
from neurosql.training import Diverged, Stopped

HELDOUT = "heldout_loss"
SPEC, JOURNAL, WORKERS = "search.json", "journal.jsonl", "workers"
STUDY = "search"
DONE, PRUNED, REFUSED, DIVERGED, OPEN = "done", "pruned", "refused", "diverged", "under way"
LEAST = 4
"""Trials that end before any is pruned."""
WARM_UP = 5
"""No trial is pruned in the first of so many parts of its epochs."""
POLL = 0.01


class Bad(InputError):
    """What keeps every trial from being judged: the search ends."""


class _Pruned(Exception):
    """Raised in the training of a trial that is not worth going on with."""


@dataclass(frozen=True)
class Spec:
    """What is searched and how trials are judged: all that must be the same for everybody who joins."""

    source: str
    how: DataSettings
    settings: Settings
    """What all trials have in common."""
    space: dict[str, Range]
    metric: str
    """`heldout_loss`, or the key of a score's column."""
    prune: bool
    samples: int
    """Samples that a score is computed from."""
    seed: int
    """Seed of the search; the trials have that of the settings."""

    @property
    def column(self) -> Column | None:
        """The score that trials are judged by; None for the held-out loss."""
        return None if self.metric == HELDOUT else column_of(self.metric)

    @property
    def higher(self) -> bool:
        """Whether more is better."""
        return self.column is not None and self.column.record.direction == "higher"

    @property
    def reading(self) -> dict[str, Any]:
        """How the data are read, as far as that is not the usual way."""
        return readers.changed(self.how.flat(), self.source.partition(":")[0])

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **{"source": self.source, "how": self.reading, "metric": self.metric, "prune": self.prune},
            **{"samples": self.samples, "seed": self.seed, "method": self.settings.method},
            "sections": self.settings.sections(),
            "space": {name: dataclasses.asdict(one) for name, one in self.space.items()},
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Spec:
        """The spec from its `record`."""
        space: dict[str, Range] = {
            name: Choices(tuple(one["values"])) if "values" in one else Span(**one)
            for name, one in record["space"].items()
        }
        settings = Settings.from_sections(record["method"], record["sections"])
        common = {name: record[name] for name in ("source", "metric", "prune", "samples", "seed")}
        return cls(how=DataSettings.from_record(record["how"]), settings=settings, space=space, **common)

    def images(self) -> ImageSet:
        """The samples that trials see: those for training and those for validation, without the test part."""
        images = read(self.source, self.how, self.settings)
        if images.validation is None:
            raise InputError("a search needs samples for validation: give validation_share, 0.1 say")
        return dataclasses.replace(images, test=None)


def column_of(key: str) -> Column:
    """The column of a score, by its words: name, features and mode; an InputError with near ones if there is none."""
    known: dict[str, Column] = {}
    for name in SCORES:
        try:
            record = record_of(name)
        except InputError:  # of another package, and broken
            continue
        if record.family != RESOURCE and record.direction != "none":
            columns = (Column(record.name, of, mode) for of in record.features or ("",) for mode in record.modes)
            known |= {column.key: column for column in columns if column.features != "inception"}
    if key not in known:
        near = difflib.get_close_matches(key, [HELDOUT, *known], n=3, cutoff=0.4)
        words = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise InputError(f"metric must be {HELDOUT} or a score such as 'kid pixels sampled', got {key!r}{words}")
    return known[key]


class _Lock:
    """A lock on a file that vanishes with its owner, however that ends; as Optuna asks for it."""

    def __init__(self, path: Path) -> None:
        self.path, self.handle = path, -1

    def acquire(self) -> bool:
        """Wait for the lock."""
        self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT | locks.PLAIN, 0o666)
        while not locks.taken(self.handle):
            time.sleep(POLL)
        return True

    def release(self) -> None:
        """Let go."""
        os.close(self.handle)


class Storage:
    """The trials of all processes that work on a search, in one file of the search's folder."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        optuna = library()
        from optuna.storages.journal import JournalFileBackend, JournalStorage

        self.folder, self.lock = folder, _Lock(folder / "asking.lock")
        self.optuna = optuna
        journal = folder / JOURNAL
        guard: Any = _Lock(folder / "writing.lock")
        guard.acquire()
        try:
            _mend(journal)
        finally:
            guard.release()
        storage = JournalStorage(JournalFileBackend(str(journal), guard))
        with self.asking():
            self.study = optuna.create_study(
                storage=storage,
                study_name=STUDY,
                direction="maximize" if spec.higher else "minimize",
                pruner=optuna.pruners.MedianPruner(LEAST, n_warmup_steps=spec.settings.training.epochs // WARM_UP),
                load_if_exists=True,
            )

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Be the only process that asks for trials, within the context."""
        self.lock.acquire()
        try:
            yield
        finally:
            self.lock.release()

    def trials(self) -> list[Any]:
        """All trials that count: those that ended and those under way, in their order."""
        states = self.optuna.trial.TrialState
        wanted = (states.COMPLETE, states.PRUNED, states.RUNNING)
        return list(self.study.get_trials(deepcopy=False, states=wanted))

    def finished(self) -> list[Any]:
        """The trials that ended."""
        return [trial for trial in self.trials() if trial.state.is_finished()]

    def ask(self, spec: Spec, most: int, worker: str) -> Any:
        """The next trial; None if there are as many as wanted."""
        with self.asking():
            self._bury()
            count = len(self.trials())
            if count >= most:
                return None
            # A seed per trial: a search that was stopped proposes what it would have proposed.
            seed = int.from_bytes(hashlib.sha256(f"{spec.seed}/{count}".encode()).digest()[:4], "big")
            self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)
            trial = self.study.ask({name: self._distribution(spec, name) for name in spec.space})
            trial.set_user_attr("worker", worker)
            return trial

    def _distribution(self, spec: Spec, name: str) -> Any:
        kinds, one = self.optuna.distributions, spec.space[name]
        if isinstance(one, Choices):
            return kinds.CategoricalDistribution(one.values)
        if search.whole(spec.settings, name):
            return kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
        return kinds.FloatDistribution(one.low, one.high, log=one.log)

    def _bury(self) -> None:
        """Offer again what a killed process was working on."""
        for trial in self.trials():
            worker = trial.user_attrs.get("worker", "")
            if not trial.state.is_finished() and locks.holder(self.folder / WORKERS / str(worker)) is None:
                self._offer_again(trial)

    def give_back(self, trial: Any) -> None:
        """Offer a trial again that could not be finished."""
        with self.asking():
            self._offer_again(trial)

    def _offer_again(self, trial: Any) -> None:
        # First the offer: a process that is killed in between leaves two of it, not none.
        self.study.enqueue_trial(trial.params)
        self.study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)

    def tell(self, trial: Any, state: str, value: float | None = None) -> None:
        """Keep what came of a trial."""
        trial.set_user_attr("state", state)
        if state == DONE:
            self.study.tell(trial, value)
        else:
            self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)


def library() -> Any:
    """Optuna, silent; an InputError if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise InputError("tune needs Optuna: pip install 'neurosql-torch[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _mend(journal: Path) -> None:
    """Remove a last line that was not written in full, as on a full disk: nothing could be read past it."""
    with suppress(FileNotFoundError), journal.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def work(
    spec: Spec, folder: Path, most: int, deadline: float, seen: Callable[[Storage], None] = lambda storage: None
) -> None:
    """Carry out trials until there are as many as wanted, or until the deadline on the monotonic clock.

    Several processes may do so at once. Raises `Stopped` after Ctrl-C, having given its trial back.
    """
    storage, images = Storage(folder, spec), spec.images()
    worker = f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}"
    (folder / WORKERS).mkdir(exist_ok=True)
    with locks.held(folder / WORKERS / worker):
        while time.monotonic() < deadline:
            trial = storage.ask(spec, most, worker)
            if trial is None:
                return
            try:
                carry_out(spec, storage, trial, images)
            except BaseException:
                storage.give_back(trial)
                raise
            seen(storage)


def carry_out(spec: Spec, storage: Storage, trial: Any, images: ImageSet) -> None:
    """Train with the settings of a trial, judge the model, and tell the storage."""
    began, epochs = time.monotonic(), 0

    def hear(figures: dict[str, Any]) -> None:
        nonlocal epochs
        epochs += figures["phase"] == "main"
        if not spec.prune or HELDOUT not in figures or figures["phase"] != "main":
            return
        loss = figures[HELDOUT]
        # The pruner takes the direction of the metric, but of losses less is always better.
        trial.report(-loss if spec.higher else loss, epochs)
        if trial.should_prune():
            raise _Pruned

    state, value = DONE, None
    try:
        settings = search.chosen(spec.settings, trial.params)
        run = runs.train(images, settings, hear=hear)
        value = judged(spec, run, images)
    except _Pruned:
        state = PRUNED
    except Diverged as error:
        state = DIVERGED
        trial.set_user_attr("reason", str(error))
    except Bad:
        raise
    except InputError as error:
        state = REFUSED
        trial.set_user_attr("reason", str(error))
    trial.set_user_attr("epochs", epochs)
    trial.set_user_attr("seconds", round(time.monotonic() - began, 2))
    storage.tell(trial, state, value)


def judged(spec: Spec, run: Run, images: ImageSet) -> float:
    """The metric of a trained model, on the validation part."""
    column = spec.column
    if column is None:
        return heldout_loss(run)
    options = evaluate.Options(
        samples=spec.samples,
        seed=spec.settings.training.seed,
        vgg=column.features == "vgg",
        downstream=column.record.family == "downstream",
    )
    found = evaluate.evaluate(run, images.take(run.index), images.validation, options, only=column.score)
    values = [score.value for score in found.scores if score.column == column]
    if not values:
        why = "; ".join(found.left_out) or f"it does not apply to {run.data.modality.plural} or to this method"
        raise Bad(f"the score {column.key!r} can't be computed: {why}")
    if not math.isfinite(values[0]):
        raise InputError(f"the score {column.key!r} is not finite")
    return values[0]


def heldout_loss(run: Run) -> float:
    """The held-out loss of the model that a run keeps: the best one if it has patience, the last one if not."""
    losses = [figures[HELDOUT] for figures in run.history if HELDOUT in figures]
    if not losses:
        raise Bad("no held-out loss was computed: give more epochs, or a smaller validate_every")
    return min(losses) if run.settings.training.patience else losses[-1]


def validates(method: str) -> bool:
    """Whether a method has a held-out loss."""
    return bool(imported(METHODS[method].implementation).validates)


def _follow(parent: int) -> None:
    """End this process when the one that started it is gone; others find its trial and offer it again."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(folder: Path, most: int, seconds: float) -> int:
    """Join the search in a folder."""
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    try:
        spec = Spec.from_record(json.loads(intake.read(folder / SPEC, 2**24)))
        work(spec, folder, most, time.monotonic() + seconds)
    except (Stopped, KeyboardInterrupt):
        return 130
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    import torch

    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
