"""The queue: what is left to run, in which order, and what comes of runs that are killed or fail."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import packages
import pytest
from small_vgg import small_weights
from toy_results import AGAIN, SSIM

from neurosql import cli
from neurosql.bench import jobs as jobs_folder
from neurosql.bench import merge as merge_benches
from neurosql.bench import queue, rows, sources, work
from neurosql.bench import run as run_bench
from neurosql.bench.declare import Arm, Experiment, Grid
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.bench.experiments.contenders import OF_COLOURS, OF_PICTURES, SAMPLED
from neurosql.errors import InputError
from neurosql.metrics import weights
from neurosql.report import bench as page
from neurosql.settings import Sampling


def test_shards_cover_every_run_once(tmp_path):
    chosen = [EXPERIMENTS["start"], EXPERIMENTS["assignment"]]
    parts = [queue.plan(chosen, "laptop", tmp_path, shard=(i, 3)).left for i in (1, 2, 3)]
    keys = [job.key for part in parts for job in part]
    every = {job.key for experiment in chosen for job in experiment.jobs("laptop")}
    assert len(keys) == len(set(keys)) and set(keys) == every
    for text in ("0/3", "4/3", "1", "a/b"):
        with pytest.raises(InputError, match="shard"):
            queue.shard_of(text)


def test_a_model_that_another_run_has_trained_is_sampled_anew_and_not_trained_again(pictures, tmp_path):
    own = {"method": "neurosql", "preset": "plain"}
    arms = (Arm("prior", **own), Arm("near", **own, sampling=Sampling("near", fraction=0.5)))
    other = replace(arms[1], name="another model", own={"momentum": 0.9})
    experiment = Experiment("ways", "Ways", "How?", (Grid((*arms, other)),), SAMPLED)
    first, near, changed = experiment.jobs("smoke", seeds=1)

    def carried_out(job, folder):
        (folder / job.folder).mkdir(parents=True)
        record = {"job": job.record(), "source": sources.path_of(job, str(pictures))}
        (folder / job.folder / work.JOB).write_text(json.dumps(record))
        return without_times(work.carry_out(job, record["source"], folder / job.folder))

    alone = carried_out(near, tmp_path / "alone")
    together = tmp_path / "together"
    (together / "damaged").mkdir(parents=True)
    (together / "damaged" / work.JOB).write_text("[")
    assert carried_out(first, together) != alone
    assert carried_out(near, together) == alone
    assert not (together / near.folder / work.RUN).exists()
    carried_out(changed, together)
    assert work.is_trained(together / changed.folder)


def test_runs_that_measure_time_come_last(tmp_path):
    left = queue.plan([EXPERIMENTS["runtime"], EXPERIMENTS["start"]], "laptop", tmp_path).left
    alone = [job.alone for job in left]
    assert alone == sorted(alone) and any(alone) and not all(alone)


def without_times(row):
    return {k: v for k, v in row.items() if k not in rows.MEASURED}


def test_a_bench_that_is_killed_again_and_again_ends_with_the_same_table(results_of, tmp_path):
    out = tmp_path / "killed"
    options = ["--budget", "smoke", "--seeds", "1", "--jobs", "2", "--out", str(out)]

    def bench():
        command = [sys.executable, "-m", "neurosql", "bench", "run", "cost", *options]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def count(name):
        return len(list((out / jobs_folder.JOBS).glob(f"*/{name}")))

    # Killed as soon as a run is under way, as soon as one trains, and as soon as one is done.
    for name in (jobs_folder.JOB, f"{jobs_folder.RUN}/history.jsonl", jobs_folder.RESULT):
        before, process, deadline = count(name), bench(), time.monotonic() + 300
        while count(name) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL and count(name) > before
    assert bench().wait(timeout=300) == 0
    found = rows.read(out / "cost.csv").values()
    assert [without_times(row) for row in found] == [without_times(row) for row in results_of(EXPERIMENTS["cost"])]
    assert len(found) == 4 and {row["status"] for row in found} == {"done"}
    kept = [path.name for path in (out / jobs_folder.JOBS).glob("*/*.npz")]
    assert kept.count(jobs_folder.SAMPLES) == 4 and kept.count(jobs_folder.PLANE) == 2


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


def test_scores_can_be_made_anew_without_training(results_of, jobs, tmp_path):
    experiment = Experiment("one-run", "One run", "?", (Grid((Arm("NeuroSQL"),)),), (SSIM,))
    out = tmp_path / "out"
    (done,) = results_of(experiment)
    (job,) = experiment.jobs("smoke", 1)
    shutil.copytree(jobs / job.folder, out / jobs_folder.JOBS / job.folder)
    rows.write(out / "one-run.csv", [done])
    first = rows.read(out / "one-run.csv")
    models = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert len(models) == 1 and not queue.plan([experiment], "smoke", out, 1).left
    plan = queue.plan([experiment], "smoke", out, 1, rescore=True)
    assert len(plan.left) == 1 and not list(out.rglob(jobs_folder.RESULT))
    queue.run(plan, 1, progress=False)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == models
    assert len(list(out.rglob(jobs_folder.RESULT))) == 1
    again = rows.read(out / "one-run.csv")
    assert again.keys() == first.keys()
    for key, row in again.items():
        assert row | {"scoring seconds": 0} == first[key] | {"scoring seconds": 0}


def test_an_experiment_of_ones_own_runs_merges_and_gets_its_page(tmp_path):
    arms = (Arm("narrow", own={"width": 16}), Arm("wide", own={"width": 24}))
    experiment = Experiment("own-widths", "Widths", "Does width matter?", (Grid(arms, dims=(2,)),), (SSIM, AGAIN))
    path = run_bench(experiment, "smoke", tmp_path / "one", seeds=1, at_once=1, progress=False)
    assert path == tmp_path / "one" / "own-widths.csv"
    # Another declaration has a run in common: it isn't made again, and is called by the other's name.
    other = replace(experiment, name="other", grids=(Grid((replace(arms[0], name="slim"),), dims=(2,)),))
    assert not queue.plan([other], "smoke", tmp_path / "one", 1).left
    counts = merge_benches([tmp_path / "one"], tmp_path / "all", "smoke", [experiment])
    assert counts == {"own-widths": 2}
    found = rows.read(tmp_path / "all" / "own-widths.csv")
    assert [row["arm"] for row in found.values()] == ["narrow", "wide"] and all(r["scores"] for r in found.values())
    text = page.write(experiment, tmp_path / "all" / "own-widths.csv")[0].read_text("utf-8")
    assert "Does width matter?" in text and "slim" not in text
    assert page.write_all(tmp_path / "all", [experiment])[0].name == "index.html"


def test_experiments_of_other_packages_are_listed_and_files_are_not_run(tmp_path, capsys):
    declaration = (
        "from neurosql.bench.declare import Arm, Experiment, Grid\n"
        "TABLE = Experiment('offered', 'Offered', 'Is it found?', (Grid((Arm('a'),)),), ())\n"
    )
    points = {"neurosql.experiments": {"offered": "offered:TABLE"}}
    packages.install(tmp_path, "offered", {"offered.py": declaration}, points)
    listed = packages.commanded(tmp_path, "neurosql bench list")
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


def test_nothing_is_run_without_the_weights_that_a_table_needs(pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    out, how = tmp_path / "out", "neurosql weights fetch lpips-vgg"
    command = ["bench", "run", "pictures", "start", "--out", str(out), "--data", str(pictures)]
    assert cli.main(command) == 2
    said = capsys.readouterr()
    assert (said.out + said.err).count(how) == said.err.count(how) == 1 and not out.exists()
    with pytest.raises(InputError, match=how):
        run_bench(EXPERIMENTS["pictures"], out=out, data=str(pictures))
    # What is left to do can be listed all the same.
    assert cli.main([*command, "--dry"]) == 0
    assert capsys.readouterr().out.count(how) == 1
    # Digits, the smallest budget and data that are not at hand need no weights.
    for name, budget, root in (
        ("start", "laptop", pictures),
        ("pictures", "smoke", pictures),
        ("pictures", "laptop", out),
    ):
        assert not queue.plan([EXPERIMENTS[name]], budget, out, root=str(root)).lacking()
    weights.path_of(queue.VGG).parent.mkdir(parents=True)
    weights.path_of(queue.VGG).touch()
    assert not queue.plan([EXPERIMENTS["pictures"]], "laptop", out, root=str(pictures)).lacking()


def test_runs_on_pictures_have_the_scores_that_need_weights(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("NEUROSQL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "load", small_weights)
    job = next(iter(EXPERIMENTS["celeba"].jobs("smoke", 1)))
    row = work.carry_out(replace(job, vgg=True), sources.path_of(job, str(pictures)), tmp_path / "job")
    for column in (*OF_PICTURES, *OF_COLOURS):
        assert rows.value_of(row, column) is not None and rows.floor_of(row, column) is not None


def test_only_the_runs_that_were_asked_for_are_made(tmp_path, capsys):
    def listed(*flags):
        assert cli.main(["bench", "run", "best", "--dry", "--out", str(tmp_path), *flags]) == 0
        return [line.strip() for line in capsys.readouterr().out.splitlines()[1:]]

    planar = listed("--dims", "2", "--methods", "neurosql,vae")
    assert planar and set(planar) < set(listed())
    assert all(" d=2 " in line and ("NeuroSQL" in line or "VAE" in line) for line in planar)
    # A contender's name may have commas; methods without a latent dimension belong to every dimension.
    mapped = {f"mnist convnet d=12 RAE, mapping, seed {seed}" for seed in range(5)}
    diffusion = {f"mnist convnet DDPM, seed {seed}" for seed in range(5)}
    assert set(listed("--methods", "RAE, mapping,ddpm", "--dims", "12")) == mapped | diffusion
    assert cli.main(["bench", "run", "best", "--dry", "--out", str(tmp_path), "--methods", "nobody"]) == 2
    assert "no run has the method 'nobody'" in capsys.readouterr().err


def test_the_time_left_follows_how_long_runs_take_here(tmp_path):
    experiment = Experiment("own", "t", "q", (Grid((Arm("a"), Arm("b")), dims=(2, 3)),), ())
    first, second, *rest = (plan := queue.plan([experiment], "smoke", tmp_path, 1)).left
    view = queue._View(plan, slots=2, progress=False)

    def ends(job, seconds, took):
        view.began(job)
        view.start[job] -= took
        view.ended(job, rows.identity(job) | {"status": rows.DONE, "seconds": seconds, "scoring seconds": 0.0})

    assert view.remaining(plan.left, []) is None
    ends(first, 10.0, 10.0)
    assert view.remaining(rest, []) == pytest.approx(10 * len(rest) / 2, rel=0.01)
    # The next one takes four times as long as the table says.
    ends(second, 10.0, 40.0)
    assert view.remaining(rest, []) == pytest.approx(40 * len(rest) / 2, rel=0.01)
