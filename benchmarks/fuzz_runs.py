"""What becomes of a run folder that somebody has altered? Thousands of mutated folders, each given to one command.

    python benchmarks/fuzz_runs.py [--cases 100000] [--seed 0] [--only 17]

Values in JSON files are replaced by others or removed, files are cut, swapped, filled with noise or replaced by pipes,
links and folders, tensors change their shape, their type or their name. Then info, sample, encode, codes, report or
resume must work or refuse in one sentence (an InputError or an error of the file system), within seconds and a bounded
memory, and must neither write nor read anything outside. A case is a function of the seed and its number: `--only`
repeats one, with its traceback.
"""

from __future__ import annotations

import argparse
import base64
import collections
import copy
import io
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from crashes import tiny_images

from neurosql import InputError, app, data, presets
from neurosql import run as runs
from neurosql.app import Observer
from neurosql.checkpoint import CHECKPOINT, CODES, CONFIG, DIGEST, HISTORY, MODEL, SCORES, SPLIT, USED, RunFolder
from neurosql.report import pictures
from neurosql.settings import DataSettings
from neurosql.training import Stopped

SECONDS = 20
"""A case that takes longer hangs."""
MEMORY = 3 * 2**30
"""Bytes that a case may take beyond what the process has."""
SECRET = b"the content of a file outside, which nobody may see"
TINY = {"generator": "mlp", "width": 8, "epochs": 2, "batch_size": 20, "checkpoint_every": 1, "validate_every": 2}
MODELS: dict[str, dict[str, Any]] = {
    "neurosql": {"preset": "plain", "conditional": True},
    "map": {"preset": "map"},
    "vae": {"method": "vae"},
    "gan": {"method": "gan"},
    "ddpm": {"method": "ddpm", "noise_steps": 10, "unet_width": 8, "conditional": True},
    "rae": {"method": "rae", "components": 2},
}
JSON_FILES = (CONFIG, CONFIG, CONFIG, USED, SPLIT, SCORES, HISTORY)
TENSOR_FILES = (MODEL, CODES, CHECKPOINT)
COMMANDS = ("info", "sample", "encode", "codes", "report", "resume")
OFTEN = (3, 3, 2, 2, 2, 2)
DRAWN = 0.05
"""Share of the cases in which the pictures of a run are drawn: that takes longer than all else."""
PLAIN_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 0.5, -0.5, 1e308, -1e308, float("nan"), float("inf")),
    *(2**31, 2**62, 2**63, 2**64, 10**30, 10**300, 9000, 100_000),
    *("", "x", "auto", "nan", "../../outside", "/outside", "\x1b[31mred", "$\\frac{$", "\0", "\ud800", "A" * 100_000),
    *("custom", "transformer", "unet", "resnet", "ddpm", "cuda", "meta", "con", "ball", "grid", "colour"),
    *([], {}, [[]], [1, "x", None], {"x": 1}, [0.5], ["a", "a"], [-1], [2**40], [1, 8, 8, 8, 8]),
)


class Hang(BaseException):
    """A case took too long."""


@dataclass(frozen=True)
class Found:
    """Something that may not happen."""

    case: int
    command: str
    what: str
    """The error and where it was raised, in one line."""
    details: str


