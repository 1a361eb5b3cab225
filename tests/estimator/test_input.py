"""Samples of every kind that people have: whatever holds the same images trains the same model."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler

from neurosql import InputError, NeuroSQL, app, data, fit, presets
from neurosql.cost import Cost
from neurosql.metrics.frechet import frechet_distance
from neurosql.metrics.neighbours import prdc

QUICK = dict(generator="mlp", width=16, epochs=2, batch_size=32, every=1)


@pytest.fixture(scope="module")
def images(digits):
    return (digits[0][:40] * 255).round().astype(np.uint8)


@pytest.fixture(scope="module")
def model(images):
    return NeuroSQL(**QUICK).fit(images)


class Digits(Dataset):
    """Tensors (1, 8, 8) with a label."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i][None] / np.float32(255)), i % 4


class Named(Digits):
    """Dictionaries with a Pillow image and a label."""

    def __getitem__(self, i):
        return {"label": i % 4, "image": Image.fromarray(self.images[i])}


class Stream(IterableDataset):
    """Tensors one after another, without a length."""

    def __init__(self, images):
        self.images = images

    def __iter__(self):
        return iter(torch.from_numpy(self.images[:, None] / np.float32(255)))


def joined(items):
    return [item["image"] for item in items], [item["label"] for item in items]


