"""Benches: declarations, rows, statistics, the queue, and every experiment at the smallest budget."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from neurosql import cli, presets
from neurosql.bench import compare, queue, rows, sources, work
from neurosql.bench import jobs as jobs_folder
from neurosql.bench import merge as merge_benches
from neurosql.bench import run as run_bench
from neurosql.bench.declare import SCALES, Arm, Experiment, Grid, Job
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.bench.experiments.choices import DIFFER, TO_OURS, TO_PAPER
from neurosql.errors import InputError
from neurosql.metrics.column import Column, of_codes, paired_train, resource, sampled
from neurosql.report import bench as page
from neurosql.report import plots, tables

NAMES = list(EXPERIMENTS)
ASKED = ("main", "mnist", "celeba", "afhq", "oasis", "assignment", "cost", "schedule", "resolution", "runtime")
ASKED += ("scalability", "downstream", "planes", "sheets", "start", "lattice", "subset", "momentum", "presets")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Small stand-ins for celeba, afhq, oasis and mnist, in the layouts that people have."""
    root = tmp_path_factory.mktemp("data")
    chance = np.random.default_rng(0)

    def save(path, channels):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Coarse blocks: no two heads are alike, so none are near duplicates.
        coarse = chance.integers(0, 256, (5, 5, channels), np.uint8).repeat(6, 0).repeat(6, 1)
        Image.fromarray(coarse[..., 0] if channels == 1 else coarse).save(path, quality=90)

    for i in range(150):
        save(root / "celeba" / "img_align_celeba" / f"{i + 1:06d}.jpg", 3)
        save(root / "afhq" / ("train" if i < 100 else "val") / "cat" / f"flickr_cat_{i:06d}.jpg", 3)
        kind = ("Non Demented", "Very mild Dementia", "Mild Dementia", "Moderate Dementia")[i % 4]
        save(root / "oasis" / "Data" / kind / f"slice_{i}.jpg", 1)
    return root


