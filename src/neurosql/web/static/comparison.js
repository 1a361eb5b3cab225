/** The panel of several runs side by side: their scores, their planes and samples of the same seed. */

import { coloured } from "./colours.js";
import { complain, el } from "./elements.js";
import { contactSheet } from "./drawing.js";
import { Projection } from "./projection.js";
import { stampOf, Raster } from "./raster.js";

const SIDE = 240;
const COUNT = 16;

/** The panel. */
export class Comparison {
  constructor(page) {
    this.page = page;
    this.title = "Runs";
    this.root = el("section");
  }

  applies() {
    return this.page.sources.length > 1;
  }

  open() {
    if (!this.applies()) return;
    const button = el("button", { type: "button", id: "compare", textContent: "Compare all", onclick: () => this.compare().catch(complain) });
    this.place = el("div");
    this.root.replaceChildren(el("p", { className: "row" }, button), this.place);
  }

  async compare() {
    const { sources } = this.page;
    this.place.replaceChildren(el("p", { className: "note", textContent: "Comparing ..." }));
    const known = [];
    for (const source of sources) known.push({ source, description: await source.describe() });
    const parts = [el("h2", { textContent: "Scores" }), scoresOf(known), el("h2", { textContent: "Planes and samples" })];
    const places = el("div", { className: "pair" });
    this.place.replaceChildren(...parts, places);
    for (const [number, { source, description }] of known.entries()) {
      const figure = el("figure", {}, el("figcaption", {}, el("a", { href: `#run=${number}`, textContent: source.name })));
      places.append(figure);
      if (description.capabilities.points) figure.append(planeOf(description, await source.points()));
      if (description.capabilities.sample && ["image", "volume"].includes(description.kind)) {
        const sheet = contactSheet((await source.sample({ count: COUNT, seed: 0 })).samples, 4);
        sheet.className = "sample";
        figure.append(sheet);
      }
    }
  }
}

function planeOf(description, points) {
  const xy = new Projection(description, "main").flat(points.codes), raster = new Raster(), stamp = stampOf(1.5);
  const { colours } = coloured(points.labels ? "label" : "none", description, points, false);
  const canvas = el("canvas", { width: SIDE, height: SIDE, className: "sample", role: "img", "aria-label": `Plane of ${description.name}` });
  const [u, v] = [0, 1].map((k) => xy.filter((_, i) => i % 2 === k)), ends = (w) => [w.reduce((a, b) => Math.min(a, b), Infinity), w.reduce((a, b) => Math.max(a, b), -Infinity)];
  const [[left, right], [bottom, top]] = [ends(u), ends(v)], scale = (0.92 * SIDE) / Math.max(right - left, top - bottom, 1e-9);
  raster.begin(SIDE, SIDE);
  for (let i = 0; i < points.count; i++) {
    raster.dot(SIDE / 2 + (u[i] - (left + right) / 2) * scale, SIDE / 2 - (v[i] - (bottom + top) / 2) * scale, colours[i], stamp);
  }
  raster.end(canvas.getContext("2d"));
  return canvas;
}

/** One row for each score that any run has, one column for each run; the best of a row is bold. */
function scoresOf(known) {
  const rows = new Map();
  known.forEach(({ description }, i) => {
    for (const score of description.scores) {
      const key = `${score.name}, ${score.mode}`;
      if (!rows.has(key)) rows.set(key, { direction: score.direction, beside: score.beside, cells: new Array(known.length).fill(null) });
      rows.get(key).cells[i] = score;
    }
  });
  if (!rows.size) return el("p", { className: "note", textContent: "No run has scores yet: `neurosql evaluate RUN` measures them." });
  const arrows = { lower: " ↓", higher: " ↑", none: "" };
  return el("div", { className: "scroll" }, el("table", {},
    el("tr", {}, el("th", { textContent: "score" }), ...known.map(({ source }) => el("th", { className: "number", textContent: source.name })), el("th", { textContent: "compare with" })),
    ...[...rows].map(([key, { direction, beside, cells }]) => {
      const values = cells.filter(Boolean).map((score) => score.value);
      const best = direction === "none" ? NaN : direction === "lower" ? Math.min(...values) : Math.max(...values);
      return el("tr", {}, el("td", { textContent: key + arrows[direction] }), ...cells.map((score) => {
        const cell = el("td", { className: "number", textContent: score?.text ?? "" });
        if (score && score.value === best && values.length > 1) cell.style.fontWeight = "700";
        return cell;
      }), el("td", { textContent: beside }));
    })));
}
