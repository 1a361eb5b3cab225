"""Results of version 0.1.0, with one column per score, are migrated without loss."""

import csv
import shutil
from pathlib import Path

import pytest

from neurosql import cli
from neurosql.bench import rows
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.errors import InputError

OLD = Path(__file__).parent.parent / "fixtures" / "bench-0.1.0"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(OLD, tmp_path / "laptop")


def lines(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def state(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def wide(folder, name):
    """The table in the old form, cell by cell as text, made from the two tables of the present form."""
    runs = {(line["config"], line["seed"]): dict(line) for line in lines(folder / f"{name}.csv")}
    scores = folder / "scores" / f"{name}.csv"
    for line in lines(scores) if scores.is_file() else []:
        key = " ".join(part for part in (line["score"], line["features"], line["mode"]) if part)
        runs[line["config"], line["seed"]] |= {key: line["value"], f"floor: {key}": line["floor"]}
    return list(runs.values())


@pytest.mark.parametrize("name", ["mnist", "runtime"])
def test_every_cell_of_an_old_table_is_in_the_two_files(name, folder):
    with pytest.raises(InputError, match="bench migrate") if name == "mnist" else _nothing():
        rows.read(folder / f"{name}.csv")
    assert cli.main(["bench", "migrate", str(folder)]) == 0
    old, again = lines(OLD / f"{name}.csv"), wide(folder, name)
    assert len(old) == len(again) > 0
    for before, after in zip(old, again):
        assert {k: v for k, v in before.items() if v and k != "config"} == {
            k: v for k, v in after.items() if v and k != "config"
        }
    found = rows.read(folder / f"{name}.csv")
    assert [seed for _, seed in found] == [int(line["seed"]) for line in old]
    assert set(found) <= {job.key for job in EXPERIMENTS[name].jobs("laptop")}


def test_a_second_time_changes_nothing(folder, capsys):
    assert cli.main(["bench", "migrate", str(folder)]) == 0
    assert "scores of 4 runs moved to scores/mnist.csv" in capsys.readouterr().out
    before = state(folder)
    assert cli.main(["bench", "migrate", str(folder)]) == 0
    assert state(folder) == before
    said = capsys.readouterr().out
    assert "mnist.csv: nothing to do" in said and "re-keyed   0 of 7 runs" in said


def test_runs_under_another_hash_get_the_declared_one_with_their_scores_and_folders(folder, capsys):
    # As if settings had been renamed since: every hash is different, and one run was never declared.
    table = (folder / "mnist.csv").read_text("utf-8")
    runs = lines(OLD / "mnist.csv")
    for run in runs:
        table = table.replace(run["config"], run["config"][::-1])
    first = (runs[0]["config"][::-1], runs[0]["seed"])
    table = table.replace("DDPM", "DDPM of old")
    (folder / "mnist.csv").write_text(table, "utf-8")
    (folder / "jobs" / "-".join(first)).mkdir(parents=True)
    assert cli.main(["bench", "migrate", str(folder)]) == 0
    said = capsys.readouterr().out
    known = [run for run in runs if run["arm"] != "DDPM"]
    assert f"{len(known)} of {len(runs)} runs re-keyed" in said
    assert said.count("unmatched  ") == len(runs) - len(known) and "arm=DDPM of old" in said
    found = rows.read(folder / "mnist.csv")
    declared = {job.key for job in EXPERIMENTS["mnist"].jobs("laptop", 2)}
    assert {key for key, row in found.items() if row["arm"] == "NeuroSQL"} <= declared
    assert all(row["scores"] for row in found.values())
    (config, seed), *_ = found
    assert [path.name for path in (folder / "jobs").iterdir()] == [f"{config}-{seed}"]
    before = state(folder)
    assert cli.main(["bench", "migrate", str(folder)]) == 0 and state(folder) == before


def test_a_current_run_is_not_overwritten_by_an_old_one(folder, capsys):
    assert cli.main(["bench", "migrate", str(folder)]) == 0
    head, first, *_ = (folder / "runtime.csv").read_text("utf-8").splitlines()
    config = lines(folder / "runtime.csv")[0]["config"]
    (folder / "runtime.csv").write_text("\n".join([head, first.replace(config, "0" * 12), first, ""]), "utf-8")
    assert cli.main(["bench", "migrate", str(folder)]) == 0
    assert set(rows.read(folder / "runtime.csv")) == {("0" * 12, 0), (config, 0)}
    assert "is in the table already" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", ["column", "table", "budget"])
def test_what_is_not_known_is_refused_and_nothing_is_changed(spoil, folder, capsys):
    if spoil == "column":
        text = (folder / "mnist.csv").read_text("utf-8")
        (folder / "mnist.csv").write_text(text.replace("drift codes", "beauty codes", 1), "utf-8")
    elif spoil == "table":
        shutil.copy(folder / "mnist.csv", folder / "celebrities.csv")
    else:
        folder = folder.rename(folder.parent / "elsewhere")
    before = state(folder)
    assert cli.main(["bench", "migrate", str(folder)]) == 2
    assert state(folder) == before
    said = {"column": "beauty codes", "table": "celebrities.csv", "budget": "--budget"}[spoil]
    assert said in capsys.readouterr().err


def _nothing():
    from contextlib import nullcontext

    return nullcontext()
