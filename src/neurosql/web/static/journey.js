/** The panel of a path on the map: what the model makes along it, as a film and as a strip. */

import { complain, el } from "./elements.js";
import { contactSheet, drawSample, some } from "./drawing.js";
import { downloadPicture } from "./saving.js";

const FRAMES = 60;
const STRIP = 12;
const PACE = 66;

/** The panel. */
export class Journey {
  constructor(page) {
    this.page = page;
    this.title = "Path";
    this.root = el("section");
    this.codes = [];
  }

  applies() {
    return this.page.can.decode;
  }

  open() {
    clearInterval(this.timer);
    [this.codes, this.labels, this.samples] = [[], [], null];
    this.page.plane.path = [];
    if (!this.applies()) return;
    this.screen = el("canvas", { className: "sample large", role: "img", "aria-label": "The path as a film", hidden: true, id: "film" });
    this.at = el("input", { type: "range", min: 0, max: FRAMES - 1, value: 0, "aria-label": "Place on the path", hidden: true });
    this.at.oninput = () => { this.stop(); this.frame(Number(this.at.value)); };
    this.words = el("p", { className: "note" });
    this.player = el("button", { type: "button", id: "play", textContent: "Play", onclick: () => (this.timer ? this.stop() : this.play()) });
    this.strip = el("div", { className: "sheet", id: "strip" });
    const clear = el("button", { type: "button", textContent: "Clear", onclick: () => this.open() });
    const save = el("button", { type: "button", textContent: "PNG", onclick: () => this.save() });
    this.controls = el("p", { className: "row" }, this.player, clear, save);
    this.root.replaceChildren(this.words, this.screen, this.at, this.controls, this.strip);
    this.describe();
    this.page.plane.drawAbove();
  }

  describe() {
    const few = this.codes.length < 2;
    this.words.textContent = few
      ? "Choose Path above the map, then click: each click adds a stop. A click on a sample stops at its code."
      : `${this.codes.length} stops`;
    this.player.disabled = few;
    this.controls.hidden = !this.codes.length;
  }

  /** Add a stop at a code. */
  add(code, label = null) {
    this.codes.push(Float32Array.from(code));
    this.labels.push(label);
    this.page.plane.path.push([...this.page.projection.flat(code)]);
    this.page.plane.drawAbove();
    this.page.tabs.open("path");
    this.stop();
    this.describe();
    if (this.codes.length > 1) this.travel().catch(complain);
  }

  /** Decode codes along the path, at equal steps. */
  async travel() {
    const { page, codes } = this, dim = page.description.dim, asked = (this.asked = {});
    const lengths = codes.slice(1).map((code, i) => Math.sqrt(code.reduce((sum, z, k) => sum + (z - codes[i][k]) ** 2, 0)));
    const whole = lengths.reduce((a, b) => a + b, 0) || 1, all = new Float32Array(FRAMES * dim), labels = new Int32Array(FRAMES);
    for (let f = 0; f < FRAMES; f++) {
      let rest = (whole * f) / (FRAMES - 1), i = 0;
      while (i < lengths.length - 1 && rest > lengths[i]) rest -= lengths[i++];
      const share = lengths[i] ? Math.min(rest / lengths[i], 1) : 0;
      for (let k = 0; k < dim; k++) all[f * dim + k] = codes[i][k] + share * (codes[i + 1][k] - codes[i][k]);
      labels[f] = this.labels[share < 0.5 ? i : i + 1] ?? 0;
    }
    const samples = await page.source.decode(all, { labels: page.description.conditional ? labels : null });
    if (asked !== this.asked) return;
    [this.samples, this.frames] = [samples, all];
    this.screen.hidden = this.at.hidden = false;
    this.frame(0);
    this.strip.replaceChildren(...Array.from({ length: STRIP }, (_, i) => {
      const canvas = el("canvas", { className: "sample", role: "img", "aria-label": `Step ${i + 1} of the path` });
      drawSample(canvas, samples, Math.round((i * (FRAMES - 1)) / (STRIP - 1)), page.description.columns);
      canvas.style.width = "100%";
      return canvas;
    }));
  }

  frame(number) {
    if (!this.samples) return;
    const { page, frames } = this, dim = page.description.dim;
    drawSample(this.screen, this.samples, number, page.description.columns);
    this.at.value = number;
    page.plane.cursor = [...page.projection.flat(frames.slice(number * dim, (number + 1) * dim))];
    page.plane.drawAbove();
  }

  play() {
    this.player.textContent = "Stop";
    this.timer = setInterval(() => this.frame((Number(this.at.value) + 1) % FRAMES), PACE);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    this.player.textContent = "Play";
  }

  save() {
    if (!this.samples || this.samples.shape.length < 3) return;
    downloadPicture(`${this.page.description.name}-path.png`, contactSheet(some(this.samples, 0, FRAMES), STRIP));
  }
}
