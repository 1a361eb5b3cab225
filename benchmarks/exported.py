"""Images a second of an exported page: a model of each backbone, decoded in a headless browser while the pointer moves.

    python benchmarks/exported.py [--backbones convnet mlp] [--seconds 5] [--size laptop]

The model has its initial weights: speed does not depend on what it has learned. For each backbone it prints

- the size of the page;
- images a second: the pointer moves over the map without a pause, and each move asks for the image under it;
- milliseconds from the question to the image on the canvas, median and 95 %;
- the largest difference to the images of Python, with the constants of 16 bits that the page has, and with float32 and
  float16 for comparison.

It needs Playwright, a browser and node.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import Page, sync_playwright

import neurosql
from neurosql import app
from neurosql.app.portable.bundle import STATIC
from neurosql.app.portable.decoding import generator_of
from neurosql.computation.packed import pack
from neurosql.computation.recording import record
from neurosql.generators.base import Generator

BACKBONES = ("convnet", "mlp", "resnet", "unet", "transformer")
LISTEN = """() => {
  window.times = [];
  document.addEventListener("neurosql:decoded", (event) => window.times.push([performance.now(), event.detail]));
}"""
MOVE = """(seconds) => new Promise((done) => {
  const plane = document.getElementById("plane"), { left, top, width, height } = plane.getBoundingClientRect();
  const target = plane.querySelector("canvas:last-of-type") ?? plane, start = performance.now();
  window.times = [];
  let step = 0;
  const move = () => {
    const angle = 0.02 * step++, now = performance.now();
    const clientX = left + width * (0.5 + 0.3 * Math.cos(angle));
    const clientY = top + height * (0.5 + 0.3 * Math.sin(1.3 * angle));
    const how = { clientX, clientY, bubbles: true, pointerType: "mouse", pointerId: 1 };
    target.dispatchEvent(new PointerEvent("pointermove", how));
    if (now - start < 1000 * seconds) setTimeout(move, 1);
    else done({ elapsed: now - start, times: window.times });
  };
  move();
})"""
NODE = """
import fs from "fs";
import { forwardOf } from "./unpacked.js";
const { plan, content, codes } = JSON.parse(fs.readFileSync(0));
const model = forwardOf(plan, Uint8Array.from(Buffer.from(content, "base64")).buffer);
console.log(JSON.stringify(codes.map((code) => Array.from(model.run(Float32Array.from(code))))));
"""


def measured(page: Page, file: Path, seconds: float) -> dict[str, float]:
    """Images a second, and milliseconds for one, while the pointer moves over a page."""
    page.goto(file.as_uri())
    page.wait_for_selector("[role=tab]")
    page.evaluate(LISTEN)
    page.evaluate(MOVE, 1.0)
    found = page.evaluate(MOVE, seconds)
    times = np.array([milliseconds for _, milliseconds in found["times"]] or [np.nan])
    return {
        "a second": 1000 * len(found["times"]) / found["elapsed"],
        "median": float(np.median(times)),
        "95 %": float(np.quantile(times, 0.95)),
    }


def difference(generator: Generator, folder: Path, how: str, codes: int = 32) -> float:
    """The largest difference of images in JavaScript to those of torch."""
    z = torch.randn(codes, generator.latent_dim, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = generator.eval()(z).reshape(codes, -1).numpy()
    computation = record(generator)
    if how == "float16":
        computation.constants = {k: v.astype(np.float16).astype(np.float32) for k, v in computation.constants.items()}
    packed = pack(computation, compact=how == "16 bits")
    given = {"plan": packed.plan, "content": base64.b64encode(packed.content).decode(), "codes": z.tolist()}
    done = subprocess.run(
        ["node", "run.js"], cwd=folder, input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return float(np.abs(np.array(json.loads(done.stdout)) - expected).max())


def main() -> None:
    """Print one line per backbone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", nargs="+", default=BACKBONES)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--size", default="laptop")
    parser.add_argument("--run", help="a trained run, in place of models with their initial weights")
    chosen = parser.parse_args()
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        root = Path(name)
        (root / "package.json").write_text('{"type": "module"}')
        (root / "run.js").write_text(NODE)
        for file in ("forward.js", "unpacked.js"):
            shutil.copy(STATIC / file, root)
        started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        print(f"{'model':<12} {'MB':>5} {'images/s':>9} {'median ms':>10} {'95 % ms':>8}   difference to Python")
        for backbone in [chosen.run] if chosen.run else chosen.backbones:
            path = Path(backbone)
            if not chosen.run:
                path = root / backbone
                images = neurosql.data.load("mnist-sample", limit=200)
                how = dict(generator=backbone, size=chosen.size, epochs=1, learning_rate=1e-9, preset="plain")
                neurosql.fit(images, out=path, **how)
            file = root / f"{path.name}.html"
            done = app.to_html(path, file)
            found = measured(started.new_page(viewport={"width": 1200, "height": 800}), file, chosen.seconds)
            generator = generator_of(neurosql.open_run(path))
            errors = [f"{how} {difference(generator, root, how):.1e}" for how in ("16 bits", "float16", "float32")]
            print(
                f"{path.name:<12} {done.size / 1e6:5.2f} {found['a second']:9.0f} {found['median']:10.1f} "
                f"{found['95 %']:8.1f}   {', '.join(errors)}",
                flush=True,
            )
        started.close()


if __name__ == "__main__":
    main()
