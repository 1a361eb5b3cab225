"""A run as one page: it opens from a file without a network, makes what Python makes, and gives away what it says."""

import base64
import io
import json
import os
import re
import shutil
import subprocess
import time

import numpy as np
import pytest
import torch
from PIL import Image

from neurosql import InputError, app, fit, open_run
from neurosql.app.portable import bundle, embedding
from neurosql.app.portable.laws import law_of
from neurosql.cli import main
from neurosql.density import Mixture

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUICK = dict(generator="mlp", width=16, epochs=1, batch_size=16, validation_share=0.0, preset="samples")
CLASSES = ("<!-- two & three", "</script><b>one")
"""Class names that must not become part of the page."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A class-conditional run in three dimensions, and one in two without classes, on images with names."""
    root = tmp_path_factory.mktemp("somewhere")
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (40, 8, 9), np.uint8)
    np.savez(root / "images.npz", images=pixels, labels=np.repeat(CLASSES, 20))
    for i in range(24):
        place = root / "ward" / f"{'left' if i % 2 else 'right'}-side" / f"patient-{1000 + i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[i]).save(place)
    named = dict(latent_dim=3, components=2, conditional=True)
    fit(str(root / "images.npz"), out=root / "classes", **QUICK | named)
    fit(str(root / "ward"), out=root / "ward-seven", **QUICK | dict(latent_dim=2, components=3))
    return root


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    """Pages of these runs, by name: with images, and without."""
    root = tmp_path_factory.mktemp("pages")
    made = {}
    for name, run, options in [
        ("classes", "classes", {}),
        ("map", "ward-seven", {}),
        ("private", "ward-seven", {"with_images": False}),
        ("private-classes", "classes", {"with_images": False}),
    ]:
        made[name] = app.to_html(runs / run, root / f"{name}.html", **options)
    return made


def parts(page):
    """The plain values and the arrays of a page."""
    text = page.path.read_text("utf-8")
    head = json.loads(re.search(r'id="embedded">(.*?)</script>', text)[1])
    content = base64.b64decode(re.search(r'id="content">(.*?)</script>', text)[1])
    kinds = {"f4": "<f4", "i4": "<i4", "u1": "u1"}
    arrays = {}
    for name, where in head["arrays"].items():
        count = int(np.prod(where["shape"]))
        arrays[name] = np.frombuffer(content, kinds[where["type"]], count, where["at"]).reshape(where["shape"])
    return head, arrays, text.encode() + content


def secrets(run, source):
    """Bytes that tell of single training images: codes in either precision, pixels, digests and names."""
    codes, x = run.method.codes.numpy(), source.reshape(len(source), -1)
    found = [row.astype(kind).tobytes() for row in codes for kind in (np.float32, np.float64)]
    found += [repr(float(value))[:9].encode() for row in codes for value in row]
    found += [row[:16].tobytes() for row in x] + [digest.tobytes() for digest in run.trained_on().digests]
    return found


def test_with_images_the_page_holds_images_and_codes_and_no_names_or_paths(pages, runs):
    run, (head, arrays, content) = open_run(runs / "ward-seven"), parts(pages["map"])
    assert np.array_equal(arrays["codes"], run.method.codes.numpy()) and len(arrays["losses"]) == len(run.index)
    sprite = np.asarray(Image.open(io.BytesIO(arrays["images"].tobytes())))
    (high, wide), columns = head["sprite"]["tile"], head["sprite"]["columns"]
    expected = app.explorer.Opened(runs / "ward-seven").train().pixels
    for i, pixels in enumerate(expected):
        top, left = i // columns * high, i % columns * wide
        assert np.array_equal(sprite[top : top + high, left : left + wide], pixels[0])
    for word in (b"patient-", b"somewhere", str(runs).encode(), run.data.fingerprint.encode()):
        assert word not in content
    assert head["description"]["capabilities"]["images"] and head["description"]["classes"] == [
        "left-side",
        "right-side",
    ]


