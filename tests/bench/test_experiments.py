"""Every experiment at the smallest budget, from its runs to its page."""

import shutil

import pytest

from neurosql import cli
from neurosql.bench import compare, rows
from neurosql.bench import jobs as jobs_folder
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.report import bench as page
from neurosql.report import tables

NAMES = list(EXPERIMENTS)
ASKED = ("main", "mnist", "celeba", "afhq", "oasis", "assignment", "cost", "schedule", "resolution", "runtime")
ASKED += ("scalability", "downstream", "planes", "sheets", "start", "lattice", "subset", "momentum", "presets")


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_runs_and_fills_its_table(name, results_of, alike, jobs, tmp_path):
    experiment = EXPERIMENTS[name]
    results = results_of(experiment, alike)
    rows.write(tmp_path / f"{name}.csv", results)
    table = compare.build(experiment, rows.read(tmp_path / f"{name}.csv").values())
    needs_weights = {column for column in experiment.columns if column.record.weights or column.features == "vgg"}
    assert set(table.columns) == set(experiment.columns) - needs_weights
    lines = {(tuple(row[factor] for factor in experiment.rows), row["arm"]) for row in results}
    assert set(table.lines) == lines and len(results) == len(list(experiment.jobs("smoke", 1)))
    written = page.write(experiment, tmp_path / f"{name}.csv", jobs)
    text = written[0].read_text("utf-8")
    assert all(arm.name.replace("'", "&#x27;") in text for grid in experiment.grids for arm in grid.arms)
    floors = tables.floors_of(table)
    assert floors is None or tables.floors_in_words(table) in text
    plotted = "lines" in experiment.figures or (
        "latent_dim" in experiment.rows and len({r["data"] for r in results}) == 1
    )
    places = {(row["data"], row["pixels"], row["latent_dim"]) for row in results if row["latent_dim"] != ""}
    sheets = len(places) if "samples" in experiment.figures else 0
    planes = len({place for place in places if place[2] == 2}) if "planes" in experiment.figures else 0
    assert text.count("data:image/png") == sheets + planes + plotted
    drawn = [file.name for file in written if file.parent.name == jobs_folder.PICTURES]
    shared = [place for place in places if place[0] != "celeba"] if sheets else []
    assert len(drawn) == len(shared) + planes + plotted
    # From a copy without the runs, the page is the same but for samples that may not be passed on.
    copied = shutil.copytree(tmp_path, tmp_path / "copy")
    again = page.write(experiment, copied / f"{name}.csv")[0].read_text("utf-8")
    assert again.count("data:image/png") == text.count("data:image/png") - (sheets - len(shared))
    assert not [file for file in tmp_path.rglob(f"{name}-*celeba-*.png") if file.parent.name == jobs_folder.PICTURES]


def test_the_list_names_every_experiment(capsys):
    assert cli.main(["bench", "list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == NAMES and set(ASKED) <= set(listed)
    assert {f"{data}-{net}" for data in ("mnist", "celeba", "afhq", "oasis") for net in ("resnet", "unet")} <= set(
        NAMES
    )
