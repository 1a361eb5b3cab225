"""The processes that decode have few rights, and a file that crashes or stops one is a bad file among good ones."""

import json
import os
import sys

import pytest

from neurosql.data import reading, worker
from neurosql.data.decode import Prep
from neurosql.data.listing import Item
from neurosql.data.tree import Tree

CODE = """
import json, os, resource, signal, sys, time
from pathlib import Path
import numpy as np
from neurosql.data import Decoded, Decoder

def sample(payload, number, prep):
    word = (payload if isinstance(payload, bytes) else Path(payload).read_bytes()).decode()
    if word == "hang":
        time.sleep(600)
    if word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if word == "leave":
        os._exit(0)
    if word == "memory":
        np.ones(2**28)
    if word == "write":
        Path(payload).with_suffix(".out").write_text("written")
    if word == "handles":
        [open(payload) for _ in range(200)]
    if word == "talk":
        print("words on standard error", file=sys.stderr)
    told = ""
    if word == "tell":
        kinds = ("RLIMIT_CORE", "RLIMIT_FSIZE", "RLIMIT_NOFILE")
        told = {k: resource.getrlimit(getattr(resource, k)) for k in kinds} | {"path": sys.path}
        told |= {"variables": sorted(os.environ), "status": Path("/proc/self/status").read_text()}
        told = json.dumps(told)
    return Decoded(np.full((1, 4, 4), len(word), np.uint8), "4 x 4", told or "plain")

DECODER = Decoder("odd", "an odd file", sample, seconds=3.0, memory=2**29)
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    """A function that reads files with these words by the decoder above, among four good ones."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "odd_decoder.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(sys.modules, "odd_decoder", raising=False)
    folder = tmp_path / "set"
    folder.mkdir()

    def run(*words):
        for i in range(4):
            (folder / f"{i}.odd").write_text("good")
        for i, word in enumerate(words):
            (folder / f"{i}-{word}.odd").write_text(word)
        tree = Tree(folder)
        prep = Prep("odd_decoder:DECODER")
        return reading.read(tree, [Item(entry) for entry in tree.entries], prep, skip_bad=True, cache=False)

    return run


def test_a_file_that_hangs_crashes_or_ends_a_decoder_is_bad_and_the_rest_is_read(read):
    found = read("hang", "crash", "leave")
    assert len(found.values) == 4 and (found.values == 4).all()
    assert dict(found.bad) == {
        "0-hang.odd": "takes longer to decode than the 3 s that are allowed",
        "1-crash.odd": "ended the process that decoded it (SIGSEGV)",
        "2-leave.odd": "ended the process that decoded it",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_memory_handles_and_writing_are_limited_and_the_limit_is_named(read, tmp_path):
    found = read("memory", "handles", "write", "talk")
    bad = dict(found.bad)
    assert len(found.values) == 5 and bad.keys() == {"0-memory.odd", "1-handles.odd", "2-write.odd"}
    assert "512 MiB that are allowed" in bad["0-memory.odd"] and "Too many open files" in bad["1-handles.odd"]
    assert "File too large" in bad["2-write.odd"]
    assert not (tmp_path / "set" / "2-write.out").exists() or not (tmp_path / "set" / "2-write.out").stat().st_size


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_process_that_decodes_inherits_no_secret(read, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("NEUROSQL_CACHE_TOKEN", "secret")
    (mode,) = [mode for mode in read("tell").modes if mode != "plain"]
    told = json.loads(mode)
    assert not [name for name in told["variables"] if "SECRET" in name or "TOKEN" in name]
    assert told["RLIMIT_CORE"] == [0, 0] and told["RLIMIT_FSIZE"] == [0, 0] and told["RLIMIT_NOFILE"] == [64, 64]
    assert "NoNewPrivs:\t1" in told["status"]
    assert "" not in told["path"] and os.getcwd() not in told["path"]


def test_a_worker_that_was_stopped_does_not_begin_again(read):
    read()
    process = worker.Worker(Prep("odd_decoder:DECODER"))
    process.stop()
    with pytest.raises(EOFError):
        process.ask([(b"good", [None])])
    process.close()


def test_requests_of_many_files_are_answered_in_their_order(read):
    read()
    process = worker.Worker(Prep("odd_decoder:DECODER"))
    words = [b"x" * (1 + i % 7) for i in range(40)]
    words[11] = b"crash"
    answer = process.ask([(word, [None, None]) for word in words])
    process.close()
    sizes = [one.array[0, 0, 0] if hasattr(one, "array") else None for one in answer[::2]]
    assert sizes == [None if word == b"crash" else len(word) for word in words] and len(answer) == 80
