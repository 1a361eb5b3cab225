"""Parsers take damaged and odd files in good order: a data set, or one printable line, and nothing else.

`python benchmarks/fuzz_all.py` runs 100,000 cases for each of them.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fuzz_all
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


def test_an_account_is_continued_and_counts_each_case_once(tmp_path, monkeypatch, capsys):
    """Stopped half-way, with a line that was cut off, and started again: as if it had never been stopped."""
    account = tmp_path / "fuzz.jsonl"
    monkeypatch.setattr(fuzz_all, "USUAL_BLOCK", 20)
    monkeypatch.setattr(fuzz_all, "in_a_process", fuzz_all.run)

    def fuzz(cases):
        given = ["fuzz_all.py", "--cases", str(cases), "--parsers", "split", "csv", "--account", str(account)]
        monkeypatch.setattr(sys, "argv", given)
        return fuzz_all.main()

    assert fuzz(30) == 0
    with open(account, "a") as file:
        file.write('{"parser": "split", "seed')
    assert fuzz(50) == 0
    done = fuzz_all.read(account)
    for parser in ("split", "csv"):
        numbers = [n for b in done if b.parser == parser for n in range(b.first, b.first + b.cases)]
        assert sorted(numbers) == list(range(50))
        assert sum(b.read + b.refused for b in done if b.parser == parser) == 50
    assert "| csv | 50 |" in (tmp_path / "fuzz.md").read_text() and "| split | 50 |" in capsys.readouterr().out


def test_a_block_that_ends_its_process_is_wrong(monkeypatch):
    monkeypatch.setattr(fuzz_all, "__file__", "/nowhere/fuzz_all.py")
    done = fuzz_all.in_a_process(fuzz_all.Block("csv", 0, 0, 10))
    assert len(done.found) == 1 and "| csv | 10 | 0 | 0 | 1 |" in fuzz_all.table([done])
