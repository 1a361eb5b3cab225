"""The page of the explorer in a real browser: each thing is done as people do it, and its effect is looked at."""

import csv
import io
import os
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image

import neurosql

BROWSER = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
if "NEUROSQL_BROWSER_REQUIRED" not in os.environ:
    pytest.importorskip("playwright", reason="Playwright's Python package is not installed")
    if BROWSER is None:
        pytest.skip("there is no Chromium or Chrome on the path", allow_module_level=True)

from playwright import sync_api as playwright

LIGHT = {"width": 1400, "height": 900}
PIXELS = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return Array.from({ length: data.length / 4 }, (_, i) => data[4 * i]);
}"""
"""The red of each pixel of a canvas."""


def until(page, holds, seconds=30):
    """Wait until an expression holds; what Playwright has for that needs `eval`, which the page forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"Boolean({holds})"):
        assert time.monotonic() < end, holds
        page.wait_for_timeout(40)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as program:
        found = program.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def tab(browser, server):
    """A page, which is watched: no error, and no request that goes elsewhere."""
    page = browser.new_page(viewport=LIGHT, color_scheme="light")
    page.set_default_timeout(30_000)
    page.wrong, page.asked = [], []
    page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    assert page.wrong == []
    assert all(url.startswith((server.url, "blob:")) for url in page.asked)


@pytest.fixture
def page(tab, server):
    """The page as it opens."""
    tab.goto("about:blank")
    tab.goto(server.url)
    until(tab, "document.querySelector('#here')?.width === 8")
    return tab


def pixels(page, selector):
    """What a canvas shows: (8, 8) bytes."""
    return np.array(page.eval_on_selector(selector, PIXELS), np.uint8).reshape(8, 8)


def as_bytes(images):
    return (images[:, 0].clip(0, 1) * 255).round().astype(int)


def code(page):
    """The code that the sliders show."""
    return np.array([float(text) for text in page.locator("#panel-place output").all_inner_texts()])


def spot(page, u, v):
    """Where on the screen a place of the map is, by the view in the address."""
    view = dict(re.findall(r"(x|y|zoom)=([-\d.e]+)", page.url))
    box = page.locator("#plane").bounding_box()
    x, y, zoom = (float(view[name]) for name in ("x", "y", "zoom"))
    across, up = float(u - x) * zoom, float(v - y) * zoom
    return box["x"] + box["width"] / 2 + across, box["y"] + box["height"] / 2 - up


def settled(page):
    """Wait until the address has the view."""
    until(page, "location.hash.includes('zoom=')")
    page.wait_for_timeout(200)


def test_what_the_model_makes_is_shown_under_the_pointer(page, opened):
    settled(page)
    before = pixels(page, "#here")
    page.mouse.move(*spot(page, 0.8, -0.6))
    until(page, "document.querySelector('#panel-place output').textContent.startsWith('0.')")
    page.wait_for_timeout(300)
    np.testing.assert_allclose(code(page), (0.8, -0.6), atol=0.02)
    shown = pixels(page, "#here").astype(int)
    np.testing.assert_allclose(shown, as_bytes(opened.run.decode(code(page)[None]))[0], atol=2)
    assert (shown != before).any() and np.array_equal(pixels(page, "#lens"), shown)


def test_a_slider_moves_the_code_by_keyboard_too(page, opened):
    page.focus("#panel-place .slider input >> nth=0")
    before = code(page)
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    after = code(page)
    assert after[0] > before[0] and after[1] == before[1]
    np.testing.assert_allclose(pixels(page, "#here").astype(int), as_bytes(opened.run.decode(after[None]))[0], atol=2)


def test_a_click_picks_a_sample_with_its_image_its_code_and_its_neighbours(page, opened):
    settled(page)
    codes = opened.run.method.codes.numpy()
    page.mouse.click(*spot(page, *codes[17]))
    page.wait_for_selector("#panel-picked .sheet >> nth=1")
    facts = page.inner_text("#panel-picked dl")
    picked = int(re.search(r"#(\d+)", facts)[1])
    # Another point may lie on top of it, but not far away.
    assert np.linalg.norm(codes[picked] - codes[17]) < 0.1
    np.testing.assert_array_equal(pixels(page, "#panel-picked .pair canvas >> nth=0"), opened.train().pixels[picked, 0])
    made = as_bytes(opened.run.decode(codes[picked][None]))[0]
    np.testing.assert_allclose(pixels(page, "#panel-picked .pair canvas >> nth=1").astype(int), made, atol=1)
    shown = [[int(t[1:]) for t in sheet.locator("button").evaluate_all("all => all.map(b => b.title)")]
             for sheet in page.locator("#panel-picked .sheet").all()]  # fmt: skip
    far = np.linalg.norm(codes - codes[picked], axis=1)
    losses = opened.run.method.cost.matrix(opened.train().x[[picked]], opened.train().x)[0].numpy()
    assert shown == [np.argsort(far, kind="stable")[1:7].tolist(), np.argsort(losses, kind="stable")[1:7].tolist()]
    page.click("#panel-picked .sheet button >> nth=0")
    until(page, f"document.querySelector('#panel-picked dl').innerText.includes('#{shown[0][0]}')")


