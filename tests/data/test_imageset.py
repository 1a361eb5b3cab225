"""Readers: the embedded sample, arrays, folders of images, and what they refuse."""

import gzip
import hashlib
import time

import numpy as np
import pytest
import torch
from PIL import Image

from neurosql import InputError, data
from neurosql.data.imageset import RANK, ImageSet, encode_labels, from_array, layout_of
from neurosql.modality import MODALITIES, of_shape
from neurosql.similarity import ssim


def test_the_embedded_sample_has_its_digits_and_labels():
    began = time.perf_counter()
    sample = data.load("mnist-sample")
    assert time.perf_counter() - began < 5
    assert sample.x.shape == (4096, 1, 28, 28)
    assert len(sample.validation) == 256 and len(sample.test) == 1792
    assert sample.x.min() == 0 and sample.x.max() == 1
    assert sample.classes == tuple("0123456789")
    assert (np.bincount(sample.labels) > 300).all() and (np.bincount(sample.test.labels) > 100).all()
    every = [image for part in sample.parts.values() for image in part.x]
    assert len({hashlib.sha1(image.tobytes()).digest() for image in every}) == 6144


def test_limit_keeps_the_first_digits_of_the_sample():
    assert np.array_equal(data.load("mnist-sample", limit=100).x, data.load("mnist-sample").x[:100])


def test_two_random_digits_have_the_known_mean_ssim():
    """About 0.11 for random pairs of MNIST digits, Gaussian window, valid region."""
    x = torch.from_numpy(data.load("mnist-sample").x)
    assert float(ssim(x[:2048], x[2048:]).mean()) == pytest.approx(0.11, abs=0.01)


def test_the_sample_is_drawn_from_the_original_files(shared_data):
    def read(name, offset):
        raw = gzip.decompress((shared_data / "mnist" / "MNIST" / "raw" / f"{name}.gz").read_bytes())
        return np.frombuffer(raw, np.uint8, offset=offset)

    sample = data.load("mnist-sample")
    for part, images in (("train", sample), ("t10k", sample.validation), ("t10k", sample.test)):
        original = read(f"{part}-images-idx3-ubyte", 16).reshape(-1, 784)
        labels = read(f"{part}-labels-idx1-ubyte", 8)
        known = {row.tobytes(): int(label) for row, label in zip(original, labels)}
        rows = (images.x.reshape(-1, 784) * 255).round().astype(np.uint8)
        assert all(known[row.tobytes()] == label for row, label in zip(rows, images.labels))


def save_images(folder, arrays, suffix=".png"):
    folder.mkdir(parents=True, exist_ok=True)
    for i, array in enumerate(arrays):
        Image.fromarray(array).save(folder / f"{i:03d}{suffix}")


def grey(n, shape=(9, 12), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def test_a_plain_folder_of_grey_images(tmp_path):
    pixels = grey(5)
    save_images(tmp_path, pixels)
    (tmp_path / "notes.txt").write_text("not an image")
    images = data.load(tmp_path)
    assert images.x.shape == (5, 1, 9, 12) and images.labels is None and images.layout == "nhw"
    assert np.array_equal((images.x[:, 0] * 255).round().astype(np.uint8), pixels)


def test_a_folder_a_class_gives_labels(tmp_path):
    for name, count in {"cat": 3, "dog": 4}.items():
        save_images(tmp_path / name, np.random.default_rng(1).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8))
    images = data.load(tmp_path)
    assert images.x.shape == (7, 3, 8, 8)
    assert images.classes == ("cat", "dog") and images.labels.tolist() == [0] * 3 + [1] * 4
    assert set(data.load(tmp_path, limit=4).labels.tolist()) == {0, 1}


def test_grey_saved_as_colour_is_one_channel_and_a_mixture_is_three(tmp_path):
    save_images(tmp_path / "same", np.repeat(grey(3)[..., None], 3, -1))
    assert data.load(tmp_path / "same").shape == (1, 9, 12)
    save_images(tmp_path / "mixed", grey(2))
    colour = np.random.default_rng(2).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    Image.fromarray(colour).save(tmp_path / "mixed" / "z.png")
    assert data.load(tmp_path / "mixed").shape == (3, 9, 12)


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "LA", "CMYK", "I;16"])
def test_other_image_modes_are_read(tmp_path, mode):
    for i, pixels in enumerate(grey(3)):
        picture = (
            Image.fromarray(pixels.astype(np.uint16) * 256) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
        )
        picture.save(tmp_path / f"{i}{'.tif' if mode == 'CMYK' else '.png'}")
    images = data.load(tmp_path)
    assert len(images) == 3 and images.x.std() > 0.1


