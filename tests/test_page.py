"""Pages in a real browser."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from neurosql.cli import main
from neurosql.report import document
from neurosql.report.document import Cell

BROWSER = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def page(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    np.savez(folder / "digits.npz", images=digits[0][:60], labels=digits[1][:60])
    flags = ["--generator", "mlp", "--width", "32", "--epochs", "4", "--every", "2"]
    assert main(["train", str(folder / "digits.npz"), "--out", str(folder / "run"), *flags]) == 0
    return folder / "run" / "report.html"


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_renders_wide_and_narrow(page, width, tmp_path):
    shot = tmp_path / "shot.png"
    options = [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},3200", f"--screenshot={shot}"]
    subprocess.run([BROWSER, *FLAGS, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
    with Image.open(shot) as picture:
        pixels = np.asarray(picture.convert("L"))
    assert pixels.shape[1] >= width
    # Text and pictures all the way down, not a blank page or a broken first picture.
    assert all(part.std() > 5 for part in np.array_split(pixels[:1600], 4))


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")
def test_a_click_sorts_a_table_by_its_numbers(tmp_path):
    heads = [Cell("name", left=True), Cell("value")]
    values = {"a": 10.0, "b": 9.0, "none": None, "c": -2.5, "d": 1e-5}
    rows = [[Cell(name, left=True), Cell("" if v is None else f"{v:.1e}", v)] for name, v in values.items()]
    click = "<script>document.querySelectorAll('th')[1].click();</script>"
    orders = []
    for clicks in (1, 2):
        page = tmp_path / f"{clicks}.html"
        page.write_text(document.page("t", "", document.table(heads, rows)) + click * clicks, encoding="utf-8")
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        orders.append(re.findall(r'<td class="text">(\w+)</td>', shown))
    assert orders == [["c", "d", "b", "a", "none"], ["a", "b", "d", "c", "none"]]
