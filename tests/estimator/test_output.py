"""Samples as people want them: Pillow images, tensors, data frames with the columns of the training table; lines."""

import sys

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from neurosql import InputError, NeuroSQL, app, fit
from neurosql.data.columns import Columns

QUICK = dict(generator="mlp", width=16, epochs=2, batch_size=32, every=1)


@pytest.fixture(scope="module")
def model(digits):
    return NeuroSQL(**QUICK).fit(digits[0][:60])


def table(n=80):
    random = np.random.default_rng(0)
    return {
        "age": random.integers(18, 90, n),
        "height": random.normal(170, 10, n).astype(np.float32),
        "smokes": random.random(n) < 0.5,
        "site": np.full(n, 7),
        "share": random.random(n),
    }


@pytest.fixture(scope="module")
def frame():
    return pytest.importorskip("pandas").DataFrame(table())


@pytest.fixture(scope="module")
def of_frame(frame):
    return NeuroSQL(latent_dim=2, epochs=3, width=16, scale=3.0).fit(frame)


def test_pillow_images_hold_the_samples(model, digits):
    arrays, pictures = (model.sample(4, random_state=1, output=kind) for kind in ("numpy", "pil"))
    for array, picture in zip(arrays, pictures):
        assert picture.mode == "L" and np.abs(np.asarray(picture) / 255 - array).max() <= 0.5 / 255 + 1e-6
    colour = NeuroSQL(**QUICK).fit(np.repeat(digits[0][:30, ..., None], 3, -1))
    assert colour.sample(1, output="pil")[0].mode == "RGB"


def test_tensors_hold_the_samples(model):
    made = model.sample(3, random_state=1, output="torch")
    assert isinstance(made, torch.Tensor)
    assert np.array_equal(made.numpy(), model.sample(3, random_state=1))


def test_an_output_that_does_not_fit_is_refused(model, of_frame):
    with pytest.raises(InputError, match="must be one of numpy, torch, pandas, pil, got 'png'"):
        model.sample(1, output="png")
    with pytest.raises(InputError, match="images can't be a data frame"):
        model.sample(1, output="pandas")
    with pytest.raises(InputError, match="only grey and colour images"):
        of_frame.sample(1, output="pil")


def test_without_pandas_the_user_is_told_what_to_do(monkeypatch, digits):
    model = NeuroSQL(**QUICK).fit(digits[0][:30].reshape(30, -1))
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert model.sample(2).shape == (2, 64)
    with pytest.raises(InputError, match="pip install pandas"):
        model.sample(2, output="pandas")


def test_samples_of_a_data_frame_are_rows_of_such_a_frame(frame, of_frame):
    made = of_frame.sample(300, random_state=0)
    assert list(made.columns) == list(frame.columns)
    assert (made.dtypes == frame.dtypes).all()
    assert (made.min() >= frame.min()).all() and (made.max() <= frame.max()).all()
    assert (made["site"] == 7).all() and made["age"].nunique() > 5
    # The draws go beyond the table, so that staying within it is no accident.
    raw = of_frame.run_.like.restore(of_frame.run_.sample(300, seed=0)[0])
    assert (raw > of_frame.run_.like.columns.high).any() or (raw < of_frame.run_.like.columns.low).any()


def test_samples_of_an_array_are_an_array_with_the_same_manners(frame, of_frame):
    values = np.column_stack(list(table().values()))
    model = NeuroSQL(latent_dim=2, epochs=3, width=16, scale=3.0).fit(values)
    made = model.sample(300, random_state=0)
    assert isinstance(made, np.ndarray)
    assert (made >= values.min(0)).all() and (made <= values.max(0)).all()
    assert np.array_equal(made[:, [0, 2, 3]], made[:, [0, 2, 3]].round())
    assert not np.array_equal(made[:, 1], made[:, 1].round())
    assert list(model.sample(2, output="pandas").columns) == ["x0", "x1", "x2", "x3", "x4"]


def test_columns_are_kept_by_save_and_load(of_frame, tmp_path):
    of_frame.save(tmp_path / "run")
    again = NeuroSQL.load(tmp_path / "run")
    a, b = (model.sample(20, random_state=3) for model in (of_frame, again))
    assert a.equals(b) and (a.dtypes == b.dtypes).all()


def test_a_table_on_disk_keeps_its_names_and_ranges(tmp_path):
    pytest.importorskip("pandas")
    columns = {name: column.astype(np.float64) for name, column in table(60).items()}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values()))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    model = NeuroSQL(latent_dim=2, epochs=2, width=16).fit(tmp_path / "table.csv", out=tmp_path / "run")
    made = model.sample(50, random_state=0, output="pandas")
    assert list(made.columns) == list(columns) and (made["site"] == 7).all()
    assert ((made["age"] % 1) == 0).all() and made["age"].between(18, 89).all()
    done = app.sample(tmp_path / "run", 50, seed=0, out=tmp_path / "samples.npy")
    assert np.allclose(np.load(done.path), made.to_numpy())