def test_names_of_strangers_are_text(page):
    assert page.inner_text("#legend") == "<b>one</b>\n=two\nzero" and page.locator("#legend b").count() == 0


def test_the_map_is_moved_and_zoomed_by_mouse_keys_and_fingers_and_the_address_keeps_the_view(page):
    settled(page)

    def view():
        page.wait_for_timeout(250)
        return {name: float(value) for name, value in re.findall(r"(x|y|zoom)=([-\d.e]+)", page.url)}

    first, (x, y) = view(), spot(page, 0, 0)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    wheel = view()
    assert wheel["zoom"] > 1.3 * first["zoom"]
    # The place under the pointer stays.
    np.testing.assert_allclose(spot(page, 0, 0), (x, y), atol=1.5)
    page.mouse.down()
    page.mouse.move(x + 100, y + 50, steps=5)
    page.mouse.up()
    dragged = view()
    np.testing.assert_allclose(spot(page, 0, 0), (x + 100, y + 50), atol=1.5)
    page.keyboard.press("+")
    assert view()["zoom"] == pytest.approx(1.5 * dragged["zoom"], rel=1e-3)
    cdp = page.context.new_cdp_session(page)
    cdp.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})

    def touch(kind, apart):
        points = [] if apart is None else [{"x": x - apart, "y": y, "id": 1}, {"x": x + apart, "y": y, "id": 2}]
        cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    before = view()["zoom"]
    for kind, apart in (("touchStart", 50), ("touchMove", 60), ("touchMove", 100), ("touchEnd", None)):
        touch(kind, apart)
    assert view()["zoom"] == pytest.approx(2 * before, rel=0.1)
    cdp.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
    page.select_option("#colour", "loss")
    until(page, "location.hash.includes('colour=loss')")
    kept = view()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("#here")
    assert view() == kept and page.input_value("#colour") == "loss"
    page.click("#fit")
    assert view() == pytest.approx(first, rel=1e-3)


def test_the_keyboard_walks_and_picks(page, opened):
    page.focus("#plane")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    page.wait_for_timeout(200)
    place = code(page)
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-picked dl")
    picked = int(re.search(r"#(\d+)", page.inner_text("#panel-picked dl"))[1])
    far = np.linalg.norm(opened.run.method.codes.numpy() - place, axis=1)
    assert far[picked] == pytest.approx(far.min(), abs=1e-3)
    page.focus("#tab-picked")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-sheet", "aria-selected") == "true" and page.locator("#panel-sheet").is_visible()


def test_a_lasso_chooses_points_which_can_be_named_saved_and_drawn_from(page, opened):
    settled(page)
    page.click("[data-mode=lasso]")
    corners = [(0, -9), (9, -9), (9, 9), (0, 9)]
    box = page.locator("#plane").bounding_box()
    low, high = np.array([box["x"], box["y"]]) + 2, np.array([box["x"] + box["width"], box["y"] + box["height"]]) - 2
    inside = [np.clip(spot(page, *corner), low, high) for corner in corners]
    page.mouse.move(*inside[0])
    page.mouse.down()
    for place in inside[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()
    page.wait_for_selector("#own-label")
    codes = opened.run.method.codes.numpy()
    right = np.flatnonzero(codes[:, 0] > 0)
    assert page.inner_text("#panel-chosen h2") == f"{len(right)} samples"
    page.fill("#own-label", "=east")
    with page.expect_download() as saved:
        page.click("#save-chosen")
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text("utf-8"))))
    assert [int(row["index"]) for row in rows] == right.tolist() and {row["own_label"] for row in rows} == {"'=east"}
    np.testing.assert_allclose([[float(row["z1"]), float(row["z2"])] for row in rows], codes[right], rtol=1e-6)
    page.click("#draw-chosen")
    until(page, "document.querySelector('#panel-chosen .sheet').children.length === 12")
    page.click("#clear-chosen")
    assert page.locator("#own-label").count() == 0


def test_a_path_is_decoded_step_by_step_and_plays(page, opened):
    settled(page)
    page.click("[data-mode=path]")
    codes = opened.run.method.codes.numpy()
    ends = codes[np.argmin(codes[:, 0])], codes[np.argmax(codes[:, 0])]
    for end in ends:
        page.mouse.click(*spot(page, *end))
    until(page, "document.querySelectorAll('#strip canvas').length === 12")
    for place, end in (("first", ends[0]), ("last", ends[1])):
        shown = pixels(page, f"#strip canvas:{place}-child").astype(int)
        np.testing.assert_allclose(shown, as_bytes(opened.run.decode(end[None]))[0], atol=1)
    page.click("#play")
    until(page, "document.querySelector('#panel-path input').value > 3")
    page.click("#play")


