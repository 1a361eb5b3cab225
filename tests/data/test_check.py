"""`neurosql data check` and `neurosql data fetch`."""

import gzip
import hashlib
import http.server
import threading
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from neurosql import InputError, data
from neurosql.app import check_data
from neurosql.cli import main
from neurosql.data import fetch
from neurosql.settings import DataSettings


def save(folder, n=9):
    random = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for i in range(n):
            coarse = random.integers(0, 256, (5, 5, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((40, 30), Image.Resampling.BICUBIC).save(folder / kind / f"{i}.png")
    return folder


def test_check_says_everything_and_draws_a_sheet(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "pets")
    (folder / "cat" / "bad.png").write_text("<!doctype html><title>404</title>")
    Image.open(folder / "dog" / "0.png").save(folder / "dog" / "copy.png")
    Image.open(folder / "dog" / "1.png").save(folder / "dog" / "again.jpg", quality=80)
    Image.new("RGB", (40, 30), "red").save(folder / "cat" / "blank.png")
    assert main(["data", "check", str(folder), "--image-size", "24"]) == 0
    out = capsys.readouterr().out
    assert "recognised folder, 22 samples" in out and "cat 10, dog 11" in out
    assert "40 x 30, brought to 24 x 24 by centre-crop" in out
    assert "1 samples repeat another" in out and "4 samples have a near duplicate" in out
    assert "bad        cat/bad.png can't be read as an image: it is a web page" in out
    assert "1 training samples are blank" in out and "subjects   not known" in out and "memory" in out
    with Image.open(tmp_path / "pets-check.png") as sheet:
        assert sheet.size == (768, 288) and np.asarray(sheet).std() > 20


def test_the_command_that_trains_keeps_lookalikes_together_if_they_would_be_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "pets", n=15)
    for kind in ("cat", "dog"):
        for i in range(15):
            Image.open(folder / kind / f"{i}.png").save(folder / kind / f"{i}-again.jpg", quality=80)
    found = check_data(str(folder), DataSettings(image_size=24))
    assert any("in another part" in finding.what for finding in found.findings)
    assert "--group near-duplicates" in found.command and "lookalikes 30 groups" in found.report
    again = check_data(str(folder), found.settings)
    assert again.command == found.command and not any("near duplicate" in f.what for f in again.findings)


def test_check_says_which_preset_is_for_photographs_and_says_nothing_for_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "--preset photographs" in check_data(str(save(tmp_path / "pets")), DataSettings(image_size=24)).hint
    assert check_data("mnist-sample", DataSettings(limit=40)).hint is None


def test_check_of_the_sample_of_vectors_and_of_volumes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "check", "mnist-sample", "--sheet", "sheets/digits.png"]) == 0
    out = capsys.readouterr().out
    assert "validation 256" in out and "test       1,792" in out and (tmp_path / "sheets" / "digits.png").exists()
    np.save(tmp_path / "table.npy", np.random.default_rng(0).normal(size=(20, 3)))
    assert main(["data", "check", "table.npy"]) == 0
    assert "20 vectors of 3 numbers" in capsys.readouterr().out and not (tmp_path / "table-check.png").exists()
    np.savez(tmp_path / "v.npz", train_images=np.random.default_rng(0).integers(0, 256, (4, 9, 9, 9), dtype=np.uint8))
    assert main(["data", "check", "v.npz"]) == 0
    assert "volumes of 9 x 9 x 9" in capsys.readouterr().out and (tmp_path / "v-check.png").exists()
    assert main(["data", "check", "nowhere"]) == 2
    assert "no such data" in capsys.readouterr().err


class Handler(http.server.BaseHTTPRequestHandler):
    files: ClassVar[dict] = {}
    break_off: ClassVar[set] = set()
    seen: ClassVar[list] = []

    def do_GET(self):
        self.seen.append((self.path, self.headers.get("Range")))
        content = self.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int((self.headers.get("Range") or "bytes=0-")[6:].rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.path in self.break_off:
            self.break_off.discard(self.path)
            self.wfile.write(content[start : start + (len(content) - start) // 2])
            self.close_connection = True
            return
        self.wfile.write(content[start:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    """A data set of four files on this machine, with a mirror that has none of them."""
    Handler.files, Handler.break_off, Handler.seen = {}, set(), []
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{running.server_port}"
    files = {}
    for part, n in (("train", 12), ("t10k", 4)):
        for what, values in (("images-idx3", np.zeros((n, 8, 8), np.uint8)), ("labels-idx1", np.zeros(n, np.uint8))):
            head = bytes([0, 0, 8, values.ndim]) + b"".join(int(k).to_bytes(4, "big") for k in values.shape)
            content = gzip.compress(head + values.tobytes(), mtime=0)
            Handler.files[f"/good/{part}-{what}-ubyte.gz"] = content
            files[f"{part}-{what}-ubyte.gz"] = hashlib.md5(content).hexdigest()
    mirrors = (f"{address}/none/", f"{address}/good/")
    monkeypatch.setitem(fetch.SETS, "mnist", fetch.Remote("MNIST/raw", mirrors, files))
    yield address
    running.shutdown()
    running.server_close()
    thread.join()


def test_fetch_takes_the_mirror_that_works_and_what_it_brings_is_read(server, tmp_path, capsys):
    assert main(["data", "fetch", "mnist", "--out", str(tmp_path / "data")]) == 0
    assert "neurosql train" in capsys.readouterr().out
    images = data.load(tmp_path / "data")
    assert len(images) == 12 and len(images.test) == 4
    asked = len(Handler.seen)
    assert main(["data", "fetch", "mnist", "--out", str(tmp_path / "data")]) == 0
    assert len(Handler.seen) == asked and "have " in capsys.readouterr().out


def test_fetch_resumes_where_it_broke_off(server, tmp_path):
    name = "/good/train-images-idx3-ubyte.gz"
    Handler.break_off.add(name)
    fetch.fetch("mnist", tmp_path)
    half = len(Handler.files[name]) // 2
    assert (name, f"bytes={half}-") in Handler.seen
    assert len(data.load(tmp_path)) == 12 and not list(tmp_path.rglob("*.part"))


def test_fetch_refuses_a_wrong_checksum_and_unknown_sets(server, tmp_path, capsys):
    Handler.files["/good/train-images-idx3-ubyte.gz"] = b"<html>sign in</html>"
    assert main(["data", "fetch", "mnist", "--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "the checksum is wrong" in err and "it answered 404" in err and err.count("\n") == 1
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
    with pytest.raises(InputError, match="no set is called 'imagenet'"):
        fetch.fetch("imagenet", tmp_path)


def test_fetch_without_a_network_is_one_sentence(tmp_path, monkeypatch, capsys):
    closed = fetch.Remote("x", ("http://127.0.0.1:9/",), {"a.npz": "0"})
    monkeypatch.setitem(fetch.SETS, "mnist", closed)
    assert main(["data", "fetch", "mnist", "--out", str(tmp_path)]) == 2
    assert "if this network does not allow it" in capsys.readouterr().err


def test_addresses_are_https_and_checksums_are_whole():
    for remote in fetch.SETS.values():
        assert all(mirror.startswith("https://") for mirror in remote.mirrors)
        assert all(len(md5) == 32 and int(md5, 16) for md5 in remote.files.values())
    with pytest.raises(ValueError, match="not https"):
        fetch._download("http://example.org/x", None)
