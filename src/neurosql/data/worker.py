"""A process that decodes files: requests on standard input, arrays on standard output.

These are plain subprocesses, not `multiprocessing`: they neither import the caller's script again nor fork its threads.
Files come from strangers, so such a process has few rights: see `restrict`. A file that crashes it, or takes longer
than its decoder allows, is a bad file, and another process goes on with the next one.

A request is a line of JSON, `[[path or null, bytes that follow, slices], ...]`, then those bytes. The answer for each
file is a line of JSON with an entry for each slice, then the bytes of the arrays that could be read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np

from neurosql import children
from neurosql.data.decode import Bad, Decoded, Prep, decode, decoder_of, quietly
from neurosql.data.rights import PIPE, restrict, widen
from neurosql.errors import InputError

READY = b"ready\n"
START = 120.0
"""Seconds in which a process must be ready."""
TICK = 0.2

Request = list[tuple[bytes | str, list[int | None]]]
Answer = list[Decoded | Bad]


class Worker:
    """The caller's side of one process. It is started when it is first asked, and again when a file has ended it."""

    def __init__(self, prep: Prep) -> None:
        self.prep, self.seconds = prep, decoder_of(prep.decoder).seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.until: float | None = None
        """When the process will have taken too long."""
        self.late = False
        self.closed = threading.Event()

    def ask(self, request: Request) -> Answer:
        """The decoded files of a request."""
        answer: Answer = []
        left = list(request)
        while left:
            if self.process is None:
                self._start()
            done = 0
            try:
                assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
                self.until = time.monotonic() + self.seconds
                _send(self.process.stdin, left)
                for _ in left:
                    self.until = time.monotonic() + self.seconds
                    answer += _receive(self.process.stdout)
                    done += 1
            except (OSError, EOFError, ValueError):
                if self.closed.is_set():
                    raise EOFError("the worker was stopped") from None
                answer += [Bad(self._why())] * len(left[done][1])
                done += 1
                self._end()
            finally:
                self.until = None
            left = left[done:]
        return answer

    def _start(self) -> None:
        if self.closed.is_set():
            raise EOFError("the worker was stopped")
        code = "from neurosql.data.worker import serve; serve()"
        self.late = False
        self.process = subprocess.Popen(
            children.command("-c", code, self.prep.to_json()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=children.bare_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1"),
            bufsize=PIPE,
        )
        for pipe in (self.process.stdin, self.process.stdout):
            widen(pipe)
        self.until = time.monotonic() + START
        threading.Thread(target=self._watch, args=(self.process,), daemon=True).start()
        assert self.process.stdout is not None
        if self.process.stdout.readline() != READY:
            self._end()
            raise InputError("a decoding process died as it began: is there enough memory?")

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process when it takes too long: whoever reads from it then finds the end of its answer."""
        while process.poll() is None and not self.closed.wait(TICK):
            until = self.until
            if until is not None and time.monotonic() > until:
                self.late = True
                process.kill()

    def _why(self) -> str:
        """What a file did to the process, in words that follow its name."""
        assert self.process is not None
        if self.late:
            return f"takes longer to decode than the {self.seconds:g} s that are allowed"
        with suppress(subprocess.TimeoutExpired):
            status = self.process.wait(timeout=START)
            if status < 0:
                return f"ended the process that decoded it ({signal.Signals(-status).name})"
        return "ended the process that decoded it"

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        process.wait()

    def stop(self) -> None:
        """End the process, and with it the answer that another thread may be waiting for."""
        self.closed.set()
        process = self.process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process and close its pipes, once no other thread uses them."""
        self.stop()
        self._end()


def serve() -> None:
    """The worker's side: answer requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prep = Prep.from_json(sys.argv[1])
    restrict(decoder_of(prep.decoder).memory)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    outgoing.write(READY)
    outgoing.flush()
    with quietly():
        while line := incoming.readline():
            tasks = [(incoming.read(size) if path is None else path, slices) for path, size, slices in json.loads(line)]
            for payload, slices in tasks:
                try:
                    results: Answer = decode(payload, slices, prep)
                except InputError as error:
                    results = [Bad(str(error))] * len(slices)
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
