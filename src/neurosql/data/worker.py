"""A process that decodes files: requests on standard input, arrays on standard output.

These are plain subprocesses, not `multiprocessing`: they neither import the caller's script again nor fork its threads,
and a file that crashes a decoder ends only the worker.

A request is a line of JSON, `[[path or null, bytes that follow, slices], ...]`, then those bytes. The answer is a line
of JSON with an entry for each slice, then the bytes of the arrays that could be read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

from neurosql import children
from neurosql.data.decode import Bad, Decoded, Prep, decode, quietly
from neurosql.errors import InputError

PIPE = 2**20

Request = list[tuple[bytes | str, list[int | None]]]
Answer = list[Decoded | Bad]


class Worker:
    """The caller's side of one process."""

    def __init__(self, prep: Prep) -> None:
        code = "from neurosql.data.worker import serve; serve()"
        self.process = subprocess.Popen(
            children.command("-c", code, prep.to_json()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=children.environment(OMP_NUM_THREADS="1"),
            bufsize=PIPE,
        )
        for pipe in (self.process.stdin, self.process.stdout):
            _widen(pipe)

    def ask(self, request: Request) -> Answer:
        """The decoded files of a request."""
        try:
            assert self.process.stdin is not None and self.process.stdout is not None
            _send(self.process.stdin, request)
            return _receive(self.process.stdout)
        except (BrokenPipeError, EOFError):
            names = {payload for payload, _ in request if isinstance(payload, str)}
            where = f" near {sorted(names)[0]}" if names else ""
            raise InputError(f"a decoding process died{where}: is there enough memory?") from None

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()


def serve() -> None:
    """The worker's side: answer requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prep = Prep.from_json(sys.argv[1])
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    with quietly():
        while line := incoming.readline():
            tasks = [(incoming.read(size) if path is None else path, slices) for path, size, slices in json.loads(line)]
            results: Answer = []
            for payload, slices in tasks:
                try:
                    results += decode(payload, slices, prep)
                except InputError as error:
                    results += [Bad(str(error))] * len(slices)
            _answer(outgoing, results)


def _send(pipe: Any, request: Request) -> None:
    head = [
        (None, len(payload), slices) if isinstance(payload, bytes) else (payload, 0, slices)
        for payload, slices in request
    ]
    pipe.write(json.dumps(head).encode() + b"\n")
    for payload, _ in request:
        if isinstance(payload, bytes):
            pipe.write(payload)
    pipe.flush()


def _answer(pipe: BinaryIO, results: Answer) -> None:
    heads = [
        [str(r)] if isinstance(r, Bad) else [r.array.shape, r.array.dtype.str, r.size, r.mode, r.remark]
        for r in results
    ]
    arrays = [r.array.data for r in results if isinstance(r, Decoded)]
    pipe.write(b"".join([json.dumps(heads).encode(), b"\n", *arrays]))
    pipe.flush()


def _receive(pipe: Any) -> Answer:
    line = pipe.readline()
    if not line:
        raise EOFError
    heads = json.loads(line)
    sizes = [int(np.prod(head[0])) * np.dtype(head[1]).itemsize if len(head) > 1 else 0 for head in heads]
    content = np.empty(sum(sizes), np.uint8)
    view, filled = content.data, 0
    while filled < len(view):
        got = pipe.readinto(view[filled:])
        if not got:
            raise EOFError
        filled += got
    results: Answer = []
    start = 0
    for head, size in zip(heads, sizes):
        if len(head) == 1:
            results.append(Bad(head[0]))
        else:
            shape, kind, *words = head
            results.append(Decoded(content[start : start + size].view(kind).reshape(shape), *words))
        start += size
    return results


def _widen(pipe: Any) -> None:
    """Let a pipe hold more than the usual 64 KiB, if the system can: the two sides then wait less often."""
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE)


def processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def in_chunks(tasks: Iterable[tuple[Any, Any]], rows: int, size: int) -> Iterator[list[tuple[Any, Any]]]:
    """Tasks (payload, numbers) in lists of at most `rows` numbers and `size` bytes, with at least one task each."""
    chunk: list[tuple[Any, Any]] = []
    count = held = 0
    for payload, numbers in tasks:
        weight = len(payload) if isinstance(payload, bytes) else 0
        if chunk and (count + len(numbers) > rows or held + weight > size):
            yield chunk
            chunk, count, held = [], 0, 0
        chunk.append((payload, numbers))
        count, held = count + len(numbers), held + weight
    if chunk:
        yield chunk