@pytest.fixture(scope="session")
def jobs(tmp_path_factory):
    """The folder of all runs. Experiments have runs in common, and the test processes share them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "jobs"
    folder.mkdir(exist_ok=True)
    return folder


def carried_out(experiment, root, folder, seeds=1):
    """Every run of an experiment, in this process unless another has done it."""
    results = []
    for job in experiment.jobs("smoke", seeds):
        own = folder / job.folder
        own.mkdir(exist_ok=True)
        with work.locked(own):
            if not (own / work.ROW).is_file():
                work.carry_out(job, sources.path_of(job, str(root)), own)
            row = rows.from_record(json.loads((own / work.ROW).read_text("utf-8")))
        results.append(rows.identity(job) | {k: v for k, v in row.items() if k not in rows.IDENTITY})
    return results


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_runs_and_fills_its_table(name, pictures, jobs, tmp_path):
    experiment = EXPERIMENTS[name]
    results = carried_out(experiment, pictures, jobs)
    rows.write(tmp_path / f"{name}.csv", results)
    table = compare.build(experiment, rows.read(tmp_path / f"{name}.csv").values())
    needs_weights = {column for column in experiment.columns if column.record.weights}
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
    # From a copy without the runs, the page is the same except for samples that may not be passed on.
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


@pytest.mark.parametrize("budget", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_lines_of_a_table_are_told_apart(name, budget):
    jobs = list(EXPERIMENTS[name].jobs(budget, 1))
    lines = [tuple(v for k, v in rows.identity(job).items() if k not in ("seed", "config", "preset")) for job in jobs]
    assert len(set(lines)) == len(lines) == len({job.key for job in jobs})
    for job in jobs[:3]:
        again = Job.from_record(json.loads(json.dumps(job.record())))
        assert again == job and again.config == job.config


def test_methods_on_one_seed_share_images_budget_and_generator():
    for name in ("mnist", "celeba"):
        jobs = list(EXPERIMENTS[name].jobs("laptop", 1))
        for what in ("epochs", "batch_size", "validation_share", "clip"):
            assert len({getattr(job.settings.training, what) for job in jobs}) == 1
        assert len({(job.images, job.pixels, job.settings.generator.size) for job in jobs}) == 1


def test_the_published_benches_are_as_large_as_they_should_be():
    jobs = list(EXPERIMENTS["mnist"].jobs("laptop"))
    assert {job.seed for job in jobs} == set(range(5)) and {job.images for job in jobs} == {2000}
    assert all(job.settings.training.epochs >= 40 for job in jobs)
    for arm in ("NeuroSQL", "NeuroSQL, paper", "VAE", "GAN"):
        assert {job.latent_dim for job in jobs if job.arm == arm} == {2, 3, 8, 16}
    for name in ("celeba", "afhq", "oasis"):
        jobs = list(EXPERIMENTS[name].jobs("laptop"))
        assert {job.seed for job in jobs} == set(range(3)) and min(job.pixels for job in jobs) >= 32
        assert {job.latent_dim for job in jobs if job.arm == "VAE"} == {2, 8, 32}


def test_the_choices_are_all_that_ours_and_the_papers_settings_differ_in():
    ours, papers = (presets.settings("neurosql", preset, "laptop").flat() for preset in ("recommended", "paper"))
    differ = {name: (ours[name], papers[name]) for name in ours if ours[name] != papers[name]}
    assert {name: (own[1], other[1]) for name, (own, other) in DIFFER.items()} == differ
    # Each contender is one step away from one end; the ends are those of the other tables.
    jobs = {job.arm: job for job in EXPERIMENTS["choices"].jobs("laptop", 1)}
    for start, steps in (("NeuroSQL, paper", TO_OURS), ("NeuroSQL", TO_PAPER)):
        end = jobs[start].settings.flat()
        for arm in steps:
            step = jobs[arm.name].settings.flat()
            assert [name for name in end if end[name] != step[name]] == list(arm.own)
    longer = jobs["paper, but three times the epochs"].settings.training.epochs
    assert longer == 3 * jobs["NeuroSQL, paper"].settings.training.epochs
    assert {jobs[arm].key for arm in ("NeuroSQL, paper", "NeuroSQL")} <= {
        job.key for job in EXPERIMENTS["mnist"].jobs("laptop", 1)
    }


# --- statistics ---


def test_estimates_are_those_of_scipy():
    values = np.random.default_rng(0).normal(size=5)
    found = compare.estimate(values)
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    np.testing.assert_allclose((found.low, found.high), expected)
    assert np.isnan(compare.estimate([1.0]).low)


def test_the_paired_test_is_that_of_scipy():
    chance = np.random.default_rng(1)
    for _ in range(20):
        a, b = chance.normal(size=(2, 6))
        assert compare.paired_p(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert compare.paired_p([1.0, 2.0], [1.0, 2.0]) == 1.0 and compare.paired_p([1.0], [5.0]) == 1.0
    assert compare.paired_p([1.0, 2.0, 3.0], [2.0, 3.0, 4.0]) == 0.0


def test_holm_rejects_step_by_step():
    chance = np.random.default_rng(2)
    for _ in range(50):
        p = chance.random(8) ** 3
        rejected = set()
        for rank, place in enumerate(np.argsort(p)):
            if p[place] > 0.05 / (8 - rank):
                break
            rejected.add(place)
        assert {i for i, q in enumerate(compare.holm(p)) if q <= 0.05} == rejected
    assert compare.holm([]) == []


SSIM, AGAIN, DRIFT, PROXY = sampled("ssim"), paired_train("ssim"), of_codes("drift"), sampled("proxy-fid", "random net")
TIME, TRAINED = resource("epoch seconds"), resource("parameters trained")
TOY = Experiment("toy", "Toy", "?", (Grid((Arm("a"), Arm("b"), Arm("c"))),), (SSIM, DRIFT))


def scored(row, values):
    """A row with scores besides those that it has."""
    return row | {"scores": row.get("scores", {}) | {column: rows.Found(value) for column, value in values.items()}}


def toy_rows(**of):
    """Rows with an SSIM of mean `of[arm]` and a small common noise by seed."""
    chance = np.random.default_rng(3)
    noise = chance.normal(scale=0.1, size=5)
    own = {arm: chance.normal(scale=0.001, size=5) for arm in of}
    return [
        {"data": "mnist", "latent_dim": 8, "backbone": "convnet", "arm": arm, "seed": seed, "status": "done"}
        | scored({"config": arm}, {SSIM: float(mean + noise[seed] + own[arm][seed]), DRIFT: 1.0})
        for arm, mean in of.items()
        for seed in range(5)
    ]


def test_a_cell_is_bold_only_when_it_is_better_than_every_other():
    table = compare.build(TOY, toy_rows(a=0.5, b=0.4, c=0.3))
    assert table.bold == {(("mnist", 8), "a", SSIM)}
    assert table.wins() == {"a": (2, 0, 2), "b": (1, 1, 2), "c": (0, 2, 2)}
    # If it is level with one other, it is not the best, however far behind the third is.
    level = compare.build(TOY, toy_rows(a=0.5, b=0.5, c=0.3))
    assert level.bold == set() and level.wins()["c"] == (0, 2, 2)
    assert compare.build(TOY, [row for row in toy_rows(a=0.5, b=0.1) if row["seed"] == 0]).bold == set()


def test_methods_without_a_latent_dimension_meet_those_of_every_dimension():
    results = toy_rows(a=0.5, b=0.4) + [row | {"latent_dim": 2} for row in toy_rows(a=0.5, b=0.4)]
    results += [row | {"latent_dim": ""} for row in toy_rows(c=0.3)]
    table = compare.build(TOY, results)
    assert table.wins()["c"][2] == 4 and table.wins()["a"][2] == 4
    assert {group for group, _, _ in table.bold} == {("mnist", 2), ("mnist", 8)}


def test_ratios_are_to_the_same_seed_of_the_same_group():
    taken = {
        ("a", 2): (10.0, 30.0),
        ("b", 2): (2.0, 3.0),
        ("a", 8): (5.0, 6.0),
        ("b", 8): (1.0, 1.0),
        ("c", ""): (4, 6),
    }
    results = [
        {"data": "mnist", "latent_dim": dim, "backbone": "convnet", "arm": arm, "seed": seed, "status": "done"}
        | {"epoch seconds": seconds}
        for (arm, dim), both in taken.items()
        for seed, seconds in enumerate(both)
    ]
    column = resource("epoch seconds", over="b")
    table = compare.build(replace(TOY, columns=(TIME, column)), results)
    means = {(group[1], arm): table.cells[group, arm, column].mean for group, arm in table.lines}
    assert means == {(2, "a"): 7.5, (2, "b"): 1.0, (8, "a"): 5.5, (8, "b"): 1.0, ("", "c"): 2.0}
    assert {d.column for d in table.differences} == {TIME}
    assert tables.heading(column) == ("epoch seconds ↓", "over b's")
    alone = compare.build(replace(TOY, columns=(column,)), [row for row in results if row["arm"] != "b"])
    assert alone.columns == ()


def test_what_is_chosen_beforehand_is_shown_and_not_tested():
    results = [row | {"parameters trained": len(row["arm"])} for row in toy_rows(a=0.5, bb=0.4)]
    table = compare.build(replace(TOY, columns=(SSIM, TRAINED)), results)
    assert table.cells[("mnist", 8), "bb", TRAINED].mean == 2
    assert {d.column for d in table.differences} == {SSIM}


def test_averages_are_of_contenders_that_ran_in_every_dimension():
    results = [row | {"latent_dim": dim} for dim in (2, 8) for row in toy_rows(a=0.5 + 0.01 * dim)]
    results += toy_rows(b=0.4) + [row | {"latent_dim": ""} for row in toy_rows(c=0.3)]
    table = compare.build(TOY, results, averaged=True)
    assert table.lines == [(("mnist",), "a"), (("mnist",), "c")]
    assert len(compare.build(TOY, results).lines) == 4


def test_every_score_has_the_direction_that_it_declares(digits):
    import neurosql
    from neurosql import data, evaluate

    images = data.from_array(digits[0][:120], digits[1][:120])
    run = neurosql.fit(images, budget="smoke", latent_dim=2, width=16, conditional=True)
    unseen = data.from_array(digits[0][120:200], digits[1][120:200])
    options = evaluate.Options(samples=40, downstream=True, synthetic=40, classifier_steps=3)
    found = evaluate.evaluate(run, images.take(run.index), unseen, options)
    assert found.scores and {s.key for s in found.scores if s.direction != s.column.record.direction} == set()
    for score in found.scores:
        score.column.check()
    with pytest.raises(InputError, match="score must be one of"):
        assert Column("beauty").record is None


def test_the_papers_figures_stand_beside_the_cells_that_they_belong_to():
    results = [scored(row | {"arm": "VAE"}, {PROXY: 1.0}) for row in toy_rows(a=0.5)]
    results = [row | {"latent_dim": 2} for row in results]
    table = compare.build(EXPERIMENTS["mnist"], results)
    assert table.printed[("mnist", 2), "VAE", "proxy-fid"] == pytest.approx(1.070473)
    averages = compare.build(EXPERIMENTS["mnist"], results, averaged=True)
    assert averages.printed[("mnist",), "VAE", "ssim"] == pytest.approx(0.178999)
    main = compare.build(EXPERIMENTS["main"], results)
    assert main.printed[("mnist",), "VAE", "ssim"] == pytest.approx(0.179)
    accuracy = sampled("downstream accuracy")
    classified = [scored(row | {"arm": "NeuroSQL, by class"}, {accuracy: 0.9}) for row in results]
    assert compare.build(EXPERIMENTS["downstream"], classified).printed[
        ("mnist", 2), "NeuroSQL, by class", "downstream accuracy"
    ] == pytest.approx(0.8771)
    timed = [row | {"arm": "NeuroSQL, greedy", "epoch seconds": 2.0} for row in results]
    assert compare.build(EXPERIMENTS["runtime"], timed).printed[
        ("mnist", 2), "NeuroSQL, greedy", "epoch seconds"
    ] == pytest.approx(1.4)


def test_a_figure_of_the_paper_stands_beside_ours():
    ours = {PROXY: 1.0, SSIM: 0.1, AGAIN: 0.6}
    results = [
        scored(row | {"arm": arm, "latent_dim": 2}, ours) for row in toy_rows(a=0.5) for arm in ("VAE", "NeuroSQL, x")
    ]
    table = compare.build(EXPERIMENTS["mnist"], results)
    assert tables.layout(table) == [PROXY, "proxy-fid", SSIM, "ssim", AGAIN, "lpips"]
    heads, _, *lines = tables.to_markdown(table).splitlines()[2:]
    assert [len(line.split("|")) for line in lines] == [len(heads.split("|"))] * len(lines)
    shown = dict(zip(heads.split("|"), lines[0].split("|")))
    assert shown[" proxy-fid (in the paper) "] == " 1.070 " and shown[" ssim ↑ (sampled) "] == " 0.100 "
    cells = [line.split("&") for line in tables.to_latex(table).splitlines() if "&" in line]
    assert {len(row) for row in cells} == {2 + 1 + len(tables.layout(table))} and "1.070" in cells[1][4]
    drawn = tables.to_html(table).split("<tr")[1:]
    assert len({row.count("</td>") + row.count("</th>") for row in drawn}) == 1


def test_tables_as_latex_markdown_and_csv_hold_the_same_figures():
    table = compare.build(TOY, toy_rows(a=0.5, b=0.4, c=0.3))
    latex, plain = tables.to_latex(table), tables.to_csv(table).splitlines()
    assert latex.count(r"\textbf") == 1 and latex.count(r"\\") >= 4 and "Toy" in latex
    assert plain[0].startswith("data,latent_dim,method,score,features,mode,mean") and len(plain) == 1 + 3 * 2
    shown = tables.figure(table.cells[("mnist", 8), "a", SSIM].mean)
    assert shown in latex and f"**{shown}** ±" in tables.to_markdown(table)
    assert {line.count("|") for line in tables.to_markdown(table).splitlines()[2:]} == {6}


def test_a_plot_has_the_means_of_the_table_and_none_of_two_data_sets():
    results = [row | {"latent_dim": dim} for dim in (2, 8) for row in toy_rows(a=0.5 + 0.01 * dim, b=0.4)]
    results += [row | {"latent_dim": ""} for row in toy_rows(c=0.3)]
    table = compare.build(TOY, results)
    panel = plots.panels(table)[0]
    shown = {(("mnist", dim), arm): cell.mean for arm, of in panel.arms.items() for dim, cell in of.items()}
    shown |= {(("mnist", ""), arm): cell.mean for arm, cell in panel.flat.items()}
    assert shown == {line: table.cells[*line, SSIM].mean for line in table.lines} and len(shown) == 5
    mixed = compare.build(TOY, results + [row | {"data": "oasis"} for row in toy_rows(a=0.1)])
    assert plots.draw(mixed) is None and plots.draw(table) is not None


def test_a_page_names_its_only_data_set_once():
    one = compare.build(TOY, toy_rows(a=0.5, b=0.4))
    two = compare.build(TOY, toy_rows(a=0.5) + [row | {"data": "oasis"} for row in toy_rows(a=0.4)])
    assert "mnist" not in tables.to_html(one)
    assert all(name in tables.to_html(two) for name in ("mnist", "oasis"))
    for whole in (tables.to_html(one), tables.to_html(two)):
        head, *lines = whole.split("<tr")[1:]
        assert {line.count("</td>") for line in lines} == {head.count("</th>")}


# --- rows ---


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


def test_shards_cover_every_run_once(tmp_path):
    chosen = [EXPERIMENTS["start"], EXPERIMENTS["assignment"]]
    parts = [queue.plan(chosen, "laptop", tmp_path, shard=(i, 3)).left for i in (1, 2, 3)]
    keys = [job.key for part in parts for job in part]
    every = {job.key for experiment in chosen for job in experiment.jobs("laptop")}
    assert len(keys) == len(set(keys)) and set(keys) == every
    for text in ("0/3", "4/3", "1", "a/b"):
        with pytest.raises(InputError, match="shard"):
            queue.shard_of(text)


def test_runs_that_measure_time_come_last(tmp_path):
    left = queue.plan([EXPERIMENTS["runtime"], EXPERIMENTS["start"]], "laptop", tmp_path).left
    alone = [job.alone for job in left]
    assert alone == sorted(alone) and any(alone) and not all(alone)


# --- the queue ---

SMALL = ("cost", "--budget", "smoke", "--seeds", "1", "--jobs", "2")


def bench(out, *more, **options):
    command = [sys.executable, "-m", "neurosql", "bench", "run", *SMALL, "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def without_times(path):
    return [{k: v for k, v in row.items() if k not in rows.MEASURED} for row in rows.read(path).values()]


def test_a_bench_that_is_killed_again_and_again_ends_with_the_same_table(tmp_path):
    assert bench(tmp_path / "whole").wait(timeout=300) == 0
    chance = random.Random(0)
    for _ in range(4):
        process = bench(tmp_path / "killed", start_new_session=True)
        time.sleep(chance.uniform(2, 8))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert bench(tmp_path / "killed").wait(timeout=300) == 0
    expected = without_times(tmp_path / "whole" / "cost.csv")
    assert without_times(tmp_path / "killed" / "cost.csv") == expected
    assert len(expected) == 4 and {row["status"] for row in expected} == {"done"}
    left = [path.name for path in (tmp_path / "killed" / jobs_folder.JOBS).glob("*/*.npz")]
    assert left.count(jobs_folder.SAMPLES) == 4 and left.count(jobs_folder.PLANE) == 2


def test_a_run_that_fails_is_kept_with_its_reason_and_does_not_stop_the_others(tmp_path, capsys):
    (tmp_path / "data" / "celeba").mkdir(parents=True)
    (tmp_path / "data" / "celeba" / "000001.jpg").write_text("<html>sign in</html>")
    grid = Grid((Arm("NeuroSQL"),), data=("celeba", "mnist"))
    experiment = Experiment("two-sets", "Two sets", "?", (grid,), (SSIM,))
    plan = queue.plan([experiment], "smoke", tmp_path / "out", 1, root=str(tmp_path / "data"))
    queue.run(plan, 1, progress=False)
    found = {row["data"]: row for row in rows.read(tmp_path / "out" / "two-sets.csv").values()}
    assert found["mnist"]["status"] == "done" and found["celeba"]["status"] == "failed"
    assert "000001.jpg" in found["celeba"]["reason"]
    # It isn't run again unless asked.
    assert not queue.plan([experiment], "smoke", tmp_path / "out", 1, root=str(tmp_path / "data")).left
    again = queue.plan([experiment], "smoke", tmp_path / "out", 1, root=str(tmp_path / "data"), retry=True)
    assert [job.data for job in again.left] == ["celeba"]
    assert "failed" in page.write(experiment, tmp_path / "out" / "two-sets.csv")[0].read_text("utf-8")


def test_scores_can_be_made_anew_without_training(tmp_path):
    experiment = Experiment("one-run", "One run", "?", (Grid((Arm("NeuroSQL"),)),), (SSIM,))
    out = tmp_path / "out"
    queue.run(queue.plan([experiment], "smoke", out, 1), 1, progress=False)
    first = rows.read(out / "one-run.csv")
    models = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert len(models) == 1 and not queue.plan([experiment], "smoke", out, 1).left
    plan = queue.plan([experiment], "smoke", out, 1, rescore=True)
    assert len(plan.left) == 1
    queue.run(plan, 1, progress=False)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == models
    again = rows.read(out / "one-run.csv")
    assert again.keys() == first.keys()
    for key, row in again.items():
        assert row | {"scoring seconds": 0} == first[key] | {"scoring seconds": 0}


def test_an_experiment_of_ones_own_runs_merges_and_gets_its_page(tmp_path):
    arms = (Arm("narrow", own={"width": 16}), Arm("wide", own={"width": 24}))
    experiment = Experiment("own-widths", "Widths", "Does width matter?", (Grid(arms, dims=(2,)),), (SSIM, AGAIN))
    path = run_bench(experiment, "smoke", tmp_path / "one", seeds=1, at_once=1, progress=False)
    assert path == tmp_path / "one" / "own-widths.csv"
    # Another declaration shares a run: the run isn't repeated, and appears under the other's name.
    other = replace(experiment, name="other", grids=(Grid((replace(arms[0], name="slim"),), dims=(2,)),))
    assert not queue.plan([other], "smoke", tmp_path / "one", 1).left
    counts = merge_benches([tmp_path / "one"], tmp_path / "all", "smoke", [experiment])
    assert counts == {"own-widths": 2}
    found = rows.read(tmp_path / "all" / "own-widths.csv")
    assert [row["arm"] for row in found.values()] == ["narrow", "wide"] and all(r["scores"] for r in found.values())
    text = page.write(experiment, tmp_path / "all" / "own-widths.csv")[0].read_text("utf-8")
    assert "Does width matter?" in text and "slim" not in text
    assert page.write_all(tmp_path / "all", [experiment])[0].name == "index.html"


def test_experiments_of_other_packages_are_listed_and_files_are_not_run(tmp_path, capsys, monkeypatch):
    (tmp_path / "offered.py").write_text(
        "from neurosql.bench.declare import Arm, Experiment, Grid\n"
        "TABLE = Experiment('offered', 'Offered', 'Is it found?', (Grid((Arm('a'),)),), ())\n"
    )
    (tmp_path / "offered.dist-info").mkdir()
    (tmp_path / "offered.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1\n")
    points = "[neurosql.experiments]\noffered = offered:TABLE\n"
    (tmp_path / "offered.dist-info" / "entry_points.txt").write_text(points)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "neurosql", "bench", "list"]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert listed.splitlines()[-1].split()[0] == "offered" and "Is it found?" in listed
    assert cli.main(["bench", "run", str(tmp_path / "offered.py")]) == 2
    assert "neurosql.bench.run" in capsys.readouterr().err and "offered" not in sys.modules


def test_data_that_are_not_at_hand_are_said(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    assert cli.main(["bench", "run", "celeba", "--budget", "smoke", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "celeba was not found" in said.out and "nothing to run" in said.err
    assert cli.main(["bench", "run", "celebrities"]) == 2
    assert "no experiment 'celebrities'" in capsys.readouterr().err


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


def test_the_split_of_a_job_is_its_own_and_stays(shared_data, tmp_path):
    for job in EXPERIMENTS["oasis"].jobs("laptop", 2):
        if job.arm != "NeuroSQL" or job.latent_dim != 2:
            continue
        source = sources.path_of(job, str(shared_data))
        images = sources.read(job, source, tmp_path / f"{job.seed}.json")
        assert 1900 < len(images) <= 2000 and len(images.test) >= 200 and images.shape == (1, 32, 32)
        again = sources.read(job, source, tmp_path / f"{job.seed}.json")
        np.testing.assert_array_equal(images.x, again.x)
    assert (tmp_path / "0.json").read_text() != (tmp_path / "1.json").read_text()


def test_no_samples_of_celeba_are_kept_and_others_name_their_data():
    results = Path(__file__).parent.parent.parent / "results"
    if not results.is_dir():
        pytest.skip("these tests do not stand in a source tree")
    kept = [path for path in results.rglob("*.png") if path.parent.name == jobs_folder.PICTURES]
    assert kept and not [path.name for path in kept if "-celeba-" in path.name]
    # A picture named by a hash says nothing about what it shows.
    assert not [path.name for path in kept if re.match(r"[0-9a-f]{12}-\d", path.name)]
    assert not sources.SOURCES["celeba"].samples_may_be_shared
    assert sources.SOURCES["afhq"].credit and sources.SOURCES["oasis"].credit
