"""Each reader on small files in exactly the layout that users have on disk."""

import csv
import gzip
import io
import json
import tarfile
import wave
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from neurosql import InputError, NeuroSQL, data
from neurosql.cli import main
from neurosql.data import readers, sound

RANDOM = np.random.default_rng(0)


def picture(path, size=(20, 24), colour=True, seed=None, **options):
    """A smooth picture of that height and width."""
    random = np.random.default_rng(abs(hash(str(path))) % 2**32 if seed is None else seed)
    coarse = random.integers(0, 256, (4, 4, 3) if colour else (4, 4), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(coarse).resize(size[::-1], Image.Resampling.BICUBIC).save(path, **options)


def write_idx(path, values):
    head = bytes([0, 0, 8, values.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in values.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def idx_set(folder, suffix="", prefix="", test="t10k", counts=(20, 6)):
    parts = {}
    for part, count in zip(("train", test), counts):
        parts[part] = RANDOM.integers(0, 256, (count, 8, 8), dtype=np.uint8), np.arange(count) % 5
        write_idx(folder / f"{prefix}{part}-images-idx3-ubyte{suffix}", parts[part][0])
        write_idx(folder / f"{prefix}{part}-labels-idx1-ubyte{suffix}", parts[part][1])
    return parts


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_as_mnist_fashion_and_kmnist_have_them(tmp_path, suffix):
    parts = idx_set(tmp_path / "FashionMNIST" / "raw", suffix)
    for source in (
        tmp_path,
        f"mnist:{tmp_path}",
        tmp_path / "FashionMNIST" / "raw" / f"t10k-images-idx3-ubyte{suffix}",
    ):
        images = data.load(source)
        assert images.reading.reader == "mnist" and images.classes == tuple("01234")
        assert np.array_equal(images.pixels[:, 0], parts["train"][0]) and images.pixels.dtype == np.uint8
        assert np.array_equal(images.test.pixels[:, 0], parts["t10k"][0]) and images.validation is None
        assert np.array_equal(images.test.labels, parts["t10k"][1])


def test_both_packed_and_unpacked_files_are_one_set(tmp_path):
    idx_set(tmp_path)
    for path in list(tmp_path.iterdir()):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert len(data.load(tmp_path)) == 20


def test_emnist_is_turned_upright_and_one_of_its_sets_is_named_by_a_file(tmp_path):
    letters = idx_set(tmp_path, ".gz", "emnist-letters-", "test")
    idx_set(tmp_path, ".gz", "emnist-digits-", "test")
    with pytest.raises(InputError, match="holds 2 sets"):
        data.load(tmp_path)
    images = data.load(tmp_path / "emnist-letters-train-images-idx3-ubyte.gz")
    assert np.array_equal(images.pixels[:, 0], letters["train"][0].swapaxes(1, 2))


def test_idx_files_that_are_not(tmp_path):
    idx_set(tmp_path)
    images, labels = (tmp_path / f"train-{what}-ubyte" for what in ("images-idx3", "labels-idx1"))
    whole = images.read_bytes()
    for content, words in (
        (b"<!DOCTYPE html><p>", "web page"),
        (whole[:100], "not a complete"),
        (b"", "not a complete"),
    ):
        images.write_bytes(content)
        with pytest.raises(InputError, match=words):
            data.load(tmp_path)
    images.write_bytes(whole)
    write_idx(labels, np.zeros(3))
    with pytest.raises(InputError, match="3 labels for 20 images"):
        data.load(tmp_path)


def celeba(folder, partition="txt", nested=False, counts=(12, 4, 3)):
    images = folder / "img_align_celeba" / "img_align_celeba" if nested else folder / "img_align_celeba"
    rows = []
    for number, part in enumerate(np.repeat([0, 1, 2], counts), 1):
        picture(images / f"{number:06d}.jpg", (218, 178), seed=number)
        rows.append((f"{number:06d}.jpg", part))
    if partition == "txt":
        (folder / "list_eval_partition.txt").write_text("".join(f"{name} {part}\n" for name, part in rows))
    elif partition == "csv":
        with open(folder / "list_eval_partition.csv", "w", newline="") as file:
            csv.writer(file).writerows([("image_id", "partition"), *rows])
    return folder


@pytest.mark.parametrize("partition, nested", [("txt", False), ("csv", True)])
def test_celeba_as_torchvision_and_as_kaggle_lay_it_out(tmp_path, partition, nested):
    images = data.load(celeba(tmp_path, partition, nested))
    assert images.reading.reader == "celeba" and images.shape == (3, 64, 64)
    assert [len(part) for part in images.parts.values()] == [12, 4, 3]
    assert images.names[0].endswith("000001.jpg") and images.test.names[-1].endswith("000019.jpg")
    assert images.reading.sizes == {"178 x 218": 19}
    assert not images.reading.notes


def test_celeba_without_its_partition_or_with_parts_missing_is_said(tmp_path, capsys):
    assert any("no list_eval" in note for note in data.load(celeba(tmp_path / "a", None)).reading.notes)
    folder = celeba(tmp_path / "b", counts=(40, 0, 0))
    (folder / "img_align_celeba" / "000001.jpg").unlink()
    flags = ["--image-size", "16", "--generator", "mlp", "--width", "8", "--epochs", "1"]
    assert main(["train", str(folder), "--out", str(tmp_path / "run"), *flags]) == 0
    out = capsys.readouterr().out
    assert "1 of 40 images in list_eval_partition.txt are missing" in out
    assert "39 = 31 to train on + 4 for validation + 4 for the test" in out


def test_a_partition_that_is_a_web_page_is_said(tmp_path):
    celeba(tmp_path, None)
    (tmp_path / "list_eval_partition.txt").write_text("<!DOCTYPE html>\n<html><body>Google Drive - Quota exceeded")
    with pytest.raises(InputError, match="web page, so the download failed"):
        data.load(tmp_path)


@pytest.mark.parametrize("version, suffix, held", [(1, ".jpg", "val"), (2, ".png", "test")])
def test_afhq_in_both_versions(tmp_path, version, suffix, held):
    for part, count in (("train", 5), (held, 2)):
        for animal in ("cat", "dog", "wild"):
            for i in range(count):
                picture(tmp_path / "afhq" / part / animal / f"flickr_{animal}_{i:06d}{suffix}", (128, 128))
    images = data.load(tmp_path)
    assert images.reading.reader == "afhq" and images.classes == ("cat", "dog", "wild")
    assert len(images) == 15 and len(images.test) == 6 and images.validation is None
    divided = images.divide(0.2, 0.1, 0)
    assert divided.test is images.test and len(divided.validation) == 3 and len(divided) == 12


def oasis(folder, names=("Non Demented", "Very mild Dementia", "Mild Dementia", "Moderate Dementia"), subjects=8):
    for kind, name in enumerate(names):
        for subject in range(subjects):
            for scan in (1, 2):
                for slice_ in (100, 101, 102):
                    path = folder / name / f"OAS1_{kind * 100 + subject:04d}_MR1_mpr-{scan}_{slice_}.jpg"
                    picture(path, (24, 48), colour=False)
    return folder


@pytest.mark.parametrize(
    "names",
    [
        ("Non Demented", "Very mild Dementia", "Mild Dementia", "Moderate Dementia"),
        ("Non_Demented", "Very_Mild_Demented", "Mild_Demented", "Moderate_Demented"),
        ("NonDemented", "VeryMildDemented", "MildDemented", "ModerateDemented"),
    ],
)
def test_oasis_splits_by_subject_in_every_spelling(tmp_path, names):
    images = data.load(oasis(tmp_path / "Data", names), image_size=16)
    assert images.reading.reader == "oasis" and images.shape == (1, 16, 16) and not images.reading.notes
    assert images.classes == ("Mild Dementia", "Moderate Dementia", "Non Demented", "Very mild Dementia")
    assert len(set(images.subjects)) == 32 and images.subjects[0].startswith("OAS1_")
    parts = images.divide(0.1, 0.1, seed=0).parts
    assert sum(len(part) for part in parts.values()) == len(images) == 192
    people = [set(part.subjects) for part in parts.values()]
    assert len(people) == 3 and not (people[0] & people[1] or people[0] & people[2] or people[1] & people[2])
    assert all(set(part.labels) == {0, 1, 2, 3} for part in parts.values())


def test_oasis_without_subject_ids_warns_and_offers_groups(tmp_path):
    random = np.random.default_rng(0)
    for person in range(12):
        brain = random.integers(0, 256, (6, 6), dtype=np.uint8)
        for _ in range(5):
            noisy = np.clip(brain.astype(int) + random.integers(-3, 4, brain.shape), 0, 255).astype(np.uint8)
            path = (
                tmp_path / ("Non Demented" if person % 2 else "Mild Dementia") / f"slice_{random.integers(10**9)}.png"
            )
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(noisy).resize((64, 64), Image.Resampling.BICUBIC).save(path)
            path.with_suffix(".txt").write_text(str(person))
    plain = data.load(tmp_path)
    assert "neighbouring slices" in plain.reading.notes[0] and plain.subjects is None
    grouped = data.load(tmp_path, group="near-duplicates")
    person = np.array([(tmp_path / name).with_suffix(".txt").read_text() for name in grouped.names])
    assert len(set(zip(person, grouped.subjects))) == 12 == len(set(grouped.subjects))
    parts = grouped.divide(0.2, 0.2, 0).parts
    seen = [set(part.subjects) for part in parts.values()]
    assert len(seen) == 3 and sum(map(len, seen)) == 12


@pytest.mark.parametrize(
    "shape, kind", [((28, 28), (1, 28, 28)), ((28, 28, 3), (3, 28, 28)), ((28, 28, 28), (1, 28, 28, 28))]
)
def test_medmnist_in_two_and_three_dimensions(tmp_path, shape, kind):
    counts = {"train": 9, "val": 4, "test": 5}
    arrays = {f"{p}_images": RANDOM.integers(0, 256, (n, *shape), dtype=np.uint8) for p, n in counts.items()}
    arrays |= {f"{p}_labels": (np.arange(n) % 3)[:, None].astype(np.uint8) for p, n in counts.items()}
    np.savez_compressed(tmp_path / "bloodmnist.npz", **arrays)
    images = data.load(tmp_path / "bloodmnist.npz")
    assert images.reading.reader == "medmnist" and images.shape == kind and images.classes == ("0", "1", "2")
    assert [len(part) for part in images.parts.values()] == [9, 4, 5]
    assert images.x[0].reshape(-1)[:5] == pytest.approx(
        np.moveaxis(arrays["train_images"][0], -1, 0 if len(shape) == 3 and shape[-1] == 3 else -1).reshape(-1)[:5]
        / 255
    )


def test_medmnist_with_several_labels_a_sample_has_no_classes(tmp_path):
    arrays = {"train_images": np.zeros((4, 28, 28), np.uint8), "train_labels": np.zeros((4, 14), np.uint8)}
    np.savez(tmp_path / "chestmnist.npz", **arrays)
    images = data.load(tmp_path / "chestmnist.npz")
    assert images.labels is None and "several labels" in images.reading.notes[0]


def save_nifti(path, shape=(12, 10, 8), seed=0, affine=None):
    nibabel = pytest.importorskip("nibabel", reason="needs nibabel")
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).normal(100, 30, shape).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4) if affine is None else affine), path)
    return values


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nifti_volumes_and_slices(tmp_path, suffix):
    values = [save_nifti(tmp_path / f"sub-{i:02d}" / "anat" / f"sub-{i:02d}_T1w{suffix}", seed=i) for i in range(6)]
    volumes = data.load(tmp_path)
    assert volumes.shape == (1, 12, 10, 8) and volumes.kind == "volume" and volumes.labels is None
    assert list(volumes.subjects) == [f"sub-{i:02d}" for i in range(6)]
    low, high = np.percentile(values[0], [0.5, 99.5])
    assert volumes.x[0, 0] == pytest.approx(((values[0] - low) / (high - low)).clip(0, 1), abs=1e-5)
    slices = data.load(tmp_path, axis=2, window=(0, 200))
    assert len(slices) == 48 and slices.shape == (1, 10, 12) and slices.names[1].endswith(f"{suffix}[1]")
    assert slices.x[1, 0] == pytest.approx((values[0][:, :, 1].T[::-1] / 200).clip(0, 1), abs=1e-5)
    parts = slices.divide(0.2, 0.2, 0).parts
    people = [set(part.subjects) for part in parts.values()]
    assert len(people) == 3 and sum(map(len, people)) == 6
    assert data.load(tmp_path, image_size=6).shape == (1, 6, 6, 6)
    assert data.load(tmp_path, image_size=6, axis=0).shape == (1, 6, 6)