def test_sixteen_bit_images_keep_their_range(tmp_path):
    ramp = np.linspace(0, 65535, 8 * 8).reshape(8, 8).astype(np.uint16)
    for i in range(2):
        Image.fromarray(ramp).save(tmp_path / f"{i}.png")
    assert data.load(tmp_path).x[0, 0] == pytest.approx(ramp / 65535, abs=1 / 255)


def test_npy_and_npz_files(tmp_path):
    pixels, labels = grey(6), np.array(list("aabbcc"))
    np.save(tmp_path / "x.npy", pixels)
    assert data.load(tmp_path / "x.npy").x.shape == (6, 1, 9, 12)
    np.savez(tmp_path / "x.npz", images=pixels, labels=labels)
    images = data.load(tmp_path / "x.npz")
    assert images.classes == ("a", "b", "c") and images.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert set(data.load(tmp_path / "x.npz", limit=3).labels.tolist()) == {0, 1, 2}
    np.savez(tmp_path / "medmnist.npz", train_images=pixels, train_labels=np.arange(6)[:, None] % 2)
    assert data.load(tmp_path / "medmnist.npz").classes == ("0", "1")
    np.savez(tmp_path / "one.npz", whatever=pixels)
    assert len(data.load(tmp_path / "one.npz")) == 6


def mixed_sizes(folder):
    save_images(folder, grey(3))
    Image.fromarray(grey(1, (9, 13))[0]).save(folder / "wide.png")


def corrupt(folder):
    save_images(folder, grey(3))
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")