KINDS = {
    "whole numbers": lambda x: x.astype(np.int64),
    "nested lists": lambda x: x.tolist(),
    "list of arrays": list,
    "list of tensors": lambda x: list(torch.from_numpy(x / np.float32(255)).requires_grad_()),
    "Pillow images": lambda x: [Image.fromarray(image) for image in x],
    "a mixed list": lambda x: [
        *(Image.fromarray(image) for image in x[:9]),
        *(x[9:20] / 255).astype(np.float32),
        *torch.from_numpy(x[20:]),
    ],
    "float64": lambda x: x / 255,
    "a tensor that requires gradients": lambda x: torch.from_numpy(x / np.float32(255)).requires_grad_(),
    "a dataset": Digits,
    "a dataset of dictionaries": Named,
    "a loader": lambda x: DataLoader(Digits(x), batch_size=7),
    "a loader that shuffles": lambda x: DataLoader(Digits(x), batch_size=7, shuffle=True),
    "a loader with a collate function": lambda x: DataLoader(Named(x), batch_size=7, collate_fn=joined),
    "a loader of a stream": lambda x: DataLoader(Stream(x), batch_size=7),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_images_give_the_same_codes(kind, images, model):
    same = NeuroSQL(**QUICK).fit(KINDS[kind](images))
    # Held out by class where there are labels, so the split and the codes may differ: the images do not.
    if "classes" in same.input_:
        labelled = NeuroSQL(**QUICK).fit(images, np.arange(40) % 4)
        assert np.array_equal(same.codes_, labelled.codes_)
    else:
        assert np.array_equal(same.codes_, model.codes_)
    assert np.allclose(model.transform(KINDS[kind](images[:5])), model.transform(images[:5]), atol=1e-5)


@pytest.mark.parametrize("kind", [np.float16, torch.bfloat16])
def test_half_floats_are_images_too(kind, images, model):
    given = torch.from_numpy(images / 255).to(kind) if kind is torch.bfloat16 else (images / 255).astype(kind)
    assert NeuroSQL(**QUICK).fit(given).input_ == model.input_


def test_dark_whole_numbers_are_read_as_those_of_the_training(images):
    """An image whose pixels are all 0 or 1 could be anything; the training images say what white is."""
    model = NeuroSQL(**QUICK).fit(images.astype(np.int32))
    dark = (images[:3] > 128).astype(np.int32)
    assert np.array_equal(model.transform(dark), model.transform(dark.astype(np.uint8)))
    masks = NeuroSQL(**QUICK).fit((images > 128).astype(np.int32))
    assert np.array_equal(masks.transform(dark), masks.transform(dark.astype(np.float32)))


def test_a_loader_with_a_sampler_has_only_its_samples(images):
    loader = DataLoader(Digits(images), sampler=SubsetRandomSampler(range(12)))
    assert NeuroSQL(**QUICK).fit(loader).codes_.shape == (12, 2)


def test_a_single_pillow_image_is_a_set_of_one(images, model):
    assert np.allclose(model.transform(Image.fromarray(images[3])), model.transform(images[3:4]), atol=1e-5)


def test_grey_images_among_colour_images_become_colour(images):
    colour = np.repeat(images[..., None], 3, -1)
    given = [Image.fromarray(image) for image in (*colour[:20], *images[20:])]
    a, b = NeuroSQL(**QUICK).fit(given), NeuroSQL(**QUICK).fit(colour)
    assert np.array_equal(a.codes_, b.codes_)


def test_a_path_is_read_and_divided_as_on_the_command_line(images, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{i:02d}.png")
    trained = app.train(str(folder), presets.settings(**QUICK), tmp_path / "run").run
    for source in (str(folder), folder):
        run = fit(source, **QUICK)
        assert run.split == trained.split and run.data.test > 0
        assert torch.equal(run.method.codes, trained.method.codes)
    model = NeuroSQL(**QUICK).fit(folder)
    assert np.array_equal(model.codes_, trained.method.codes.numpy())
    assert np.allclose(model.transform(str(folder)), model.transform(images), atol=1e-5)


def test_an_array_model_reads_colour_files_as_its_images_are(images, model, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for i, image in enumerate(images[:3]):
        Image.fromarray(image).convert("RGB").save(folder / f"{i}.png")
    assert np.allclose(model.transform(folder), model.transform(images[:3]), atol=1e-5)


OUTSIDE = np.where(np.arange(4 * 64).reshape(4, 8, 8) == 2 * 64 + 10, 1.7, 0.5)


@pytest.mark.parametrize(
    "bad, words",
    [
        (OUTSIDE, r"\[0, 1\].* from 0.5 to 1.7: 1.7 in sample 2 at \(1, 2\)"),
        (np.full((4, 8, 8), -3), r"-3 in sample 0 at \(0, 0\)"),
        (np.full((4, 8, 8), 300), "whole numbers from 0 to 255, got values from 300 to 300"),
        ([np.zeros((8, 8)), np.zeros((9, 8))], r"sample 1 has \(9, 8\), the first one \(8, 8\)"),
        ([[1.0, 2.0], [1.0]], "differ in length"),
        ([Image.new("F", (8, 8))] * 3, "mode 'F'"),
        ("nowhere/at/all", "no such data"),
        (DataLoader(Digits(np.zeros((0, 8, 8), np.uint8)), sampler=[]), "no batches"),
    ],
)
def test_bad_samples_are_refused_in_one_sentence(bad, words):
    with pytest.raises(InputError, match=words) as caught:
        NeuroSQL(**QUICK).fit(bad)
    assert "\n" not in str(caught.value)


def test_an_item_without_a_sample_is_refused():
    class Odd(Digits):
        def __getitem__(self, i):
            return {"pixels": 0}

    with pytest.raises(InputError, match="found: pixels"):
        NeuroSQL(**QUICK).fit(Odd(np.zeros((4, 8, 8))))


def test_values_out_of_range_are_refused_by_a_fitted_model_too(images, model):
    for use in (model.transform, model.score, model.run_.encode, model.run_.reconstruct):
        with pytest.raises(InputError, match=r"1\.7 in sample 2"):
            use(OUTSIDE)
    with pytest.raises(InputError, match=r"a set of one, X\[None\]"):
        model.transform(images[0] / 255)


def test_a_run_takes_arrays_tensors_and_lists(images, model):
    run = model.run_
    codes = torch.from_numpy(model.codes_).requires_grad_()
    expected = run.decode(model.codes_)
    for given in (codes, codes.double(), model.codes_.tolist()):
        assert np.array_equal(run.decode(given), expected)
        assert np.array_equal(model.inverse_transform(given), expected[:, 0])
    found = run.encode(images[:4])[0]
    for given in (images[:4, None] / 255, images[:4, ..., None], torch.from_numpy(images[:4])):
        assert np.allclose(run.encode(given)[0], found, atol=1e-5)
    assert np.allclose(run.reconstruct(images[:4]), run.decode(found), atol=1e-5)
    with pytest.raises(InputError, match=r"codes must have shape \(n, 2\), got \(3, 5\)"):
        run.decode(np.zeros((3, 5)))
    with pytest.raises(InputError, match=r"samples must have shape \(n, 1, 8, 8\), got \(3, 9, 9\)"):
        run.encode(np.zeros((3, 9, 9)))


def test_a_cost_takes_arrays_and_bytes(images):
    x, y = images[:6, None], images[6:12, None]
    expected = Cost().matrix(torch.from_numpy(x / np.float32(255)), torch.from_numpy(y / np.float32(255)))
    for given in (lambda z: z, lambda z: z / np.float32(255), torch.from_numpy):
        torch.testing.assert_close(Cost().matrix(given(x), given(y)), expected)
        torch.testing.assert_close(Cost().paired(given(x), given(y)), expected.diagonal())


def test_scores_take_tensors(digits):
    a, b = (torch.from_numpy(part.reshape(len(part), -1)) for part in (digits[0][:50], digits[0][50:100]))
    assert frechet_distance(a.requires_grad_(), b) == frechet_distance(a.detach().numpy(), b.numpy())
    assert prdc(a, generated=b.bfloat16()) == prdc(a.detach().numpy(), b.bfloat16().float().numpy())


def test_labels_may_be_a_list_of_tensors(images):
    made = data.from_array(images[:4], [torch.tensor(i) for i in (3, 1, 3, 1)])
    assert made.labels.tolist() == [1, 0, 1, 0] and made.classes == ("1", "3")


def test_a_set_in_other_units_is_the_same_table(digits):
    table = digits[0][:60].reshape(60, -1) * 40 + 3
    model = NeuroSQL(**QUICK).fit(table[:40])
    later = data.from_array(table[40:], digits[1][40:60])
    assert np.abs(later.mean - model.run_.like.mean).max() > 1
    like = model.run_.like
    assert np.allclose(later.in_units_of(like).x, (table[40:] - like.mean) / like.std, atol=1e-5)
    # In its own units, the set would be another table. Refinement blows up rounding errors of single codes.
    assert model.score(later) == pytest.approx(model.score(table[40:]), rel=1e-4)
    assert model.score(later.x) != pytest.approx(model.score(table[40:]), rel=1e-2)


def test_labels_may_be_given_beside_a_dataset_or_a_set(images):
    class Bare(Digits):
        def __getitem__(self, i):
            return super().__getitem__(i)[0]

    labels = np.arange(40) % 3
    for given in (Bare(images), data.from_array(images)):
        model = NeuroSQL(**QUICK, conditional=True).fit(given, labels)
        assert list(model.classes_) == ["0", "1", "2"]
    with pytest.raises(InputError, match="come from its files"):
        fit("mnist-sample", labels)