def test_a_run_of_slices_is_resumed_from_the_flat_record_of_an_earlier_version(tmp_path):
    for i in range(3):
        save_nifti(tmp_path / "set" / f"sub-{i:02d}.nii", seed=i)
    run = tmp_path / "run"
    flags = ["--axis", "2", "--window", "0", "200", "--generator", "mlp", "--width", "8", "--epochs", "1"]
    assert main(["train", str(tmp_path / "set"), "--out", str(run), *flags]) == 0
    assert "--axis 2 --window 0.0 200.0" in (run / "report.html").read_text()
    config = json.loads((run / "config.json").read_text())
    kept = config["data"]
    assert kept["preparation"] == {"decoder": "nifti", "axis": 2, "window": [0, 200]}
    assert kept["settings"]["axis"] == 2 and kept["settings"]["window"] == [0, 200] and "audio" not in kept["settings"]
    kept["settings"] |= {"audio": "log-mel", "audio_seconds": 1.0, "audio_rate": None}
    (run / "config.json").write_text(json.dumps(config))
    before = (run / "model.safetensors").read_bytes()
    (run / "checkpoints" / "last.safetensors").unlink()
    (run / "model.safetensors").unlink()
    assert main(["resume", str(run)]) == 0
    assert (run / "model.safetensors").read_bytes() == before
    assert "--axis 2 --window 0.0 200.0" in (page := (run / "report.html").read_text()) and "--audio" not in page


