"""Archives, arrays, tables and idx files are parsed in a process of their own, which has few rights: see `restrict`.

A request is a line of JSON on the standard input of that process. It answers with frames, each a line of JSON and the
bytes that the line announces. What it says is a stranger's word too: names are looked up, sizes are bounded, and values
become numbers and text, nothing else. There is one process per request, so that no file has to do with another.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurosql import children
from neurosql.data import archive
from neurosql.data.rights import restrict, widen
from neurosql.errors import InputError

if TYPE_CHECKING:
    from neurosql.data.listing import Arrays
    from neurosql.settings import DataSettings

SECONDS = 900.0
"""A process that says nothing for this long is ended."""
TICK = 0.2
PIECE = 2**20
BATCH = 1000
"""Members of an archive in one frame."""
here = False
"""Whether this is such a process already, so that files are parsed here."""


def members(path: Path, kind: str) -> Iterator[tuple[str, int, bool]]:
    """`archive.members`."""
    if here:
        yield from archive.members(path, kind)
        return
    for head, _ in _frames({"do": "members", "path": str(path), "kind": kind}, path, 0):
        for name, size, regular in head["members"]:
            yield str(name), max(0, int(size)), bool(regular)


def contents(path: Path, kind: str, names: list[str], limit: int) -> Iterator[tuple[str, bytes]]:
    """`archive.contents`."""
    if here:
        yield from archive.contents(path, kind, names, limit)
        return
    request = {"do": "contents", "path": str(path), "kind": kind, "names": names, "limit": limit}
    for head, content in _frames(request, path, limit):
        yield str(head["name"]), bytes(content)


def keys(path: Path) -> list[str]:
    """The names of the arrays in a `.npz` file; empty if it is not such a file."""
    if here:
        from neurosql.data import arrays

        return arrays.keys(path)
    try:
        return [str(name) for head, _ in _frames({"do": "keys", "path": str(path)}, path, 0) for name in head["keys"]]
    except InputError:
        # Whoever reads it next says what is wrong.
        return []


def depths(path: Path, names: list[str], axis: int) -> dict[str, int]:
    """`nifti.depth` of each of these files at a path; 1 for one that ends the process that looks at it."""
    found: dict[str, int] = {}
    while left := [name for name in names if name not in found]:
        request = {"do": "depths", "path": str(path), "names": left, "axis": axis}
        try:
            for head, _ in _frames(request, path, 0):
                found[left[len(found) - (len(names) - len(left))]] = max(1, int(head["depth"]))
        except InputError:
            found[next(name for name in left if name not in found)] = 1
    return found


def scan(reader: str, path: Path, settings: DataSettings) -> Arrays:
    """What the reader of that name finds at a path, where it reads whole arrays."""
    from neurosql.data import packing, store

    request = {"do": "scan", "reader": reader, "path": str(path), "settings": settings.flat()}
    frames = list(_frames(request, path, 2 * store.room()))
    if not frames:
        raise InputError(f"{path} ended the process that read it")
    return packing.unpacked(*frames[0], path)


def _frames(request: dict[str, Any], path: Path, most: int) -> Iterator[tuple[dict[str, Any], memoryview]]:
    """The frames of an answer, of at most `most` bytes each. Raises what the process has raised, in its words."""
    process = subprocess.Popen(
        children.command("-c", "from neurosql.data.apart import serve; serve()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=children.bare_environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1"),
        bufsize=PIECE,
    )
    watch = _Watch(process)
    assert process.stdin is not None and process.stdout is not None
    widen(process.stdout)
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.close()
        while line := process.stdout.readline():
            watch.rest()
            head = json.loads(line)
            if "error" in head:
                raise InputError(head["error"]) if head["input"] else ValueError(head["error"])
            if "end" in head:
                return
            yield head, _received(process.stdout, int(head["bytes"]), most)
        raise InputError(f"{path} {watch.why()}")
    except (KeyError, TypeError, UnicodeError, json.JSONDecodeError):
        raise InputError(f"{path} {watch.why()}") from None
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()
        process.wait()


@dataclass
class _Watch:
    """Ends a process that says nothing for too long."""

    process: subprocess.Popen[bytes]

    def __post_init__(self) -> None:
        self.late = False
        self.rest()
        threading.Thread(target=self._watch, daemon=True).start()

    def rest(self) -> None:
        """The process has said something."""
        self.until = time.monotonic() + SECONDS

    def _watch(self) -> None:
        while self.process.poll() is None:
            if time.monotonic() > self.until:
                self.late = True
                self.process.kill()
            time.sleep(TICK)

    def why(self) -> str:
        """Why there is no answer, in words that follow the name of the file."""
        if self.late:
            return f"takes longer to read than the {SECONDS:g} s that are allowed"
        status = self.process.wait()
        return f"ended the process that read it{f' ({signal.Signals(-status).name})' if status < 0 else ''}"


def _received(pipe: Any, size: int, most: int) -> memoryview:
    """That many bytes of a pipe, if they are not more than expected."""
    if not 0 <= size <= most:
        raise InputError(f"the process that reads files answers with {size:,} bytes: more than {most:,} are refused")
    view = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        got = pipe.readinto(view[filled : filled + PIECE])
        if not got:
            raise TypeError("the answer ends too soon")
        filled += got
    return view


def serve() -> None:
    """The side of the process: answer one request."""
    global here
    from neurosql.data import store

    here = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = json.loads(sys.stdin.buffer.readline())
    restrict(2 * store.room())
    path = Path(request["path"])
    try:
        for head, content in _ANSWERS[request["do"]](path, request):
            _send({**head, "bytes": sum(part.nbytes for part in content)}, *content)
        _send({"end": True})
    except InputError as error:
        _send({"error": str(error), "input": True})
    except MemoryError:
        _send({"error": f"{path} needs more memory than there is, or is allowed", "input": True})
    except Exception as error:  # a damaged file makes parsers raise almost anything
        _send({"error": archive.words_of(error), "input": False})


Answers = Iterator[tuple[dict[str, Any], list[memoryview]]]


def _members(path: Path, request: dict[str, Any]) -> Answers:
    batch: list[tuple[str, int, bool]] = []
    for member in archive.members(path, request["kind"]):
        batch.append(member)
        if len(batch) == BATCH:
            yield {"members": batch}, []
            batch = []
    yield {"members": batch}, []


def _contents(path: Path, request: dict[str, Any]) -> Answers:
    for name, content in archive.contents(path, request["kind"], request["names"], request["limit"]):
        yield {"name": name}, [memoryview(content)]


def _keys(path: Path, request: dict[str, Any]) -> Answers:
    yield {"keys": keys(path)}, []


def _depths(path: Path, request: dict[str, Any]) -> Answers:
    from neurosql.data import nifti
    from neurosql.data.tree import Tree

    tree = Tree(path)
    entries = {entry.name: entry for entry in tree.entries}
    for name in request["names"]:
        yield {"depth": nifti.depth(tree, entries[name], request["axis"])}, []


def _scan(path: Path, request: dict[str, Any]) -> Answers:
    from neurosql.data import packing, readers
    from neurosql.data.listing import Arrays
    from neurosql.data.tree import Tree
    from neurosql.settings import DataSettings

    reader = readers.READERS[request["reader"]]
    found = reader.parse(Tree(path), DataSettings.from_record(request["settings"]))
    assert isinstance(found, Arrays)
    yield packing.packed(found)


_ANSWERS = {"members": _members, "contents": _contents, "keys": _keys, "depths": _depths, "scan": _scan}


def _send(head: dict[str, Any], *content: memoryview) -> None:
    out = sys.stdout.buffer
    out.write(json.dumps(head).encode() + b"\n")
    for part in content:
        for start in range(0, math.ceil(part.nbytes), PIECE):
            out.write(part[start : start + PIECE])
    out.flush()
