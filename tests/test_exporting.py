"""Runs that are exported for sharing say nothing about single training images, and still sample and encode."""

import json
import shutil

import numpy as np
import pytest
import safetensors
from PIL import Image
from test_old_runs import OLD

import neurosql
from neurosql import InputError, NeuroSQL, app, open_run, presets
from neurosql.app import exporting
from neurosql.app.card import gives_away, measured
from neurosql.cli import main
from neurosql.metrics.score import Score

SMALL = dict(generator="mlp", width=16, epochs=2, batch_size=16, validation_share=0.1)
RUNS = {
    "map": {},
    "samples": {"preset": "samples", "latent_dim": 4, "apart": 0.9, "components": 2, "snap": 1},
    "by class": {"conditional": True, "components": 1, "preset": "plain", "snap": 1},
    "vae": {"method": "vae", "conditional": True},
    "glo": {"method": "glo", "conditional": True},
    "rae": {"method": "rae"},
    "rs-imle": {"method": "rs-imle"},
    "gan": {"method": "gan"},
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Files whose names must not be shared, one folder per diagnosis."""
    root = tmp_path_factory.mktemp("hospital-of-somewhere") / "ward-seven"
    random = np.random.default_rng(0)
    for i in range(48):
        folder = root / ("healthy", "ill")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (random.random((12, 12)) * 128 + 100 * (i % 2)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"patient-{1000 + i}_visit.png")
    return root


@pytest.fixture(scope="module")
def exported(pictures, tmp_path_factory):
    """A run and its export, by name, each made once."""
    made = {}

    def make(name):
        if name not in made:
            root = tmp_path_factory.mktemp(name.replace(" ", "-"))
            settings = presets.settings(**{**SMALL, **RUNS[name]})
            app.train(str(pictures), settings, root / "run")
            done = app.for_sharing(root / "run", root / "shared")
            made[name] = root / "run", done
        return made[name]

    return make


def content(folder):
    """Every file of a folder, and the tensors of its safetensors files one by one, as bytes."""
    found = {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for file in folder.rglob("*.safetensors"):
        with safetensors.safe_open(file, "np") as tensors:
            found |= {f"{file.name}:{key}": tensors.get_tensor(key).tobytes() for key in tensors.keys()}  # noqa: SIM118
    return found


def secrets(run, pictures):
    """What must not be found in any file: names, paths, digests, codes and lattice rows in either precision."""
    names = [file.stem for file in pictures.rglob("*.png")] + ["hospital-of-somewhere", "ward-seven", str(pictures)]
    found = [name.encode() for name in names] + [run.data.fingerprint.encode()]
    if run.has_codes:
        codes = [run.method.codes.numpy(), *([run.method.lattice.numpy()] if hasattr(run.method, "lattice") else [])]
        for rows in codes:
            found += [row.astype(kind).tobytes() for row in rows if row.any() for kind in (np.float32, np.float64)]
        found += [digest.tobytes() for digest in run.trained_on().digests]
    return found


@pytest.mark.parametrize("name", RUNS)
def test_no_byte_of_the_folder_tells_of_a_training_image(name, exported, pictures):
    path, done = exported(name)
    run = open_run(path)
    own, others = content(path), content(done.path)
    wanted = secrets(run, pictures)
    there = sum(any(secret in data for data in own.values()) for secret in wanted)
    assert there >= (2 * len(run.index) if run.has_codes else 2), "names and codes are found where they are"
    found = [(file, secret) for file, data in others.items() for secret in wanted if secret in data]
    assert not found
    assert {"MODEL-CARD.md", "config.json", "model.safetensors", "codes.safetensors", "report.html"} <= set(others)
    gone = {"split.json", "used.json", "images.png", "reconstructions.png", "latent.png", "map.png", "last.safetensors"}
    assert not gone & set(others) and others["report.html"].count(b"data:image/png") == 1
    assert str(done.path).encode() not in others["report.html"]


@pytest.mark.parametrize("name", RUNS)
def test_it_draws_the_samples_that_the_original_draws_from_the_prior(name, exported):
    path, done = exported(name)
    original, shared = open_run(path), open_run(done.path)
    usual = original.method.record.samplers[0].name
    expected, labels = original.sample(20, seed=3, sampler=usual)
    for sampler in (None, usual):
        images, classes = shared.sample(20, seed=3, sampler=sampler)
        assert np.array_equal(images, expected)
        assert np.array_equal(labels, classes) if labels is not None else classes is None


@pytest.mark.parametrize("name", [name for name in RUNS if name != "gan"])
def test_it_encodes_new_images_and_says_what_it_can_not_do(name, exported, pictures, tmp_path):
    path, done = exported(name)
    shared = open_run(done.path)
    images = open_run(path).sample(6, seed=1)[0]
    codes, _, losses = shared.encode(images)
    assert codes.shape == (6, shared.settings.generator.dim) and np.isfinite(losses).all()
    assert main(["encode", str(done.path), str(pictures), "--out", str(tmp_path / "codes.csv")]) == 0
    for sampler in shared.method.record.samplers[1:]:
        with pytest.raises(InputError, match=f"the sampler {sampler.name} needs the codes .* shared without"):
            shared.sample(3, seed=0, sampler=sampler.name)
    with pytest.raises(InputError, match="shared without the codes"):
        shared.reconstruct()
    with pytest.raises(InputError, match="shared without the codes"):
        shared.code_table()


def test_the_sampler_apart_gives_way_to_the_prior_with_a_sentence(exported, capsys, tmp_path):
    path, done = exported("samples")
    assert open_run(path).method.settings.apart == 0.9 and open_run(done.path).method.settings.apart == 1
    assert main(["sample", str(done.path), "-n", "4", "--out", str(tmp_path / "some.npy")]) == 0
    assert "samples are drawn from the prior" in capsys.readouterr().out
    assert "samples are drawn from the prior" in (done.path / exporting.NAME).read_text("utf-8")
    assert main(["sample", str(done.path), "--sampler", "apart"]) == 2
    assert "use the sampler prior" in capsys.readouterr().err
    assert main(["sample", str(path), "-n", "4", "--out", str(tmp_path / "more.npy")]) == 0
    assert "prior" not in capsys.readouterr().out


def test_the_estimator_opens_it(exported):
    model = NeuroSQL.load(exported("map")[1].path)
    images = model.sample(5, random_state=0)
    assert images.shape[0] == 5 and model.transform(images).shape == (5, 2) and len(model.codes_) == 0


def test_commands_describe_it_and_refuse_what_needs_the_training_images(exported, capsys, tmp_path):
    path, done = exported("by class")
    shared = str(done.path)
    for command in (["info", shared], ["report", shared], ["resume", shared]):
        assert main(command) == 0
    assert "healthy" in (done.path / "report.html").read_text("utf-8")
    capsys.readouterr()
    for command in (["evaluate", shared], ["codes", shared], ["export", shared, "--for-sharing", "--out", "x"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error and "shar" in error
    assert main(["export", str(path), "--out", str(tmp_path / "a")]) == 2 and "--for-sharing" in capsys.readouterr().err
    assert main(["export", str(path), "--for-sharing", "--out", str(path)]) == 2
    assert main(["export", str(OLD / "vae-stopped"), "--for-sharing", "--out", str(tmp_path / "b")]) == 2
    assert "not finished" in capsys.readouterr().err and not (tmp_path / "b").exists()


def test_the_discriminator_of_a_gan_is_that_before_training(exported):
    path, done = exported("gan")
    original, shared = open_run(path), open_run(done.path)
    assert any("discriminator" in phrase for phrase in done.left_out)
    for name, same in (("generator", True), ("discriminator", False)):
        pairs = zip(*(run.method.networks[name].parameters() for run in (original, shared)))
        assert all(bool((a == b).all()) for a, b in pairs) == same


def test_class_names_are_shared_only_where_samples_need_them(exported):
    for name, told in (("map", False), ("by class", True)):
        _, done = exported(name)
        assert ("healthy" in " ".join(done.gives_away)) == told
        assert (b"healthy" in b"".join(content(done.path).values())) == told


def test_the_card_says_what_was_measured(exported, tmp_path):
    path, done = exported("map")
    assert "Neither copies nor membership were measured" in done.gives_away[-1]
    scores = [
        Score("suspiciously close", 0.2, "sampled", "lower", 500, 200, interval=(0.15, 0.25), note="clear: because"),
        Score("membership by loss", 0.8, "train-heldout", "lower", 200, 200, interval=(0.7, 0.9)),
    ]
    first, second = measured(scores)
    assert "copies: clear" in first and "Do not share samples" in first and "80 % of pairs" in second
    copied = shutil.copytree(path, tmp_path / "run")
    (copied / "scores.json").write_text(json.dumps({score.key: score.record() for score in scores}))
    card = (app.for_sharing(copied, tmp_path / "shared").path / exporting.NAME).read_text("utf-8")
    assert "copies: clear" in card and "80 % of pairs" in card and "differential privacy" in card


def test_a_class_of_few_images_is_pointed_out(exported):
    run = open_run(exported("by class")[0])
    run.method.class_counts[0] = 3
    assert any("fewer than 10" in sentence for sentence in gives_away(run, []))


def test_a_table_keeps_its_columns_and_not_its_rows(tmp_path):
    random = np.random.default_rng(0)
    np.savetxt(tmp_path / "t.csv", random.normal(5, 2, (60, 3)), delimiter=",", header="age,weight,dose", comments="")
    app.train(str(tmp_path / "t.csv"), presets.settings(**SMALL), tmp_path / "run")
    done = app.for_sharing(tmp_path / "run", tmp_path / "shared")
    assert any("smallest and the largest value of each column" in sentence for sentence in done.gives_away)
    expected = open_run(tmp_path / "run").sample(9, seed=2, sampler="prior")[0]
    assert np.array_equal(open_run(done.path).sample(9, seed=2)[0], expected)


@pytest.mark.parametrize("name", ["neurosql", "ddpm", "ot-cfm", "glo"])
def test_old_runs_are_exported_too(name, tmp_path):
    done = app.for_sharing(OLD / name, tmp_path / "shared")
    expected = neurosql.open_run(OLD / name).sample(4, seed=5)[0]
    assert np.array_equal(neurosql.open_run(done.path).sample(4, seed=5)[0], expected)
