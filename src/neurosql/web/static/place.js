/** The panel of the place under the pointer: what the model makes there, and its code, number by number. */

import { choices, complain, el, figure } from "./elements.js";
import { drawSample, play, slice } from "./drawing.js";

const MOST = 64;

/** The panel. `follows` says whether, in many dimensions, one looks near the nearest sample. */
export class Place {
  constructor(page) {
    this.page = page;
    this.title = "Here";
    this.root = el("section");
    this.follows = true;
  }

  applies() {
    return this.page.can.decode;
  }

  open() {
    const { page } = this, { description } = page;
    if (!this.applies()) return;
    this.canvas = el("canvas", { className: "sample large", role: "img", "aria-label": "What the model makes of the code below", id: "here" });
    const parts = [this.canvas];
    if (description.kind === "volume") parts.push(slider("slice", 0, 1, slice.at, (at) => this.cut(at)).row);
    if (description.kind === "signal") {
      parts.push(el("button", { type: "button", textContent: "Play", onclick: () => play(this.samples, 0) }));
    }
    if (description.conditional) {
      const select = el("select", { id: "class", onchange: () => { page.label = Number(select.value); page.show(page.code, page.classAt(-1)); page.landBelow().catch(complain); page.keep(); } });
      const names = description.classes.map((name, i) => [String(i), name]);
      choices(select, [["-1", "of the nearest sample"], ...names], String(page.label));
      page.label = Number(select.value);
      parts.push(el("p", { className: "row" }, el("label", {}, "Class ", select)));
    }
    if (description.dim > 2) {
      const box = el("input", { type: "checkbox", checked: this.follows, id: "follows", onchange: () => { this.follows = box.checked; } });
      parts.push(el("p", { className: "row" }, el("label", {}, box, "start from the nearest sample")));
    }
    this.sliders = description.range.slice(0, MOST).map(([low, high], k) => {
      const room = 0.25 * (high - low) || 1;
      return slider(`z${k + 1}`, low - room, high + room, page.code[k], (value) => this.slide(k, value));
    });
    parts.push(el("h2", { textContent: "Code" }), ...this.sliders.map(({ row }) => row));
    if (description.dim > MOST) parts.push(el("p", { className: "note", textContent: `The first ${MOST} of ${description.dim} numbers.` }));
    this.hint = el("p", { className: "note", textContent: "Move over the map to see what the model makes there. Click to pick a sample." });
    this.root.replaceChildren(...parts, this.hint);
    page.show(page.code, page.classAt(-1));
  }

  slide(k, value) {
    const code = Float32Array.from(this.page.code);
    code[k] = value;
    this.follows = false;
    const box = this.root.querySelector("#follows");
    if (box) box.checked = false;
    const { page } = this, [u, v] = page.projection.flat(code);
    page.plane.cursor = [u, v];
    page.plane.drawAbove();
    page.show(code, page.classAt(page.points.count ? page.plane.nearest(u, v) : -1));
  }

  cut(at) {
    slice.at = at;
    if (this.samples) drawSample(this.canvas, this.samples, 0);
    this.page.plane.redraw();
  }

  /** Show a decoded sample. */
  shown(samples, code) {
    this.samples = samples;
    drawSample(this.canvas, samples, 0, this.page.description.columns);
    this.sliders.forEach(({ input, output }, k) => {
      if (document.activeElement !== input) input.value = code[k];
      output.textContent = figure(code[k]);
    });
  }
}

/** A slider with its name and its value. */
function slider(name, low, high, value, changed) {
  const input = el("input", { type: "range", min: low, max: high, step: (high - low) / 500, value, "aria-label": name });
  const output = el("output", { textContent: figure(value) });
  input.addEventListener("input", () => { output.textContent = figure(Number(input.value)); changed(Number(input.value)); });
  return { input, output, row: el("div", { className: "slider" }, el("span", { textContent: name }), input, output) };
}
