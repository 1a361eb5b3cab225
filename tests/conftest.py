"""Shared by the tests: small real images, and where the optional large ones are."""

import os
import signal
from pathlib import Path

# Without it, scikit-learn's checks skip one of theirs; scipy reads it when it is first imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# One thread per test process, or parallel processes would wait for each other's; torch reads it when it is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# `make sanitize` tests another build of the extension than the installed one.
if folder := os.environ.get("NEUROSQL_EXTENSION"):
    import importlib.util
    import sys

    found = next(Path(folder).glob("_native*.so"))
    spec = importlib.util.spec_from_file_location("neurosql._native", found)
    assert spec is not None and spec.loader is not None
    sys.modules["neurosql._native"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["neurosql._native"])

import numpy as np
import pytest
from sklearn.datasets import load_digits


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Give the tests a cache of their own."""
    before = os.environ.get("NEUROSQL_CACHE")
    os.environ["NEUROSQL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    del os.environ["NEUROSQL_CACHE"]
    if before is not None:
        os.environ["NEUROSQL_CACHE"] = before


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's 8 x 8 digits: (images (n, 8, 8) in [0, 1], labels)."""
    bunch = load_digits()
    return (bunch.images / 16).astype(np.float32), bunch.target


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data sets that NEUROSQL_DATA names; tests that need it are skipped without it."""
    folder = os.environ.get("NEUROSQL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the real data sets: set NEUROSQL_DATA to their folder")
    return Path(folder)


def pytest_configure(config):
    """Hear the signals that tests send, also if the tests were started in the background, where SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
