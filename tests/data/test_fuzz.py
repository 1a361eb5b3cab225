"""Parsers take damaged and odd files in good order: a data set, or one printable line, and nothing else.

`python benchmarks/fuzz_readers.py --cases 100000` runs as many cases as you have time for.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fuzz_readers

sys.path.pop(0)

CASES = {"image": 150, "wav": 100, "parquet": 100, "nifti": 150, "slices": 100, "npz": 150, "medmnist": 150}
MANY = 300


@pytest.mark.parametrize("parser", fuzz_readers.PARSERS)
def test_every_damaged_file_is_read_or_refused_in_a_line(parser, monkeypatch):
    for needed in {"parquet": ["pyarrow"], "nifti": ["nibabel"], "slices": ["nibabel"]}.get(parser, []):
        pytest.importorskip(needed, reason=f"needs {needed}")
    outcome = fuzz_readers.fuzz(parser, range(CASES.get(parser, MANY)))
    assert not outcome.found, "\n".join(outcome.found[:10])
    assert outcome.read and outcome.refused


def test_a_case_is_the_same_every_time_and_differs_from_the_next():
    parser = fuzz_readers.PARSERS["csv"]
    first, again, next_, other = (fuzz_readers.content_of(parser, *case) for case in ((0, 7), (0, 7), (0, 8), (1, 7)))
    assert first == again and first != next_ and first != other


def test_what_is_not_in_good_order_is_found(monkeypatch):
    def careless(path):
        content = path.read_bytes()
        if b"nan" in content:
            raise KeyError("nan")
        if b"inf" in content:
            (path.parent / "left").write_text("")

    monkeypatch.setitem(fuzz_readers.PARSERS, "csv", fuzz_readers.Parser("a.csv", fuzz_readers.made.table, careless))
    found = fuzz_readers.fuzz("csv", range(100)).found
    assert any("KeyError" in line for line in found) and any("left" in line for line in found)