def test_nifti_in_another_orientation_gives_the_same_slices(tmp_path):
    nibabel = pytest.importorskip("nibabel", reason="needs nibabel")
    values = save_nifti(tmp_path / "a" / "v.nii", (12, 10, 8))
    turned = nibabel.Nifti1Image(
        values.transpose(2, 0, 1)[::-1], np.array([[0, 1, 0, 0], [0, 0, 1, 0], [-1, 0, 0, 7], [0, 0, 0, 1.0]])
    )
    (tmp_path / "b").mkdir()
    nibabel.save(turned, tmp_path / "b" / "v.nii")
    for axis in (0, 1, 2):
        first, second = (data.load(tmp_path / name, axis=axis) for name in "ab")
        assert len(first) == values.shape[axis] and first.x == pytest.approx(second.x, abs=1e-6)


def test_nifti_that_is_damaged_or_of_four_dimensions(tmp_path):
    save_nifti(tmp_path / "good.nii.gz")
    save_nifti(tmp_path / "other.nii.gz", seed=1)
    save_nifti(tmp_path / "series.nii.gz", (4, 4, 4, 5))
    with pytest.raises(InputError, match=r"series.nii.gz has shape 4 x 4 x 4 x 5"):
        data.load(tmp_path)
    whole = (tmp_path / "good.nii.gz").read_bytes()
    (tmp_path / "cut.nii.gz").write_bytes(whole[: len(whole) // 2])
    images = data.load(tmp_path, skip_bad=True, axis=0)
    assert len(images) == 24 and {name.partition("[")[0] for name, _ in images.reading.skipped} == {
        "series.nii.gz",
        "cut.nii.gz",
    }


def test_nifti_without_nibabel_says_what_to_install(tmp_path, monkeypatch):
    save_nifti(tmp_path / "v.nii")
    monkeypatch.setitem(__import__("sys").modules, "nibabel", None)
    with pytest.raises(InputError, match=r"neurosql-torch\[medical\]"):
        data.load(tmp_path)


def save_wav(path, frequency, seconds=1.0, rate=8000, channels=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    at = np.arange(round(seconds * rate)) / rate
    signal = (np.sin(2 * np.pi * frequency * at) * 20000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(signal, channels).tobytes())


def test_wav_files_as_waveforms_and_as_pictures(tmp_path):
    for i, frequency in enumerate((300, 600, 1200, 2400)):
        save_wav(tmp_path / "low" / f"{i:08x}_nohash_0.wav", frequency, channels=1 + i % 2)
        save_wav(tmp_path / "high" / f"{i:08x}_nohash_0.wav", 1.5 * frequency, seconds=0.7)
    signals = data.load(tmp_path, audio="waveform", audio_seconds=0.5)
    assert signals.shape == (1, 4000) and signals.kind == "signal" and signals.classes == ("high", "low")
    assert 0 <= signals.x.min() < 0.3 and 0.7 < signals.x.max() <= 1
    assert sorted(set(signals.subjects)) == [f"{i:08x}" for i in range(4)]
    images = data.load(tmp_path, image_size=32)
    assert images.shape == (1, 32, 32) and images.x.min() == 0 and images.x.max() == 1
    loudest = images.x[images.labels == 1, 0].mean(2).argmax(1)
    assert (np.diff(loudest) < 0).all()
    assert data.load(tmp_path, audio="waveform", audio_rate=2000).shape == (1, 2000)


def test_wav_files_of_two_rates_are_refused_unless_resampled(tmp_path):
    save_wav(tmp_path / "a.wav", 300)
    save_wav(tmp_path / "b.wav", 300, rate=16000)
    with pytest.raises(InputError, match=r"2 sizes.*--audio-rate"):
        data.load(tmp_path, audio="waveform")
    assert data.load(tmp_path, audio="waveform", audio_rate=4000).shape == (1, 4000)


def test_silence_is_black():
    assert sound.log_mel(np.zeros(8000, np.float32), 8000, 16).max() == 0


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_tables(tmp_path, delimiter):
    rows = [["age", "note", "score", "label", "subject"]]
    rows += [[str(20 + i), "x", f"{i / 7:.4f}", "ab"[i % 2], f"p{i // 4}"] for i in range(40)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(delimiter.join(row) for row in rows) + "\n")
    images = data.load(path)
    assert images.kind == "vector" and images.shape == (2,) and images.classes == ("a", "b")
    assert "note" in images.reading.notes[0] and len(set(images.subjects)) == 10
    assert images.restore(images.x)[:, 0] == pytest.approx(np.arange(20, 60), rel=1e-5)
    divided = images.divide(0.2, 0.2, 0)
    assert divided.x.mean(0) == pytest.approx([0, 0], abs=1e-5) and divided.x.std(0) == pytest.approx([1, 1], abs=1e-5)
    assert divided.test.mean is divided.mean
    assert not set(divided.subjects) & set(divided.test.subjects)


def test_csv_without_a_header_and_with_holes(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("1,2\n3,4\n5,\n7,9\n")
    with pytest.raises(InputError, match="row 3, column '1'"):
        data.load(path)
    assert data.load(path, skip_bad=True).x.shape == (3, 2)
    path.write_text("1,2\n3\n")
    with pytest.raises(InputError, match="1 cells in row 2"):
        data.load(path)


def test_parquet_tables(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"a": np.arange(10.0), "b": np.arange(10) % 3, "target": np.arange(10) % 2})
    parquet.write_table(table, tmp_path / "t.parquet")
    images = data.load(tmp_path / "t.parquet")
    assert images.x.shape == (10, 2) and images.classes == ("0", "1")


def test_folders_with_train_val_and_test_have_official_parts(tmp_path):
    for part, count in {"train": 6, "val": 3, "test": 2}.items():
        for kind in "ab":
            for i in range(count):
                picture(tmp_path / part / kind / f"{i}.png")
    images = data.load(tmp_path)
    assert [len(part) for part in images.parts.values()] == [12, 6, 4] and images.classes == ("a", "b")


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz", ".tgz"])
def test_archives_are_read_in_place(tmp_path, suffix):
    folder = tmp_path / "set"
    for kind in "ab":
        for i in range(4):
            picture(folder / kind / f"{i}.png")
    path = tmp_path / f"packed{suffix}"
    names = sorted(p for p in folder.rglob("*.png"))[::-1]
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.write(name, f"top/{name.relative_to(folder)}")
            archive.writestr("__MACOSX/top/a/._0.png", b"litter")
    else:
        with tarfile.open(path, "w:gz" if suffix.endswith("gz") else "w") as archive:
            for name in names:
                archive.add(name, f"top/{name.relative_to(folder)}")
    before = set(tmp_path.rglob("*"))
    packed, plain = data.load(path), data.load(folder)
    assert np.array_equal(packed.x, plain.x) and packed.classes == ("a", "b")
    assert set(tmp_path.rglob("*")) == before


def test_images_are_cropped_in_the_middle_and_resized_without_aliasing(tmp_path):
    wide = np.zeros((40, 100, 3), np.uint8)
    wide[:, 30:70] = 255
    Image.fromarray(wide).save(tmp_path / "a.png")
    stripes = np.zeros((40, 40, 3), np.uint8)
    stripes[:, ::2] = 255
    Image.fromarray(stripes).save(tmp_path / "b.png")
    images = data.load(tmp_path, image_size=10)
    assert images.shape == (1, 10, 10) and (images.x[0] == 1).all()
    assert images.x[1] == pytest.approx(np.full((1, 10, 10), 0.5), abs=0.05)
    assert images.reading.preparation["crop"] == "centre"
    assert data.load(tmp_path, image_size=10, channels="colour").shape == (3, 10, 10)


def test_colour_becomes_grey_when_asked(tmp_path):
    picture(tmp_path / "a.png"), picture(tmp_path / "b.png")
    colour, grey = data.load(tmp_path), data.load(tmp_path, channels="grey")
    luma = np.tensordot(colour.x, [0.299, 0.587, 0.114], axes=(1, 0))
    assert grey.shape == (1, 20, 24) and grey.x[:, 0] == pytest.approx(luma, abs=2 / 255)
    np.save(tmp_path / "x.npy", np.moveaxis(colour.pixels, 1, -1))
    assert data.load(tmp_path / "x.npy", channels="grey").x[:, 0] == pytest.approx(luma, abs=2 / 255)
    assert data.load(tmp_path / "x.npy", image_size=8).shape == (3, 8, 8)


def test_transparent_animated_and_turned_pictures(tmp_path):
    clear = np.zeros((8, 8, 4), np.uint8)
    clear[:4, :, 3] = 255
    Image.fromarray(clear).save(tmp_path / "a.png")
    frames = [Image.fromarray(np.full((8, 8), v, np.uint8)) for v in (10, 200)]
    frames[0].save(tmp_path / "b.gif", save_all=True, append_images=frames[1:])
    turned = Image.fromarray(np.repeat(np.array([[0] * 8] * 4 + [[255] * 8] * 4, np.uint8)[..., None], 3, -1))
    exif = turned.getexif()
    exif[0x0112] = 3
    turned.save(tmp_path / "c.png", exif=exif)
    images = data.load(tmp_path)
    assert (images.x[0, 0, :4] == 0).all() and (images.x[0, 0, 4:] == 1).all()
    assert images.x[1].max() < 0.1 and images.reading.remarks == [
        ("b.gif", "animated, only the first of 2 frames is used")
    ]
    assert (images.x[2, 0, :4] == 1).all()
    frames[0].save(tmp_path / "d.tif", save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match=r"d.tif is a stack of 2 pages"):
        data.load(tmp_path)


def test_an_unknown_reader_is_named(tmp_path):
    picture(tmp_path / "a.png")
    with pytest.raises(InputError, match="no reader is called 'celebb'"):
        data.load(f"celebb:{tmp_path}")
    with pytest.raises(InputError, match="is not AFHQ"):
        data.load(f"afhq:{tmp_path}")
    with pytest.raises(InputError, match="no such data"):
        data.load(f"afhq:{tmp_path / 'nowhere'}")
    for name in ("a" * 5000, "nul\0l", "x:y"):
        with pytest.raises(InputError, match="no such data"):
            data.load(name)
    (tmp_path / "a.png").unlink()
    for name in readers.names():
        with pytest.raises(InputError) as caught:
            data.load(f"{name}:{tmp_path}")
        assert "\n" not in str(caught.value)


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 30

    def __getitem__(self, i):
        return torch.full((3, 8, 8), i / 30), i % 3


def test_a_torch_dataset_trains(tmp_path):
    images = data.from_dataset(Squares())
    assert images.shape == (3, 8, 8) and images.classes == ("0", "1", "2")
    assert len(data.from_dataset(Squares(), limit=7)) == 7
    model = NeuroSQL(generator="mlp", width=8, epochs=1).fit(Squares(), out=tmp_path / "run")
    assert model.sample(2).shape == (2, 3, 8, 8) and model.input_.startswith("30 colour images")
    assert json.loads((tmp_path / "run" / "split.json").read_text())["count"] == 30
    pairs = [(np.asarray(Image.new("L", (8, 8), i)), "odd" if i % 2 else "even") for i in range(6)]
    assert data.from_dataset(
        type("Own", (), {"__len__": lambda s: 6, "__getitem__": lambda s, i: pairs[i]})()
    ).classes == ("even", "odd")


def test_sixteen_bit_and_palette_pictures_in_an_archive(tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for i, mode in enumerate(("I;16", "P", "CMYK")):
            buffer = io.BytesIO()
            pixels = np.linspace(0, 255, 64).reshape(8, 8).astype(np.uint8)
            image = (
                Image.fromarray(pixels.astype(np.uint16) * 257)
                if mode == "I;16"
                else Image.fromarray(pixels).convert(mode)
            )
            image.save(buffer, "TIFF" if mode == "CMYK" else "PNG")
            archive.writestr(f"{i}.png", buffer.getvalue())
    (tmp_path / "odd.zip").write_bytes(content.getvalue())
    images = data.load(tmp_path / "odd.zip")
    assert images.shape == (1, 8, 8) and images.x[0] == pytest.approx(images.x[1], abs=0.02)