class Fuzzer:
    """Mutates copies of a few runs in a folder, and gives them to the commands.

    `models` name some of `MODELS`; `drawn` is the share of the cases in which the pictures of a run are drawn.
    """

    def __init__(self, folder: Path, seed: int, models: Sequence[str] = tuple(MODELS), drawn: float = DRAWN) -> None:
        self.folder, self.seed, self.models, self.drawn = folder, seed, models, drawn
        self.source = tiny_images(folder / "waves.npz")
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_bytes(SECRET)
        self.bases = list(self._bases())
        self.outcomes: collections.Counter[str] = collections.Counter()

    def _bases(self) -> Iterator[Path]:
        images = data.load(str(self.source), cache=False)
        for name in self.models:
            settings = presets.settings(**TINY | MODELS[name])
            yield (finished := self.folder / "bases" / name)
            runs.train(images, settings, finished)
            RunFolder(finished).write_json(SCORES, json.loads(SCORE))
            yield (stopped := self.folder / "bases" / f"{name}-stopped")
            with suppress(Stopped):
                runs.train(images, settings, stopped, hear=lambda figures: os.kill(os.getpid(), signal.SIGTERM))
        if not self.drawn:
            return
        yield (whole := self.folder / "bases" / "whole")
        app.train(str(self.source), presets.settings(**TINY), whole, DataSettings(cache=False))

    def run(self, case: int) -> Found | None:
        """One case; None if nothing bad happened."""
        chance = random.Random(f"{self.seed}-{case}")
        path = self.folder / "run"
        _remove(path)
        shutil.copytree(chance.choice(self.bases), path)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            self.mutate(path, chance)
        command = chance.choices(COMMANDS, OFTEN)[0]
        self.draws = chance.random() < self.drawn
        before = _tree(self.outside)
        found = self._outcome(case, command, path)
        if found is None and _tree(self.outside) != before:
            found = Found(case, command, "wrote outside", "")
        if found is None and (leak := self._leak(path)):
            found = Found(case, command, f"{leak} shows what is outside", "")
        return found

    def _outcome(self, case: int, command: str, path: Path) -> Found | None:
        try:
            with _within(SECONDS), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                self.do(command, path)
        except (InputError, OSError, Stopped):
            self.outcomes["refused"] += 1
            return None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            here = [f for f in traceback.extract_tb(error.__traceback__) if "neurosql" in f.filename][-1]
            where = f"{Path(here.filename).name}:{here.lineno} ({Path(last.filename).name}:{last.lineno})"
            words = f"{type(error).__name__}: {str(error)[:80]}"
            return Found(case, command, f"{words} at {where}", traceback.format_exc())
        self.outcomes["worked"] += 1
        return None

    def do(self, command: str, path: Path) -> None:
        """Give a run to a command."""
        calls: dict[str, Callable[[], Any]] = {
            "info": lambda: app.describe(path),
            "sample": lambda: app.sample(path, 3, out=None),
            "encode": lambda: app.encode(path, str(self.source), limit=3),
            "codes": lambda: app.codes(path),
            "report": lambda: app.report(path),
            "resume": lambda: app.resume(path, str(self.source), Impatient()),
        }
        with nullcontext() if self.draws else _undrawn():
            calls[command]()

    def mutate(self, path: Path, chance: random.Random) -> None:
        """Alter a run folder in one way."""
        ways = (self._values, self._values, self._values, self._tensors, self._header, self._bytes, self._kind)
        chance.choice(ways)(path, chance)

    def _values(self, path: Path, chance: random.Random) -> None:
        """Replace, remove or add a value in a JSON file."""
        name = chance.choice([n for n in JSON_FILES if _is_plain(path, n)] or ["none"])
        try:
            text = (path / name).read_text("utf-8")
            lines = text.splitlines() if name == HISTORY else [text]
            at = chance.randrange(len(lines))
            lines[at] = _dumped(_altered(json.loads(lines[at]), chance))
        except (OSError, ValueError, RecursionError):
            return
        (path / name).write_text("\n".join(lines) + "\n", "utf-8", "surrogatepass")

    def _tensors(self, path: Path, chance: random.Random) -> None:
        """Change the shape, the type, the values or the name of a tensor."""
        name = chance.choice([n for n in TENSOR_FILES if _is_plain(path, n)] or ["none"])
        try:
            header, _ = _split((path / name).read_bytes())
            tensors = safetensors.torch.load((path / name).read_bytes())
        except (OSError, ValueError, RecursionError, struct.error, safetensors.SafetensorError):
            return
        key = chance.choice(sorted(tensors))
        tensors[key] = chance.choice(TENSOR_CHANGES)(tensors[key].clone())
        if chance.random() < 0.15:
            tensors[chance.choice(("x", "data.mean", "data.low", "labels", "digests", "generator.x"))] = tensors[key]
        if chance.random() < 0.15:
            del tensors[key]
        metadata = header.get("__metadata__")
        if isinstance(metadata, dict) and chance.random() < 0.9:
            metadata["plain"] = _dumped(_undigested(metadata["plain"]))
        stored = {k: v.contiguous().clone() for k, v in tensors.items()}
        (path / name).write_bytes(safetensors.torch.save(stored, metadata))

    def _header(self, path: Path, chance: random.Random) -> None:
        """Alter the header of a file of tensors, or the plain values in it."""
        name = chance.choice([n for n in TENSOR_FILES if _is_plain(path, n)] or ["none"])
        try:
            header, body = _split((path / name).read_bytes())
            metadata = header.get("__metadata__")
            if metadata and chance.random() < 0.7:
                metadata["plain"] = _dumped(_altered(_undigested(metadata["plain"]), chance))
            else:
                header = _altered(header, chance)
        except (OSError, ValueError, TypeError, KeyError, RecursionError, struct.error):
            return
        text = _dumped(header).encode("utf-8", "surrogatepass")
        (path / name).write_bytes(struct.pack("<Q", len(text)) + text + body)

    def _bytes(self, path: Path, chance: random.Random) -> None:
        """Cut, extend, disturb, empty or swap files."""
        files = sorted(file for file in path.rglob("*") if _is_plain(path, str(file.relative_to(path))))
        if not files:
            return
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        way = chance.randrange(6)
        if way == 0:
            content = content[: chance.randrange(len(content) + 1)]
        elif way == 1:
            content += chance.randbytes(chance.randrange(1, 200))
        elif way == 2:
            for _ in range(chance.randrange(1, 20)):
                if content:
                    content[chance.randrange(len(content))] = chance.randrange(256)
        elif way == 3:
            content = bytearray(chance.randbytes(chance.randrange(300)))
        elif way == 4:
            content = bytearray(b"[" * 100_000 if chance.random() < 0.5 else b'{"a":' * 100_000)
        else:
            content = bytearray(chance.choice(files).read_bytes())
        file.write_bytes(content)

    def _kind(self, path: Path, chance: random.Random) -> None:
        """Put a pipe, a link, a folder or nothing in place of a file or of the folder of checkpoints."""
        files = sorted(file for file in path.rglob("*") if file.name != "run")
        file = chance.choice([*files, path / ".lock", path / "samples-seed0.png", path / "codes.csv", path / HISTORY])
        _remove(file)
        outside = chance.choice((self.outside, self.outside / "secret", self.outside / "new", Path("/dev/zero"), file))
        way = chance.randrange(5)
        try:
            if way == 0:
                os.mkfifo(file)
            elif way == 1:
                file.mkdir()
            elif way < 4:
                file.symlink_to(outside)
        except OSError:
            pass

    def _leak(self, path: Path) -> str:
        codes = (SECRET, base64.b64encode(SECRET), base64.b64encode(b"x" + SECRET)[2:-4])
        for file in path.rglob("*"):
            if file.is_file() and not file.is_symlink() and any(code in file.read_bytes() for code in codes):
                return file.name
        return ""


