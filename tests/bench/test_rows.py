"""Rows of results: in files, and of several machines."""

import numpy as np
import pytest
from toy_results import SSIM, scored, toy_rows

from neurosql import cli
from neurosql.bench import jobs as jobs_folder
from neurosql.bench import rows
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.errors import InputError


def test_rows_survive_the_file(tmp_path):
    results = toy_rows(a=0.1, b=1 / 3)
    results[0] |= {"reason": 'it said "no", twice', "images": 2000}
    rows.write(tmp_path / "t.csv", results)
    again = rows.read(tmp_path / "t.csv")
    assert [again[rows.key_of(row)]["scores"] for row in results] == [row["scores"] for row in results]
    rows.write(
        tmp_path / "hash.csv", [results[0] | {"config": "12e456789012"}, results[1] | {"config": "000123456789"}]
    )
    assert list(rows.read(tmp_path / "hash.csv")) == [("12e456789012", 0), ("000123456789", 1)]
    assert again["a", 0]["reason"] == results[0]["reason"] and again["a", 0]["images"] == 2000
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a table of results"):
        rows.read(tmp_path / "t.csv")


def test_merging_prefers_runs_that_finished(tmp_path):
    one, two = toy_rows(a=0.1), toy_rows(a=0.2, b=0.3)
    one[0] |= {"status": "failed", "reason": "no luck"}
    merged = rows.merge([{rows.key_of(r): r for r in one}, {rows.key_of(r): r for r in two}])
    assert merged["a", 0] == two[0] and merged["a", 1] == one[1] and len(merged) == 10


def test_results_of_two_machines_are_joined(tmp_path, capsys):
    jobs = list(EXPERIMENTS["start"].jobs("laptop", 2))
    made = [scored(rows.identity(job) | {"status": "done"}, {SSIM: 0.1 * i}) for i, job in enumerate(jobs)]
    for i in (0, 1):
        rows.write(tmp_path / f"m{i}" / "start.csv", made[i::2])
    left = f"{jobs_folder.JOBS}/{jobs[1].folder}/{jobs_folder.SAMPLES}"
    (tmp_path / "m1" / left).parent.mkdir(parents=True)
    np.savez(tmp_path / "m1" / left, samples=np.zeros((36, 1, 4, 4), np.uint8))
    assert cli.main(["bench", "merge", str(tmp_path / "m0"), str(tmp_path / "m1"), "--out", str(tmp_path / "all")]) == 0
    joined = rows.read(tmp_path / "all" / "start.csv")
    assert list(joined) == [job.key for job in jobs]
    assert (tmp_path / "all" / left).is_file()
    assert cli.main(["bench", "merge", str(tmp_path / "nowhere"), "--out", str(tmp_path / "all")]) == 2
    assert cli.main(["report", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all" / "index.html").is_file() and (tmp_path / "all" / "tables" / "start.tex").is_file()
    assert cli.main(["report", str(tmp_path / "m0" / "none.csv")]) == 2
    assert "neither a run folder" in capsys.readouterr().err