def test_the_range_is_that_of_the_training_part():
    values = np.array([[0.0, 0.1], [4.0, 0.2], [9.0, 0.7]])
    part = Columns.of((values[:2] - 1e-9).astype(np.float32).astype(np.float64))
    kept = Columns.of(values).within(part)
    assert kept.whole.tolist() == [True, False]
    assert kept.low.tolist() == [0.0, pytest.approx(0.1)] and kept.high.tolist() == [4.0, pytest.approx(0.2)]


def test_a_column_that_is_not_numeric_is_named(frame):
    with pytest.raises(InputError, match="column 'town' holds"):
        NeuroSQL(**QUICK).fit(frame.assign(town="Ulm"))


def test_codes_are_a_data_frame_where_that_is_asked_for(frame, of_frame):
    again = NeuroSQL(latent_dim=2, epochs=1, width=16).set_output(transform="pandas").fit(frame)
    codes = again.transform(frame[5:8])
    assert list(codes.columns) == ["z1", "z2"] and list(codes.index) == [5, 6, 7]
    assert of_frame.get_feature_names_out().tolist() == ["z1", "z2"]
    chain = make_pipeline(PCA(3), NeuroSQL(latent_dim=2, epochs=1, width=16)).set_output(transform="pandas")
    assert list(chain.fit_transform(frame).columns) == ["z1", "z2"]


def test_a_line_goes_from_one_end_to_the_other(model, digits):
    codes = model.codes_
    line = model.interpolate(3, 40, 5)
    expected = model.inverse_transform(codes[3] + np.linspace(0, 1, 5)[:, None] * (codes[40] - codes[3]))
    assert line.shape == (5, 8, 8) and np.allclose(line, expected, atol=1e-5)
    assert np.array_equal(model.interpolate(codes[3], codes[40], 5), line)
    assert np.array_equal(model.interpolate(codes[3].tolist(), torch.from_numpy(codes[40]), 5), line)
    between = model.interpolate(digits[0][3], digits[0][40], 2)
    assert np.allclose(between, model.inverse_transform(model.transform(digits[0][[3, 40]])), atol=1e-5)
    assert len(model.interpolate(0, 1, 3, output="pil")) == 3


def test_a_line_between_rows_of_a_table_is_a_table(frame, of_frame, recwarn):
    made = of_frame.interpolate(frame.iloc[0], frame.iloc[1], 4)
    assert list(made.columns) == list(frame.columns) and len(made) == 4
    assert not [w for w in recwarn if "feature names" in str(w.message)]


def test_a_line_that_can_not_be_drawn_is_refused(model, digits):
    with pytest.raises(InputError, match="steps must be at least 2"):
        model.interpolate(0, 1, 1)
    with pytest.raises(InputError, match="samples 0 to 59, got 60"):
        model.interpolate(0, 60)
    with pytest.raises(InputError, match="one sample, got 2"):
        model.interpolate(digits[0][:2], 1)
    with pytest.raises(InputError, match=r"a code must have shape \(2,\)"):
        model.interpolate(digits[0][0], 1, codes=True)
    plane = NeuroSQL(**QUICK).fit(np.random.default_rng(0).normal(size=(30, 2)))
    with pytest.raises(InputError, match="codes=True or codes=False"):
        plane.interpolate([0, 0], [1, 1])
    a, b = plane.interpolate([0, 0], [1, 1], 2, codes=True), plane.inverse_transform([[0, 0], [1, 1]])
    assert np.allclose(a, plane.run_.like.columns.settled(b))


def test_a_line_of_a_class_conditional_model_stays_in_one_class(digits):
    images, labels = digits[0][:80], digits[1][:80] % 2
    model = NeuroSQL(**QUICK, conditional=True, validation_share=0).fit(images, labels)
    first, second = (np.flatnonzero(labels == 0)[:2], np.flatnonzero(labels == 1)[:2])
    line = model.interpolate(int(second[0]), int(second[1]), 3)
    assert np.allclose(line[[0, -1]], model.inverse_transform(model.codes_[second], [1, 1]), atol=1e-5)
    assert model.interpolate(int(first[0]), int(second[0]), 3, label=0).shape == (3, 8, 8)
    with pytest.raises(InputError, match="two classes, 0 and 1"):
        model.interpolate(int(first[0]), int(second[0]))
    with pytest.raises(InputError, match="give label"):
        model.interpolate([0, 0], [1, 1])


def test_samplers_are_named_and_a_wrong_name_lists_them(model):
    for sampler in ("prior", "apart", "near", "truncated", "between", "local", "gaussian", "mixture"):
        assert f'"{sampler}"' in NeuroSQL.sample.__doc__
        assert model.sample(2, sampler=sampler).shape == (2, 8, 8)
    with pytest.raises(InputError, match=r"are prior, apart, near, .*, local, gaussian, mixture, got 'nearest'"):
        model.sample(2, sampler="nearest")
    with pytest.raises(InputError, match="fraction must be in"):
        model.sample(2, sampler="near", fraction=2)
    with pytest.raises(InputError, match="the sampler prior of neurosql has no fraction"):
        model.sample(2, sampler="prior", fraction=0.5)


def test_runs_of_any_method_know_their_columns():
    run = fit(np.column_stack(list(table().values())), method="vae", epochs=1, width=16)
    assert run.like.restore_new(run.sample(9, seed=0)[0])[:, 3].tolist() == [7.0] * 9
