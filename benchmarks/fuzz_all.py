"""Feed many cases to every parser, one after the other, and keep the account: stop it at any time, and start it again.

    python benchmarks/fuzz_all.py                                   # 100,000 cases for each parser
    python benchmarks/fuzz_all.py --cases 1000 --parsers csv zip    # a few, to try it
    python benchmarks/fuzz_all.py --table                           # only write the table from the account

Cases are those of `fuzz_readers.py` and, as `run folder`, of `fuzz_runs.py`: their number and `--seed` decide all of
them. They run in blocks, each in a process of its own, so that what one block leaves in memory is not counted for the
next. Each block that is done is a line of JSON in the account, results/fuzz.jsonl by default; the table of all lines is
written beside it, with the suffix .md. The exit status is 1 if a case was not taken in good order; the account says
which, and how to run it alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import fuzz_readers

ACCOUNT = Path(__file__).parent.parent / "results" / "fuzz.jsonl"
RUNS = "run folder"
BLOCK = {RUNS: 1000}
USUAL_BLOCK = 10_000
LONGEST = 3600
"""Seconds after which a block is given up."""


@dataclass(frozen=True)
class Block:
    """What became of some cases of a parser, which begin with number `first`."""

    parser: str
    seed: int
    first: int
    cases: int
    read: int = 0
    refused: int = 0
    slowest: float = 0.0
    megabytes: float = 0.0
    found: list[str] = field(default_factory=list)
    """One line for each case that was not taken in good order."""


def run(block: Block) -> Block:
    """The block, once its cases have run in this process."""
    cases = range(block.first, block.first + block.cases)
    if block.parser == RUNS:
        return _run_folders(block, cases)
    done = fuzz_readers.fuzz(block.parser, cases, block.seed)
    given = {name: getattr(done, name) for name in ("read", "refused", "slowest", "megabytes", "found")}
    return Block(block.parser, block.seed, block.first, block.cases, **given)


def _run_folders(block: Block, cases: range) -> Block:
    import os
    import tempfile
    import time
    import warnings

    import fuzz_runs
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # No power will fail here.
    os.fsync = lambda handle: None  # type: ignore[assignment]
    found, slowest = [], 0.0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        fuzzer = fuzz_runs.Fuzzer(Path(name), block.seed)
        fuzz_runs.limit_memory()
        for case in cases:
            began = time.monotonic()
            if (bad := fuzzer.run(case)) is not None:
                found.append(f"fuzz_runs.py --seed {block.seed} --only {case}: {bad.command}: {bad.what}")
            slowest = max(slowest, time.monotonic() - began)
    used, refused = (fuzzer.outcomes.get(outcome, 0) for outcome in ("worked", "refused"))
    return Block(RUNS, block.seed, block.first, block.cases, used, refused, slowest, 0.0, found)


def read(account: Path) -> list[Block]:
    """The blocks of an account; a line that was cut off when the program was stopped does not count."""
    found = []
    for line in account.read_text("utf-8").splitlines() if account.is_file() else []:
        try:
            found.append(Block(**json.loads(line)))
        except ValueError:
            continue
    return found


def append(account: Path, block: Block) -> None:
    """Add a line to an account, also after one that was cut off."""
    torn = account.is_file() and not account.read_bytes().endswith(b"\n")
    with open(account, "a", encoding="utf-8") as file:
        file.write("\n" * torn + json.dumps(asdict(block)) + "\n")


def left(done: list[Block], parser: str, seed: int, cases: int) -> list[Block]:
    """The blocks that are still to run, so that the first `cases` cases of a parser are done."""
    size = BLOCK.get(parser, USUAL_BLOCK)
    known = {number for b in done if (b.parser, b.seed) == (parser, seed) for number in (b.first, b.first + b.cases)}
    reached = max(known, default=0)
    return [Block(parser, seed, first, min(size, cases - first)) for first in range(reached, cases, size)]


def table(done: list[Block]) -> str:
    """One row per parser."""
    lines = ["| parser | cases | read | refused | wrong | slowest, s | most memory, MB |"]
    lines.append("| --- |" + " ---: |" * 6)
    for parser in dict.fromkeys(block.parser for block in done):
        own = [block for block in done if block.parser == parser]
        counts = [sum(of) for of in zip(*((b.cases, b.read, b.refused, len(b.found)) for b in own))]
        memory = max(b.megabytes for b in own)
        cells = [*(f"{count:,}" for count in counts), f"{max(b.slowest for b in own):.1f}", f"{memory:.0f}"]
        lines.append(f"| {parser} | {' | '.join(cells)} |")
    wrong = [line for block in done for line in block.found]
    return "\n".join([*lines, *([""] if wrong else []), *(f"- `{line}`" for line in wrong[:100])]) + "\n"


def in_a_process(block: Block) -> Block:
    """The block, run in a process of its own."""
    words = [block.parser, str(block.seed), str(block.first), str(block.cases)]
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--block", *words], stdout=subprocess.PIPE, text=True, timeout=LONGEST
        )
        return Block(**json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        lost = f"{block.parser} --seed {block.seed} --first {block.first} --cases {block.cases}: the process ended"
        return Block(block.parser, block.seed, block.first, block.cases, found=[f"{lost} ({type(error).__name__})"])


def main() -> int:
    """Run what is left, and write the table after each block."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*fuzz_readers.PARSERS, RUNS]
    parser.add_argument("--cases", type=int, default=100_000, help="cases for each parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parsers", nargs="+", choices=every, default=every, metavar="PARSER")
    parser.add_argument("--account", type=Path, default=ACCOUNT)
    parser.add_argument("--table", action="store_true", help="write the table and run nothing")
    parser.add_argument("--block", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.block:
        name, *numbers = given.block
        print(json.dumps(asdict(run(Block(name, *map(int, numbers))))))
        return 0
    given.account.parent.mkdir(parents=True, exist_ok=True)
    done = read(given.account)
    for name in [] if given.table else given.parsers:
        for block in left(done, name, given.seed, given.cases):
            done.append(in_a_process(block))
            append(given.account, done[-1])
            given.account.with_suffix(".md").write_text(table(done), "utf-8")
            print(f"{name}: {block.first + block.cases:,} cases, {len(done[-1].found)} wrong", flush=True)
    given.account.with_suffix(".md").write_text(table(done), "utf-8")
    print(table(done))
    return 1 if any(block.found for block in done) else 0


if __name__ == "__main__":
    sys.exit(main())
