"""What a source distribution contains: everything that a build needs, and nothing that is useless elsewhere."""

import os
import tarfile
from pathlib import Path

import pytest

build = pytest.importorskip("scikit_build_core.build", reason="the build backend is not installed")

ROOT = Path(__file__).parent.parent


def test_the_source_distribution_has_the_native_sources(tmp_path, monkeypatch):
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("these tests do not stand in a source tree")
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / build.build_sdist(str(tmp_path))) as archive:
        names = {os.path.join(*Path(name).parts[1:]) for name in archive.getnames()}
    needed = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native").iterdir() if path.is_file()}
    needed |= {"pyproject.toml", "README.md", "LICENSE", "src/neurosql/py.typed", "src/neurosql/data/mnist_sample.npz"}
    needed |= {"src/neurosql/bench/printed.csv"}
    assert needed <= names
    expected = {"src", "native", "tests", "docs", "benchmarks", "scripts", "examples"}
    folders = {Path(name).parts[0] for name in names if len(Path(name).parts) > 1}
    assert folders <= expected
    assert not [name for name in names if name.endswith((".so", ".pyc", ".whl")) or "__pycache__" in name]
