"""The page of a run in a real browser."""

import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from neurosql.cli import main

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