def truncated(folder):
    save_images(folder, grey(2, (64, 64)), ".jpg")
    whole = (folder / "000.jpg").read_bytes()
    (folder / "000.jpg").write_bytes(whole[: len(whole) // 2])


def page_instead_of_image(folder):
    folder.mkdir()
    (folder / "a.png").write_text("<!doctype html><title>404</title>")


BAD_FOLDERS = {
    "empty": (lambda folder: folder.mkdir(), "no images"),
    "missing": (lambda folder: None, "no such data"),
    "corrupt": (corrupt, "broken.jpg can't be read"),
    "truncated": (truncated, "000.jpg can't be read"),
    "html": (page_instead_of_image, "a.png can't be read"),
    "mixed sizes": (mixed_sizes, r"2 sizes: 9 x 12 \(3\), 9 x 13 \(1\).*wide.png"),
    "one image": (lambda folder: save_images(folder, grey(1)), "at least 2"),
}


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_a_bad_folder_is_refused_in_one_sentence(case, tmp_path):
    make, words = BAD_FOLDERS[case]
    make(tmp_path / "set")
    with pytest.raises(InputError, match=words) as caught:
        data.load(tmp_path / "set")
    assert "\n" not in str(caught.value)


def save_pickle(path):
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


BAD_FILES = {
    "text.npy": (lambda path: path.write_text("hello"), "not a readable numpy file"),
    "text.npz": (lambda path: path.write_text("hello"), "not a readable numpy file"),
    "pickle.npy": (save_pickle, "not a readable numpy file"),
    "nan.npy": (lambda path: np.save(path, np.full((4, 8, 8), np.nan)), "NaN in sample 0"),
    "infinite.npy": (lambda path: np.save(path, np.full((4, 8, 8), np.inf)), "infinity"),
    "range.npy": (lambda path: np.save(path, np.full((4, 8, 8), 2.0)), "from 2 to 2"),
    "one.npy": (lambda path: np.save(path, np.zeros((1, 8, 8))), "at least 2"),
    "scalar.npy": (lambda path: np.save(path, np.zeros(())), "0 dimension"),
    "keys.npz": (lambda path: np.savez(path, a=np.zeros(3), b=np.zeros(3)), "found: a, b"),
    "labels.npz": (lambda path: np.savez(path, images=grey(4), labels=np.zeros(3)), "one per sample"),
    "movie.mp4": (lambda path: path.write_text("hello"), "can't read"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_one_sentence(name, tmp_path):
    make, words = BAD_FILES[name]
    make(tmp_path / name)
    with pytest.raises(InputError, match=words) as caught:
        data.load(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_the_fingerprint_follows_pixels_and_labels():
    x = grey(4)
    first = from_array(x, [0, 1, 0, 1])
    assert first.fingerprint == from_array(x.astype(np.float32) / 255, [0, 1, 0, 1]).fingerprint
    other = x.copy()
    other[0, 0, 0] ^= 1
    different = [from_array(other, [0, 1, 0, 1]), from_array(x, [0, 1, 1, 1]), from_array(x), from_array(x[::-1])]
    assert len({first.fingerprint, *(s.fingerprint for s in different)}) == 5


def test_the_split_is_seeded_disjoint_and_keeps_class_proportions():
    labels = np.repeat([0, 1, 2], [100, 50, 10])
    images = from_array(grey(160), labels)
    train, rest = images.split(0.2, seed=0)
    assert np.array_equal(np.sort(np.concatenate([train, rest])), np.arange(160))
    assert np.bincount(labels[rest]).tolist() == [20, 10, 2]
    assert np.array_equal(rest, images.split(0.2, seed=0)[1])
    assert not np.array_equal(rest, images.split(0.2, seed=1)[1])
    assert len(from_array(grey(2)).split(0.5, 0)[1]) == 0


def test_vectors_are_standardised_by_column_and_come_back():
    values = np.random.default_rng(0).normal([5, -2000, 3], [1, 300, 0], (50, 3))
    images = from_array(values)
    assert images.kind == "vector"
    assert images.x.mean(0) == pytest.approx(np.zeros(3), abs=1e-6)
    assert images.x.std(0) == pytest.approx([1, 1, 0], abs=1e-6)
    assert images.restore(images.x) == pytest.approx(values, rel=1e-4)


def test_labels_of_any_discrete_kind():
    assert encode_labels(["b", "a", "b"], 3)[1] == ("a", "b")
    assert encode_labels(torch.tensor([3, 1, 3]), 3)[0].tolist() == [1, 0, 1]
    assert encode_labels([1.0, 0.0], 2)[1] == ("0", "1")
    with pytest.raises(InputError, match="real numbers"):
        encode_labels([0.5, 1.0], 2)
    with pytest.raises(InputError, match="one per sample"):
        encode_labels([1, 2], 3)


def test_a_layout_can_be_given_where_the_shape_is_ambiguous():
    x = np.random.default_rng(0).random((4, 3, 9, 3))
    assert from_array(x).shape == (3, 3, 9)
    assert from_array(x, layout="nchw").shape == (3, 9, 3)
    assert from_array(np.zeros((4, 2, 30)), layout="ncl").kind == "signal"
    assert from_array(np.zeros((4, 1, 8, 8, 8)), layout="ncdhw").kind == "volume"
    with pytest.raises(InputError, match="layout 'nhw' is for"):
        from_array(x, layout="nhw")


@pytest.mark.parametrize("name, shape", [("celeba", (3, 109, 89)), ("afhq", (3, 128, 128)), ("oasis", (1, 128, 128))])
def test_folders_of_real_images_are_read(shared_data, name, shape):
    images = data.load(shared_data / name, limit=24)
    assert images.x.shape == (24, shape[0], 64, 64) and images.reading.reader == name
    assert images.x.std() > 0.1
    assert data.load(f"{name}:{shared_data / name}", limit=24, image_size=0).x.shape == (24, *shape)


@pytest.mark.parametrize(
    "shape, kind", [((5,), "vector"), ((1, 9), "signal"), ((3, 4, 4), "image"), ((1, 4, 4, 4), "volume")]
)
def test_a_set_knows_its_modality_and_the_layout_of_its_rank(shape, kind):
    images = ImageSet(np.zeros((2, *shape), np.float32))
    assert images.modality is of_shape(shape) and images.modality.name == images.kind == kind
    assert images.modality.axes == MODALITIES[kind].axes
    assert RANK[layout_of(shape)] == 1 + len(shape) - (layout_of(shape) == "nhw")