class Impatient(Observer):
    """Ends a training after its first epoch."""

    def epoch(self, figures: dict[str, Any]) -> Any:
        """Enough."""
        return True


SCORE = """{
 "ssim:paired-train": {"name": "SSIM", "value": 0.5, "mode": "paired-train", "direction": "higher", "n": 36},
 "suspiciously close:sampled": {"name": "suspiciously close", "value": 0.1, "mode": "sampled", "direction": "lower",
  "n": 50, "n_real": 40, "interval": [0.05, 0.2], "floor": 0.01, "note": "some"}
}"""
TENSOR_CHANGES: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda t: t[:0] if t.ndim else t[None][:0],
    lambda t: t[:1] if t.ndim else t,
    lambda t: torch.cat([t, t]) if t.ndim else t[None],
    lambda t: t.flatten(),
    lambda t: t[None],
    lambda t: t.to(torch.float64),
    lambda t: t.to(torch.int64) if not t.is_complex() else t,
    lambda t: t.to(torch.uint8),
    lambda t: t.to(torch.bool),
    lambda t: t.to(torch.float16),
    lambda t: torch.full(t.shape, float("nan")),
    lambda t: torch.full(t.shape, 1e38),
    lambda t: torch.full_like(t, 10**9 if t.dtype == torch.int64 else 100),
    lambda t: -t if t.dtype not in (torch.bool, torch.uint8) else ~t,
    lambda t: torch.zeros(()),
)