@pytest.mark.parametrize("name", ["private", "private-classes"])
def test_without_images_no_byte_of_the_page_tells_of_a_single_training_image(name, pages, runs):
    path = runs / ("classes" if "classes" in name else "ward-seven")
    run, (head, arrays, content) = open_run(path), parts(pages[name])
    pixels = app.explorer.Opened(path).train().pixels
    pixels = pixels if pixels.dtype == np.uint8 else (pixels * 255).round().astype(np.uint8)
    assert set(arrays) == {"model"} and head["description"]["count"] == 0 and "sprite" not in head
    wanted = secrets(run, pixels)
    own = parts(pages["classes" if "classes" in name else "map"])[2]
    assert sum(secret in own for secret in wanted) >= len(run.index), "codes are found where they are"
    assert not any(secret in content for secret in wanted)
    known = list(CLASSES) if "classes" in name else []
    assert head["description"]["classes"] == known
    for word in (b"patient-", b"somewhere", b"ward-seven", b"-side", str(runs).encode(), run.data.fingerprint.encode()):
        assert word not in content


def test_commands_say_what_a_page_gives_away(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(runs / "ward-seven"), "--html"]) == 0
    told = capsys.readouterr().out
    assert "the training images, small" in told and "codes, losses and labels" in told and " MB" in told
    assert main(["export", str(runs / "ward-seven"), "--html", "--without-images", "--out", "private.html"]) == 0
    told = capsys.readouterr().out
    assert "no training samples are in the page" in told and "differential privacy" in told
    assert (tmp_path / "ward-seven.html").stat().st_size > (tmp_path / "private.html").stat().st_size
    for words, said in [
        (["--html"], "exists"),
        (["--html", "--out", "page.htm"], "must end in .html"),
        (["--onnx", "--without-images"], "are for --html"),
        (["--html", "--data", str(tmp_path / "nowhere"), "--out", "a.html"], "can't be shown"),
    ]:
        assert main(["export", str(runs / "ward-seven"), *words]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "a.html").exists()


def test_a_model_that_a_browser_can_not_run_becomes_an_atlas(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "SLOW", 0)
    done = app.to_html(runs / "ward-seven", tmp_path / "atlas.html")
    head, arrays, _ = parts(done)
    side, run = head["atlas"]["side"], open_run(runs / "ward-seven")
    assert "plan" not in head and f"{side} x {side}" in done.notes[0]
    assert arrays["model"].shape == (1, side, side, 1, 8, 9)
    corner = [low for low, _ in head["atlas"]["box"]]
    expected = run.decode(np.array([corner]))[0]
    np.testing.assert_allclose(arrays["model"][0, 0, 0] / 255, expected, atol=0.51 / 255)


def test_a_prior_of_ones_own_is_refused(runs, monkeypatch, tmp_path):
    monkeypatch.setattr(embedding, "law_of", lambda run: {"name": "unknown"})
    with pytest.raises(InputError, match="a prior of your own"):
        app.to_html(runs / "ward-seven", tmp_path / "a.html")


def test_modules_become_one_script(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "STATIC", tmp_path)
    (tmp_path / "a.js").write_text('import { twice as double } from "./b.js";\nexport const four = double(2);\n')
    (tmp_path / "b.js").write_text("export function twice(x) { return 2 * x; }\nconst four = 0;\n")
    assert bundle.script("a").index("module_b =") < bundle.script("a").index("module_a =")
    for source in ('import x from "./b.js";', 'import { twice } from "./a.js";', "const a = '</script>';"):
        (tmp_path / "a.js").write_text(source)
        with pytest.raises(RuntimeError):
            bundle.script("a")


