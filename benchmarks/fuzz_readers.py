"""Feed damaged and odd files to the parser of every format, and say which of them it did not take in good order.

    python benchmarks/fuzz_readers.py --cases 1000
    python benchmarks/fuzz_readers.py --parser csv --cases 100000
    python benchmarks/fuzz_readers.py --parser csv --first 4711 --cases 1 --keep found

A case is a file made by grammar, damaged two times out of three; its number and `--seed` decide all of it. In good
order means: the parser returns a data set or refuses the file in one printable line, without any other exception,
without a warning or a word on standard error, within `--seconds`, without more than `--megabytes` of memory beyond what
the process had, and without leaving a file behind. The exit status is 1 if a case was not; `--keep` saves its file.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fuzz_made as made
import numpy as np

from neurosql import data
from neurosql.bench import compare, rows
from neurosql.bench.declare import Arm, Experiment, Grid
from neurosql.data import apart, splits, volume
from neurosql.data.audio import AudioSettings
from neurosql.data.decode import Bad, Prep, decode, quietly
from neurosql.data.nifti import NiftiSettings
from neurosql.data.readers import IMAGES
from neurosql.data.tree import Tree
from neurosql.errors import InputError
from neurosql.metrics.column import resource as measured

LONGEST = 1000
MEMORY = "/dev/shm"
"""Where files are in memory: on a disk, replacing them would take most of the time."""
TOY = Experiment("toy", "Toy", "?", (Grid((Arm("a"), Arm("b"))),), (measured("seconds"),))


@dataclass(frozen=True)
class Parser:
    """A parser: the name of its files, how they are made, and what reads them."""

    file: str
    make: Callable[[np.random.Generator], bytes]
    read: Callable[[Path], Any]
    tokens: tuple[bytes, ...] = ()
    quiet: bool = True
    """Whether a word on standard error is wrong. That of the processes that decode leads nowhere."""


def load(path: Path) -> None:
    """A data set, with bad rows left out if its size is even, and all that is said about it."""
    images = data.load(path, skip_bad=path.stat().st_size % 2 == 0, cache=False)
    if not np.isfinite(images.x).all():
        raise AssertionError("values that are not finite")
    assert images.reading is not None
    for words in (images.describe(), *images.reading.all_notes()):
        _words(words)


def decoded(prep: Prep) -> Callable[[Path], None]:
    """A function that decodes one file, given by its path and by its bytes."""

    def run(path: Path) -> None:
        with quietly():
            by_path, by_bytes = (decode(payload, [None], prep)[0] for payload in (str(path), path.read_bytes()))
        if isinstance(by_path, Bad) != isinstance(by_bytes, Bad):
            raise AssertionError(f"the path gives {by_path!r}, the bytes {by_bytes!r}")
        if isinstance(by_path, Bad):
            raise InputError(str(by_path))
        if not np.isfinite(by_path.array).all():
            raise AssertionError("values that are not finite")

    return run


def slices(path: Path) -> None:
    """The slices of a volume."""
    prep = Prep("neurosql.data.volume:DECODER", 8, own=NiftiSettings(axis=1))
    try:
        with quietly():
            found = decode(str(path), list(range(min(4, volume.depth(str(path), 1)))), prep)
    except Bad as bad:
        raise InputError(str(bad)) from None
    for one in found:
        if isinstance(one, Bad):
            raise InputError(str(one))


def archive(path: Path) -> None:
    """Every file of an archive."""
    found = Tree(path)
    for name, reason in found.skipped:
        _words(reason)
        assert name
    for _ in found.stream(found.entries, 2**20):
        pass


def results(path: Path) -> None:
    """The table of a bench, compared."""
    rows.is_table(path)
    compare.build(TOY, rows.read(path).values())


def split(path: Path) -> None:
    """The parts of a split file."""
    splits.read_split(path, 20)


CSV = tuple(word.encode("utf-8", "surrogatepass") for word in made.WORDS)
PARSERS = {
    "image": Parser("a.png", made.picture, decoded(Prep(IMAGES, 8)), quiet=False),
    "npy": Parser("a.npy", made.npy, load, (b"'<f4'", b"'|O'", b"(", b"-1", b"True")),
    "npz": Parser("a.npz", made.npz, load, (b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06")),
    "medmnist": Parser("a.npz", made.medmnist, load),
    "idx": Parser("train-images-idx3-ubyte.gz", made.idx, load),
    "csv": Parser("a.csv", made.table, load, CSV),
    "tsv": Parser("a.tsv", made.table, load, CSV),
    "parquet": Parser("a.parquet", made.parquet, load, (b"PAR1",)),
    "nifti": Parser("a.nii.gz", made.volume, decoded(Prep("neurosql.data.volume:DECODER", own=NiftiSettings()))),
    "slices": Parser("a.nii.gz", made.volume, slices),
    "wav": Parser(
        "a.wav",
        made.sound,
        decoded(Prep("neurosql.data.sound:DECODER", 8, own=AudioSettings())),
        (b"fmt ", b"data", b"LIST"),
    ),
    "zip": Parser("a.zip", made.zipped, archive, (b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x07")),
    "tar": Parser("a.tar.gz", made.tarred, archive),
    "split": Parser("split.json", made.split, split, (b"NaN", b"1e999", b'"train"', b"[[", b"null", b"9" * 5000)),
    "bench": Parser("toy.csv", made.results, results, CSV),
}


@dataclass
class Outcome:
    """What became of the cases of one parser."""

    read: int = 0
    refused: int = 0
    slowest: float = 0.0
    megabytes: float = 0.0
    found: list[str] = field(default_factory=list)
    """One line for each case that was not taken in good order."""


class TooSlow(BaseException):
    """The case took too long."""


def content_of(parser: Parser, seed: int, number: int) -> bytes:
    """The file of a case."""
    chance = np.random.default_rng([seed, number])
    whole = parser.make(chance)
    return whole if chance.random() < 1 / 3 else made.damaged(whole, chance, parser.tokens)


def fuzz(
    name: str, cases: range, seed: int = 0, seconds: float = 10.0, megabytes: float = 700.0, keep: Path | None = None
) -> Outcome:
    """Feed these cases to a parser."""
    parser, outcome = PARSERS[name], Outcome()
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as place,
        _heard() as said,
        _alarm(),
        _apart(),
    ):
        path = Path(place) / parser.file
        # What is imported on first use does not count.
        _case(parser, path, content_of(parser, seed, cases.start), seconds, Outcome())
        said()
        for number in cases:
            content = content_of(parser, seed, number)
            trouble = _case(parser, path, content, seconds, outcome)
            if outcome.megabytes > megabytes:
                trouble = trouble or f"took {outcome.megabytes:.0f} MB"
                outcome.megabytes = 0.0
            words = said()
            trouble = trouble or (words if parser.quiet else "")
            if os.listdir(place) not in ([parser.file], []):
                trouble = trouble or f"left {sorted(os.listdir(place))}"
            if trouble:
                outcome.found.append(f"{name} --seed {seed} --first {number}: {trouble}")
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{name}-{seed}-{number}-{parser.file}").write_bytes(content)
    return outcome


def _case(parser: Parser, path: Path, content: bytes, seconds: float, outcome: Outcome) -> str:
    """Run one case; returns what was wrong with it, if anything was."""
    path.write_bytes(content)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parser.read(path)
        outcome.read += 1
    except InputError as error:
        outcome.refused += 1
        try:
            _words(str(error))
        except AssertionError as odd:
            return str(odd)
    except TooSlow:
        return f"took more than {seconds:g} s"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]!r} at {Path(where.filename).name}:{where.lineno}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        outcome.slowest = max(outcome.slowest, time.monotonic() - began)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        outcome.megabytes = max(outcome.megabytes, grown)
    return ""


def _words(text: str) -> None:
    if len(text) > LONGEST or not text.isprintable():
        raise AssertionError(f"says something odd: {text[:200]!r}")


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _apart() -> Iterator[None]:
    """Parse files here, as the processes do that are started for it: starting one per case would take all the time."""
    before, apart.here = apart.here, True
    try:
        yield
    finally:
        apart.here = before


@contextmanager
def _heard() -> Iterator[Callable[[], str]]:
    """Collect what is written to standard error, by libraries in C too; yields a function to what is new."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        place = 0

        def new() -> str:
            nonlocal place
            sys.stderr.flush()
            size = os.fstat(file.fileno()).st_size
            words = os.pread(file.fileno(), 200, place).decode("utf-8", "replace") if size > place else ""
            place = size
            return f"said {words!r}" if words else ""

        try:
            yield new
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def main() -> int:
    """Parse the arguments, run, and print a line for each parser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parser", choices=["all", *PARSERS], default="all")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--megabytes", type=float, default=700.0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    wrong = 0
    for name in PARSERS if given.parser == "all" else [given.parser]:
        began = time.monotonic()
        cases = range(given.first, given.first + given.cases)
        done = fuzz(name, cases, given.seed, given.seconds, given.megabytes, given.keep)
        print(
            f"{name:<9}{given.cases:>7,} cases: {done.read:,} read, {done.refused:,} refused, {len(done.found)} wrong; "
            f"slowest {done.slowest:.2f} s, at most {done.megabytes:.0f} MB, {time.monotonic() - began:.0f} s in all",
            flush=True,
        )
        for line in done.found[:20]:
            print(f"    {line}", flush=True)
        wrong += len(done.found)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
