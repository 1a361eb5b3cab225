"""How quick the explorer is, and whether it stays so: decodes and frames in a real browser, and many clients at once.

    python benchmarks/explorer.py runs/demo

It needs Playwright's Python package and Chromium or Chrome. Decodes are counted from the movement of the pointer to the
pixels on the page; frames are drawn in software, at 60,000 points, while the map is dragged. Then 16 clients send
10,000 requests of all kinds, and the memory of the server is looked at after each quarter of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from neurosql.app.explorer import Opened
from neurosql.memory import used
from neurosql.web.serving import Serving

POINTS = 60_000
REQUESTS, CLIENTS = 10_000, 16
LISTEN = """() => {
  window.took = { decoded: [], frame: [] };
  for (const what of ["decoded", "frame"]) {
    document.addEventListener(`neurosql:${what}`, (event) => took[what].push(event.detail));
  }
}"""
MOVE = """async (seconds) => {
  const plane = document.getElementById("plane"), box = plane.getBoundingClientRect(), began = performance.now();
  for (let step = 0; performance.now() - began < 1000 * seconds; step++) {
    const clientX = box.left + box.width * (0.5 + 0.3 * Math.cos(0.02 * step));
    const clientY = box.top + box.height * (0.5 + 0.3 * Math.sin(0.02 * step));
    plane.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, pointerId: 1, pointerType: "mouse" }));
    await new Promise((done) => setTimeout(done, 4));
  }
}"""
"""Moves the pointer in the page itself: this process is left to the server."""
MANY = """async (count) => {
  const { Plane } = await import("./plane.js");
  const root = document.createElement("div");
  root.id = "many";
  root.style.cssText = "position:fixed;inset:0 360px 0 0;background:#fff;z-index:5;--ink:#111;--map:#fff";
  document.body.append(root);
  const frames = [], normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(6.283185 * Math.random());
  const plane = new Plane(root, { drawn: (ms) => frames.push(ms) });
  plane.setPoints(Float32Array.from({ length: 2 * count }, normal));
  plane.colours.fill(0xff0072b2);
  plane.fit();
  window.many = { plane, frames, stamps: [] };
}"""
PAN = """async (frames) => {
  const { plane } = many, stamps = [];
  many.frames.length = 0;
  for (let i = 0; i <= frames; i++) {
    plane.look({ ...plane.view, x: plane.view.x + (i % 40 < 20 ? 1 : -1) / plane.view.scale });
    await new Promise(requestAnimationFrame);
    stamps.push(performance.now());
  }
  return { drawing: many.frames, between: stamps.slice(1).map((t, i) => t - stamps[i]) };
}"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the pointer moves")
    given = parser.parse_args()
    opened = Opened(given.run)
    opened.images()
    serving = Serving([opened])
    thread = serving.start()
    try:
        in_a_browser(serving.url, given.seconds)
        if given.requests:
            many_clients(serving, opened, given.requests)
    finally:
        serving.stop(thread)


def in_a_browser(url: str, seconds: float) -> None:
    """Time from an address to the map, decodes per second while the pointer moves, and frames of 60,000 points."""
    from playwright.sync_api import sync_playwright

    found = next(p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name)))
    with sync_playwright() as program:
        browser = program.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900}, bypass_csp=True)
        page.goto(url)
        page.wait_for_selector("#here")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        page.wait_for_timeout(1000)
        print(f"first paint             {page.evaluate(paint):.0f} ms")
        page.evaluate(LISTEN)
        began = time.perf_counter()
        page.evaluate(MOVE, seconds)
        took = page.evaluate("took.decoded")
        spent = time.perf_counter() - began
        print(f"decodes                 {len(took) / spent:.0f} a second; pointer to pixels {spread(took)}")
        page.evaluate(MANY, POINTS)
        page.wait_for_timeout(500)
        frames = page.evaluate(PAN, 120)
        print(f"{POINTS:,} points           a frame is drawn in {spread(frames['drawing'])}")
        print(f"                        from frame to frame {spread(frames['between'])}")
        browser.close()


def spread(values: list[float]) -> str:
    """Median and 95th percentile in words."""
    return f"{np.median(values):.1f} ms (median), {np.percentile(values, 95):.1f} ms (95 %)"


def many_clients(serving: Serving, opened: Opened, count: int) -> None:
    """Send requests of all kinds from many clients, and print failures and the memory of this process."""
    base, dim, n = f"http://127.0.0.1:{serving.port}", opened.run.settings.generator.dim, len(opened.run.index)
    local = threading.local()

    def ask(number: int) -> int:
        random = local.__dict__.setdefault("random", np.random.default_rng(number))
        kinds = [
            ("/", None),
            ("/plane.js", None),
            ("/api/runs/0", None),
            ("/api/runs/0/points", None),
            *[("/api/runs/0/decode", {"codes": random.normal(size=(int(random.integers(1, 4)), dim)).tolist()})] * 4,
            ("/api/runs/0/images", {"indices": random.integers(0, n, 16).tolist(), "side": 16}),
            ("/api/runs/0/neighbours", {"index": int(random.integers(n)), "count": 5}),
            ("/api/runs/0/sample", {"count": 2, "seed": int(random.integers(1000))}),
            ("/api/runs/0/decode", {"codes": "nonsense"}),
            ("/nothing/../here", None),
        ]
        path, body = kinds[number % len(kinds)]
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(base + path, data, {"content-type": "application/json"} if data else {})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                error.read()
                return error.code

    statuses: dict[int, int] = {}
    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for quarter in range(4):
            for status in pool.map(ask, range(quarter * count // 4, (quarter + 1) * count // 4)):
                statuses[status] = statuses.get(status, 0) + 1
            gc.collect()
            print(f"after {(quarter + 1) * count // 4:>6,} requests   {used() / 2**20:.0f} MiB")
    spent = time.perf_counter() - began
    told = ", ".join(f"{number:,} with status {status}" for status, number in sorted(statuses.items()))
    print(f"{count:,} requests          from {CLIENTS} clients, {count / spent:.0f} a second: {told}")


if __name__ == "__main__":
    main()