def _altered(value: Any, chance: random.Random) -> Any:
    """A copy of JSON values with one of them replaced, removed or added."""
    value = copy.deepcopy(value)
    places: list[tuple[Any, Any]] = []
    rest = [value]
    while rest:
        here = rest.pop()
        if isinstance(here, (dict, list)):
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))[:50]
            places += [(here, key) for key in keys]
            rest += [here[key] for key in keys]
    new = chance.choice(PLAIN_VALUES)
    if not places or chance.random() < 0.02:
        return new
    holder, key = chance.choice(places)
    way = chance.random()
    if way < 0.12:
        del holder[key]
    elif way < 0.2:
        holder.update({chance.choice(("x", "extra", "\x1b[2J", "seconds")): new}) if isinstance(
            holder, dict
        ) else holder.append(new)
    elif way < 0.25:
        for _ in range(chance.choice((5, 500))):
            new = [new]
        holder[key] = new
    elif way < 0.35 and isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool):
        holder[key] = holder[key] * chance.choice((-1, 2, 10, 0.5, 1000, 10**6)) + chance.choice((0, 1, -1))
    else:
        holder[key] = new
    return value


def _undigested(text: str) -> Any:
    """Plain values without their digest, so that what else is altered is not found out at once."""
    found = json.loads(text)
    return {name: value for name, value in found.items() if name != DIGEST} if isinstance(found, dict) else found


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a file of tensors, and the rest."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def _is_plain(folder: Path, name: str) -> bool:
    """Whether a file is there, and not by way of a link."""
    return (folder / name).is_file() and os.path.realpath(folder / name) == os.path.realpath(folder) + os.sep + name


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@contextmanager
def _undrawn() -> Iterator[None]:
    """Draw no pictures within the context."""
    before, pictures.draw_all = pictures.draw_all, lambda *given: []
    try:
        yield
    finally:
        pictures.draw_all = before


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    """Raise `Hang` if the context takes longer."""

    def ring(number: int, frame: Any) -> None:
        raise Hang(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """Let the process have no more than `MEMORY` bytes beyond what it has."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    """Fuzz; the exit code is 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases")
    parser.add_argument("--only", type=int, help="run this case alone, and print its traceback")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # No power will fail here.
    os.fsync = lambda handle: None  # type: ignore[assignment]
    kinds: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        fuzzer = Fuzzer(Path(name), chosen.seed)
        limit_memory()
        cases = range(chosen.first, chosen.first + chosen.cases) if chosen.only is None else [chosen.only]
        for done, case in enumerate(cases, 1):
            found = fuzzer.run(case)
            if found is not None:
                kinds[f"{found.command}: {found.what}"] += 1
                if kinds[f"{found.command}: {found.what}"] == 1 or chosen.only is not None:
                    print(f"FOUND      case {case}, {found.command}: {found.what}", flush=True)
                if chosen.only is not None:
                    print(found.details)
            if done % 5000 == 0:
                print(f"{done:,} cases, {sum(kinds.values()):,} bad, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(cases):,} cases, {sum(kinds.values()):,} bad, of {len(kinds)} kinds; {dict(fuzzer.outcomes)}")
    return int(bool(kinds))


if __name__ == "__main__":
    sys.exit(main())
