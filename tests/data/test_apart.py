"""Files that are parsed in a process of their own: the same bits, not parsed here, and no answer is trusted."""

import csv
import gzip
import sys
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from neurosql import data
from neurosql.data import apart, readers, store
from neurosql.data.tree import Tree
from neurosql.errors import InputError
from neurosql.settings import DataSettings

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (12, 6, 5), dtype=np.uint8)
TABLE = RANDOM.normal(size=(12, 3))


def written(kind, folder):
    """A file of each kind that is read as a whole."""
    path = folder / {"idx": "train-images-idx3-ubyte.gz"}.get(kind, f"a.{kind.partition(' ')[0]}")
    labels = np.arange(12) % 3
    if kind == "npy":
        np.save(path, PIXELS)
    elif kind == "npy by columns":
        np.save(path, np.asfortranarray(TABLE))
    elif kind == "npz":
        np.savez(path, images=PIXELS, labels=np.array(["b", "a", "c"])[labels], subjects=labels)
    elif kind == "npz of MedMNIST":
        np.savez(path, train_images=PIXELS, train_labels=labels[:, None], test_images=PIXELS, test_labels=labels)
    elif kind == "idx":
        path.write_bytes(gzip.compress(b"\0\0\x08\x03" + np.array(PIXELS.shape, ">u4").tobytes() + PIXELS.tobytes()))
    elif kind == "csv":
        rows = [",".join([*map(repr, row.tolist()), "xyz"[n % 3], f"s{n}"]) for n, row in enumerate(TABLE)]
        path.write_text("\n".join(["a,b,c,label,subject", *rows]))
    elif kind == "parquet":
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        pandas.DataFrame(TABLE, columns=list("abc")).assign(label=np.array(["z", "y", "x"])[labels]).to_parquet(path)
    return path


KINDS = ("npy", "npy by columns", "npz", "npz of MedMNIST", "idx", "csv", "parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_back_is_what_a_parser_in_this_process_finds(kind, tmp_path, monkeypatch):
    tree = Tree(written(kind, tmp_path))
    reader = next(reader for reader in readers.built_in() if reader.recognises(tree))
    found, expected = reader.scan(tree, DataSettings()), reader.parse(tree, DataSettings())
    every = np.arange(len(expected))
    values, wanted = (store.gather(of.values, every) for of in (found, expected))
    assert values.dtype == wanted.dtype and values.strides == wanted.strides and np.array_equal(values, wanted)
    for name in ("labels", "subjects", "parts"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None) and (one is None or np.array_equal(one, other)), name
    for name in ("layout", "classes", "columns", "notes", "skipped"):
        assert getattr(found, name) == getattr(expected, name), name
    whole = data.load(tree.path, cache=False)
    monkeypatch.setattr(apart, "here", True)
    here = data.load(tree.path, cache=False)
    assert whole.fingerprint == here.fingerprint and whole.classes == here.classes
    assert (whole.labels is None) == (here.labels is None)


@pytest.fixture
def no_parsers(monkeypatch):
    """A process that can't parse."""

    def refuse(*arguments, **options):
        raise AssertionError("parsed in the main process")

    for module, name in ((zipfile, "ZipFile"), (tarfile, "open"), (csv, "reader"), (np, "load"), (gzip, "GzipFile")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(np.lib.format, "read_magic", refuse)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "parquet"])
def test_whole_files_are_not_parsed_here(kind, tmp_path, request):
    path = written(kind, tmp_path)
    request.getfixturevalue("no_parsers")
    assert len(data.load(path, cache=False)) == 12


@pytest.mark.parametrize("suffix", ["zip", "tar", "tar.gz"])
def test_archives_are_not_parsed_here(suffix, tmp_path, request):
    for n in range(4):
        Image.fromarray(PIXELS[n]).save(tmp_path / f"{n}.png")
    path = tmp_path / f"a.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for n in range(4):
                archive.write(tmp_path / f"{n}.png", f"{n}.png")
    else:
        with tarfile.open(path, "w:gz" if suffix.endswith("gz") else "w") as archive:
            for n in range(4):
                archive.add(tmp_path / f"{n}.png", f"{n}.png")
    request.getfixturevalue("no_parsers")
    assert np.array_equal(data.load(path, cache=False).pixels[:, 0], PIXELS[:4])


def answering(monkeypatch, code):
    """Have another program in place of the process."""
    monkeypatch.setattr(apart.children, "command", lambda *arguments: [sys.executable, "-c", code])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os; os._exit(3)", "ended the process that read it"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("print('nonsense')", "ended the process"),
        ("print('{\"bytes\": 99999999999999}')", "more than"),
        ("print('{\"bytes\": 0}')", "can't be read|ended the process"),
        ("print('{\"bytes\": 8}')", "ended the process"),
        ('print(\'{"error": "no good", "input": true}\')', "no good"),
    ],
)
def test_no_answer_is_trusted(code, words, tmp_path, monkeypatch):
    path = written("csv", tmp_path)
    answering(monkeypatch, code)
    with pytest.raises(InputError, match=words):
        data.load(path, cache=False)


@pytest.mark.parametrize("kind", ['"|O"', '"<f4"', '[["a", "|O"]]', '"nothing"', "7"])
def test_an_answer_holds_numbers_and_text_only(kind, tmp_path, monkeypatch):
    """Bytes that the process calls Python objects would be addresses."""
    said = f'{{"bytes": 16, "values": {{"shape": [3], "type": {kind}, "by_columns": false}}, "labels": null}}'
    answering(monkeypatch, f"print('''{said}'''); print('x' * 15); print('{{\"end\": 1}}')")
    with pytest.raises(InputError, match="can't be read"):
        apart.scan("table", tmp_path / "a.csv", DataSettings())


def test_a_process_that_says_nothing_is_ended(tmp_path, monkeypatch):
    path = written("csv", tmp_path)
    monkeypatch.setattr(apart, "SECONDS", 0.3)
    answering(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(InputError, match=r"takes longer to read than the 0\.3 s"):
        data.load(path, cache=False)


def test_the_process_can_not_write(tmp_path):
    """What a parser that a file has taken over would try."""
    code = (
        "import sys; from neurosql.data.rights import restrict; restrict(2**30)\n"
        f"open({str(tmp_path / 'x')!r}, 'wb').write(b'1' * 5000)"
    )
    done = apart.subprocess.run([sys.executable, "-P", "-c", code], capture_output=True)
    assert done.returncode != 0 and (tmp_path / "x").stat().st_size == 0