def test_new_samples_are_those_of_python_each_beside_its_nearest_training_sample(page, opened):
    shown = "document.querySelectorAll('#panel-sheet .pair').length"
    page.click("#tab-sheet")
    until(page, f"{shown} === 12")
    page.fill("#seed", "3")
    page.fill("#count", "4")
    page.click("#draw")
    until(page, f"{shown} === 4")
    made, train = opened.run.sample(4, seed=3)[0], opened.train()
    nearest = opened.run.method.cost.matrix(made, train.x).argmin(1)
    for i in range(4):
        pair = f"#panel-sheet .sheet > .pair:nth-child({i + 1}) canvas >> nth="
        np.testing.assert_allclose(pixels(page, f"{pair}0").astype(int), as_bytes(made)[i], atol=1)
        np.testing.assert_array_equal(pixels(page, f"{pair}1"), train.pixels[int(nearest[i]), 0])
    assert "suspiciously close" in page.inner_text("#panel-sheet [role=status]")
    until(page, "location.hash.includes('seed=3')")
    with page.expect_download() as saved:
        page.click("#panel-sheet button:text-is('PNG')")
    assert Image.open(io.BytesIO(saved.value.path().read_bytes())).size[0] > 8


def test_samples_are_found_by_label_and_by_number(page, opened):
    page.fill("#search", "=two")
    page.keyboard.press("Enter")
    page.wait_for_selector("#own-label")
    assert page.inner_text("#panel-chosen h2") == f"{int((opened.run.labels == 1).sum())} samples"
    page.fill("#search", "#5")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#panel-picked dl')?.innerText.includes('#5')")
    page.fill("#search", "nobody")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#said').textContent.includes('Nothing is called')")


def test_an_image_of_ones_own_lands_on_the_map(page, opened, tmp_path):
    Image.fromarray(opened.train().pixels[23, 0]).save(tmp_path / "mine.png")
    page.click("#tab-about")
    page.set_input_files("#own-file", tmp_path / "mine.png")
    page.wait_for_selector("#panel-about .sheet")
    assert "training sample #23" in page.inner_text("#panel-about .pair")
    np.testing.assert_array_equal(pixels(page, "#panel-about .pair canvas >> nth=0"), opened.train().pixels[23, 0])
    (tmp_path / "bad.png").write_bytes(b"no picture")
    page.set_input_files("#own-file", tmp_path / "bad.png")
    until(page, "document.querySelector('#said.error')?.textContent.includes('can\\'t be read')")
    # The browser notes the refusal by itself.
    page.wrong[:] = [text for text in page.wrong if "status of 400" not in text]


def test_colours_say_what_is_known_and_groups_can_be_hidden(page, opened):
    page.select_option("#colour", "density")
    assert page.locator("#legend .ramp").is_visible()
    page.select_option("#colour", "label")
    drawn = "document.querySelector('canvas.points').toDataURL()"
    before = page.evaluate(drawn)
    page.click("#legend button >> nth=0")
    until(page, f"{drawn} !== {before!r}")
    assert page.get_attribute("#legend button >> nth=0", "aria-pressed") == "false"
    page.select_option("#images", "images")
    page.wait_for_timeout(600)
    with page.expect_download() as saved:
        page.click("#save-map")
    assert np.asarray(Image.open(io.BytesIO(saved.value.path().read_bytes())).convert("L")).std() > 1


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_window_and_can_be_read(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("L")).astype(int)
    assert (np.median(shown) > 200) == (scheme == "light") and shown.max() - shown.min() > 150
    for selector in ("#plane", "#tabs", "#here", "#search"):
        assert page.locator(selector).bounding_box()["width"] > 60
    page.set_viewport_size(LIGHT)
    page.emulate_media(color_scheme="light")


def test_the_training_is_shown_epoch_by_epoch(page):
    page.click("#tab-training")
    until(page, "document.querySelectorAll('#curves canvas').length > 1")
    assert page.inner_text("#panel-training [role=status]") == "2 epochs, finished"
    page.wait_for_timeout(200)
    drawn = page.eval_on_selector("#curves canvas", "c => c.toDataURL()")
    assert drawn != page.evaluate("c => Object.assign(document.createElement('canvas'), c).toDataURL()", {"width": 1})


def test_the_theme_can_be_chosen_and_stays_in_the_address(page):
    page.click("#theme")
    until(page, "location.hash.includes('theme=dark')")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 28)"
    page.evaluate("delete document.documentElement.dataset.theme")


def test_a_notebook_shows_it_in_a_frame(browser, folder):
    shown = neurosql.explore(folder / "run", height=500)

    class Notebook(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(shown._repr_html_().encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Notebook) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        page = browser.new_page()
        try:
            page.goto(f"http://localhost:{other.server_address[1]}/")
            frame = page.frame_locator("iframe")
            frame.locator("#panel-place .slider").first.wait_for()
            assert page.locator("iframe").bounding_box()["height"] >= 500 and shown.url in repr(shown)
        finally:
            page.close()
            other.shutdown()
            thread.join()
            shown.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(shown.url, timeout=5)


def test_a_program_that_has_ended_is_said_so(page):
    page.route("**/api/**", lambda route: route.abort())
    page.click("#tab-sheet")
    page.click("#draw")
    until(page, "document.querySelector('#said.error')?.textContent.includes('still running')")
    page.unroute("**/api/**")
    page.wrong[:] = [text for text in page.wrong if "ERR_FAILED" not in text]