LAWS = """
import fs from "fs";
import { drawCode, drawLabel, logDensity, randomOf } from "./laws.js";
const { laws, codes } = JSON.parse(fs.readFileSync(0)), random = randomOf(3);
const draws = laws.map((law) => Array.from({ length: 4000 }, () => drawCode(law, 2, 0, random)));
const shares = Array.from({ length: 4000 }, () => drawLabel({ shares: [0.2, 0, 0.8] }, random));
console.log(JSON.stringify({ draws, shares, densities: codes.map((code) => logDensity(laws[0], code)) }));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, to run JavaScript without a browser")
def test_the_page_draws_codes_from_the_law_of_the_run(runs, tmp_path):
    run = open_run(runs / "ward-seven")
    law, mixture = law_of(run), run.method.law
    others = [dict(name="normal", scale=2), dict(name="cube", low=-1, high=3), dict(name="ball", radius=2)]
    others.append(dict(name="spherical", radius=2))
    codes = mixture.sample(20, None, torch.Generator().manual_seed(0))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "run.js").write_text(LAWS)
    shutil.copy(bundle.STATIC / "laws.js", tmp_path)
    given = json.dumps({"laws": [law, *others], "codes": codes.tolist()})
    done = subprocess.run(["node", "run.js"], cwd=tmp_path, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(mixture, Mixture)
    np.testing.assert_allclose(found["densities"], mixture.log_prob(codes).numpy(), rtol=1e-5, atol=1e-5)
    drawn = np.array(found["draws"])
    reference = mixture.sample(20000, None, torch.Generator().manual_seed(1)).numpy()
    np.testing.assert_allclose(drawn[0].mean(0), reference.mean(0), atol=0.1)
    np.testing.assert_allclose(np.cov(drawn[0].T), np.cov(reference.T), atol=0.15)
    lengths = np.linalg.norm(drawn, axis=2)
    np.testing.assert_allclose(drawn[1].std(0), 2, rtol=0.05)
    np.testing.assert_allclose([drawn[2].min(), drawn[2].max(), drawn[2].mean()], [-1, 3, 1], atol=0.05)
    np.testing.assert_allclose([np.median(lengths[3]), np.median(lengths[4])], [np.sqrt(2), 1], rtol=0.05)
    np.testing.assert_allclose(np.bincount(found["shares"], minlength=3) / 4000, [0.2, 0, 0.8], atol=0.03)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright, to drive a browser")
    if BROWSER is None and "NEUROSQL_BROWSER_REQUIRED" not in os.environ:
        pytest.skip("needs a browser: chromium, chromium-browser or google-chrome on the path")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Open a page from its file, with the network off; nothing may go wrong, and nothing be asked for."""
    context, wrong = browser.new_context(offline=True, viewport={"width": 800, "height": 500}), []

    def open_page(page, view=""):
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda asked: asked.url.startswith(("file:", "data:", "blob:")) or wrong.append(asked.url))
        tab.goto(f"{page.path.as_uri()}#{view}")
        tab.wait_for_selector("[role=tab]")
        return tab

    yield open_page
    context.close()
    assert not wrong


PIXELS = """(canvas) => {
  const copy = document.createElement("canvas"), { width, height } = canvas;
  [copy.width, copy.height] = [width, height];
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  return Array.from(pen.getImageData(0, 0, width, height).data);
}"""


DRAWN = """(canvas) => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [16, 16];
  copy.getContext("2d").drawImage(canvas, 0, 0, 16, 16);
  return copy.getContext("2d").getImageData(0, 0, 16, 16).data.some((value) => value);
}"""
"""Whether anything is on a canvas."""


def until(holds, seconds=30):
    """Wait until something holds; what Playwright has for that needs `eval`, which the page forbids."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def pixels_of(canvas):
    """The grey values of a canvas, in [0, 1]."""
    return np.array(canvas.evaluate(PIXELS)).reshape(-1, 4)[:, 0].reshape(8, 9) / 255


@pytest.mark.parametrize(("name", "run"), [("classes", "classes"), ("map", "ward-seven")])
def test_in_a_browser_the_page_shows_images_and_makes_what_python_makes(name, run, pages, runs, opened):
    tab, expected = opened(pages[name], "sample=5"), open_run(runs / run)
    tab.wait_for_selector("#panel-picked .pair canvas")
    real, made = tab.query_selector_all("#panel-picked .pair canvas")
    images = app.explorer.Opened(runs / run).train().x
    np.testing.assert_allclose(pixels_of(real), images[5, 0], atol=1e-6)
    np.testing.assert_allclose(pixels_of(made), expected.reconstruct()[5, 0], atol=0.5 / 255 + 1e-3)
    tab.click("#tab-sheet")
    tab.click("#draw")
    tab.wait_for_selector("#panel-sheet .sheet canvas")
    assert len(tab.query_selector_all("#panel-sheet .sheet canvas")) == 12
    if name == "classes":
        assert CLASSES[1] in tab.inner_text("#legend") and not tab.query_selector("#legend b")


def test_in_a_browser_the_page_without_images_decodes_under_the_pointer(pages, opened):
    tab = opened(pages["private"])
    # What the model makes all over the map takes the place of points; what is for points is not there.
    until(lambda: tab.query_selector("#plane canvas").evaluate(DRAWN))
    assert not tab.is_visible("#find") and not tab.is_visible("#tab-chosen")
    box = tab.locator("#plane").bounding_box()
    seen = []
    for share in (0.3, 0.6):
        tab.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"])
        tab.wait_for_selector("#lens:visible")
        tab.wait_for_timeout(100)
        seen.append(pixels_of(tab.query_selector("#here")))
    assert np.abs(seen[0] - seen[1]).max() > 0.01
