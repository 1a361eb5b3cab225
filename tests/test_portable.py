"""Models as one file: what the commands write equals what the run makes, in the user's units."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from test_old_runs import OLD

from neurosql import InputError, app, fit, open_run
from neurosql.cli import main
from neurosql.settings import Sampling

QUICK = dict(generator="mlp", width=16, epochs=1, batch_size=16, validation_share=0.0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run folders of small models, by name."""
    root = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)
    np.savez(root / "images.npz", images=random.random((40, 8, 8)), labels=np.repeat(["ape", "bee"], 20))
    table = np.column_stack([random.normal(500, 20, 40), random.integers(0, 9, 40), random.normal(0, 1e-3, 40)])
    np.savetxt(root / "table.csv", table, delimiter=",", header="weight,visits,dose", comments="")
    made = {
        "mixture": ("images.npz", dict(preset="samples", latent_dim=3, components=2, conditional=True)),
        "table": ("table.csv", {}),
    }
    for name, (source, settings) in made.items():
        fit(str(root / source), out=root / name, **QUICK | settings)
    for name in ("vae", "ddpm"):
        (root / name).symlink_to(OLD / name)
    return root


def samples(path, run, n=9):
    """Samples that onnxruntime makes of the codes that a run draws, and the run's own."""
    how = run.method.record.samplers[0].name
    codes, labels = run.method.draw_codes(n, None, torch.Generator().manual_seed(3), Sampling(how))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = {"codes": codes.float().numpy()} | ({} if labels is None else {"labels": labels.numpy()})
    return session.run(None, given)[0], run.sample(n, seed=3, sampler=how)[0]


@pytest.mark.parametrize("name", ["mixture", "vae"])
def test_the_onnx_file_makes_the_samples_of_the_run_from_its_codes(name, runs, tmp_path, capsys):
    assert main(["export", str(runs / name), "--onnx", "--out", str(tmp_path / "model.onnx")]) == 0
    told = capsys.readouterr().out
    run = open_run(runs / name)
    made, expected = samples(tmp_path / "model.onnx", run)
    np.testing.assert_allclose(made, expected, atol=1e-5)
    about = {entry.key: entry.value for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    law = json.loads(about["law"])
    assert about["latent_dim"] == str(run.settings.generator.dim) and about["range"] == "[0, 1]"
    assert json.loads(about["shape"]) == list(run.data.shape) and "float32 (n, *shape)" in about["samples"]
    if name == "mixture":
        assert json.loads(about["classes"]) == ["ape", "bee"] and "labels (n,)" in told
        assert law["shares"] == [0.5, 0.5] and np.shape(law["groups"][0]["means"])[1] == 3
        assert "--sampler prior" in told
    else:
        assert law == {"name": "normal", "scale": 1.0} and "labels" not in told
    assert "images.npz" not in str(about) and str(runs) not in str(about)


def test_rows_of_a_table_come_in_its_units(runs, tmp_path):
    done = app.to_onnx(runs / "table", tmp_path / "table.onnx")
    run = open_run(runs / "table")
    made, expected = samples(done.path, run)
    np.testing.assert_allclose(made, run.like.restore_new(expected), rtol=1e-5, atol=1e-5)
    assert (made[:, 1] == made[:, 1].round()).all() and 400 < made[:, 0].mean() < 600
    about = {entry.key: entry.value for entry in onnx.load(done.path).metadata_props}
    assert json.loads(about["columns"]) == ["weight", "visits", "dose"] and "range" not in about


def test_files_are_not_replaced_and_what_can_not_be_exported_is_refused(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert app.to_onnx(runs / "vae").path.resolve() == tmp_path / "vae.onnx"
    for words, said in [
        (["export", str(runs / "vae"), "--onnx"], "exists"),
        (["export", str(runs / "vae"), "--onnx", "--out", "model.txt"], "must end in .onnx"),
        (["export", str(runs / "ddpm"), "--onnx", "--out", "ddpm.onnx"], "ddpm makes samples in many steps"),
        (["export", str(runs / "vae")], "--onnx"),
        (["export", str(runs / "vae"), "--onnx", "--for-sharing", "--out", "x"], "give one of"),
        (["export", str(runs / "vae"), "--for-sharing"], "--out FOLDER"),
    ]:
        assert main(words) == 2
        error = capsys.readouterr().err
        assert said in error and "Traceback" not in error
    assert [file.name for file in tmp_path.iterdir()] == ["vae.onnx"]


def test_without_the_package_onnx_it_says_how_to_get_it(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'neurosql-torch\[onnx\]'"):
        app.to_onnx(runs / "vae", tmp_path / "vae.onnx")
