/** The panel of the run: what it is, its scores, and where an image of one's own lands. */

import { complain, el, figure } from "./elements.js";
import { figureOf, gallery } from "./picked.js";
import { codesAsCsv, download } from "./saving.js";

/** The panel. */
export class About {
  constructor(page) {
    this.page = page;
    this.title = "Run";
    this.root = el("section");
    addEventListener("dragover", (event) => {
      if (!page.can?.locate || !event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
    addEventListener("drop", (event) => {
      if (!page.can?.locate || !event.dataTransfer?.files.length) return;
      event.preventDefault();
      document.body.classList.remove("dropping");
      this.locate(event.dataTransfer.files[0]);
    });
  }

  applies() {
    return true;
  }

  open() {
    const { page } = this, { description, points } = page, parts = [];
    page.plane.landed = null;
    if (page.can.locate) {
      const input = el("input", { type: "file", accept: "image/*", id: "own-file", "aria-label": "An image of your own",
        onchange: () => { if (input.files.length) this.locate(input.files[0]); } });
      this.landing = el("div");
      parts.push(el("h2", { textContent: "An image of your own" }), el("div", { className: "drop" },
        el("p", { textContent: "Drop an image anywhere on this page, or choose one, to see where it lands." }), input), this.landing);
    }
    if (description.notes.length) parts.push(...description.notes.map((note) => el("p", { className: "warning", textContent: note })));
    parts.push(el("h2", { textContent: "Scores" }), scoreTable(description.scores));
    parts.push(el("h2", { textContent: "Facts" }), el("dl", {}, ...description.facts.flatMap(([name, value]) => [
      el("dt", { textContent: name }), el("dd", { textContent: value })])));
    if (points?.count) {
      const all = () => download(`${description.name}-codes.csv`, codesAsCsv(description, points, [...points.codes.keys()].slice(0, points.count)), "text/csv");
      parts.push(el("p", { className: "row" }, el("button", { type: "button", id: "save-codes", textContent: "All codes as CSV", onclick: all })));
    }
    this.root.replaceChildren(...parts);
  }

  async locate(file) {
    const { page } = this, { description } = page;
    page.tabs.open("about");
    this.landing.replaceChildren(el("p", { className: "note", textContent: `Looking for the place of ${file.name} ...` }));
    try {
      const found = await page.source.locate(file), at = page.projection.flat(found.code);
      page.plane.landed = [at[0], at[1]];
      page.plane.look({ ...page.plane.view, x: at[0], y: at[1] });
      page.show(found.code, found.label);
      const words = found.known >= 0 ? `training sample #${found.known}` : `loss ${figure(found.loss)}`;
      this.landing.replaceChildren(
        el("div", { className: "pair" }, figureOf(found.samples, 0, file.name, description), figureOf(found.remade, 0, `as the model makes it, ${words}`, description)),
        ...found.notes.map((note) => el("p", { className: "note", textContent: note })));
      if (found.nearest.length) {
        const samples = await page.images(found.nearest, null);
        this.landing.append(el("h2", { textContent: "Most alike in the training data" }), gallery(page, found.nearest, samples, found.nearest.map((i) => `#${i}`)));
      }
    } catch (error) {
      this.landing.replaceChildren();
      complain(error);
    }
  }
}

/** Scores as a table, in their modes. */
export function scoreTable(scores) {
  if (!scores.length) return el("p", { className: "note", textContent: "Not measured yet: `neurosql evaluate RUN` does it." });
  const arrows = { lower: " ↓", higher: " ↑", none: "" };
  return el("div", { className: "scroll" }, el("table", {},
    el("tr", {}, ...["score", "of", "value", "compare with"].map((head) => el("th", { textContent: head }))),
    ...scores.map(({ name, mode, text, beside, direction, note }) => el("tr", { title: note },
      el("td", { textContent: name + arrows[direction] }), el("td", { textContent: mode }),
      el("td", { className: "number", textContent: text }), el("td", { textContent: beside })))));
}
