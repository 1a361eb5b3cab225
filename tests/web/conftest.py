"""One small run and one server for the tests of the explorer."""

import hashlib

import numpy as np
import pytest
from asking import Client

pytest.importorskip("starlette", reason="the explorer needs Starlette: install the extra `web`")
pytest.importorskip("uvicorn", reason="the explorer needs uvicorn: install the extra `web`")

from neurosql import fit
from neurosql.app.explorer import Opened
from neurosql.web.serving import Serving

QUICK = dict(generator="mlp", width=16, epochs=2, validation_share=0.3)


@pytest.fixture(scope="package")
def folder(digits, tmp_path_factory):
    """A folder with data and a run on them; its labels and names are those that must be escaped."""
    place = tmp_path_factory.mktemp("explorer")
    names = np.array(["zero", "<b>one</b>", "=two"])[digits[1][:200] % 3]
    np.savez(place / "digits.npz", images=(digits[0][:200] * 255).round().astype(np.uint8), labels=names)
    fit(str(place / "digits.npz"), out=place / "run", **QUICK)
    before = state(place / "run")
    yield place
    assert state(place / "run") == before, "looking at a run has changed its folder"


def state(run):
    """Every file of a run, with its time and its content."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    return [(path, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


@pytest.fixture(scope="package")
def opened(folder):
    return Opened(folder / "run")


@pytest.fixture(scope="package")
def server(opened):
    """The server of that run, in a thread."""
    serving = Serving([opened])
    thread = serving.start()
    yield serving
    serving.stop(thread)


@pytest.fixture
def client(server):
    return Client(server)
