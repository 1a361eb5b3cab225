/** The panel of one training sample: itself, its reconstruction, its code, and those like it. */

import { complain, el, figure } from "./elements.js";
import { pictured } from "./drawing.js";
import { codesAsCsv, download } from "./saving.js";

const NEAREST = 6;

/** The panel. */
export class Picked {
  constructor(page) {
    this.page = page;
    this.title = "Sample";
    this.root = el("section");
  }

  applies() {
    return this.page.can.points;
  }

  open() {
    this.asked = 0;
    this.root.replaceChildren(el("p", { className: "note", textContent: "Click a point or an image on the map." }));
  }

  async show(index) {
    const asked = ++this.asked, { page } = this;
    if (index < 0) {
      this.open();
      return;
    }
    try {
      const real = await page.images([index], null), made = await page.remade([index]);
      if (asked !== this.asked) return;
      this.root.replaceChildren(...this.parts(index, real, made));
      await this.neighbours(index, asked);
    } catch (error) {
      complain(error);
    }
  }

  parts(index, real, made) {
    const { page } = this, { points, description } = page;
    const name = points.names?.[index] ?? `sample ${index}`;
    const pair = el("div", { className: "pair" },
      figureOf(real, 0, page.can.images ? "training sample" : "not at hand: reconstruction", description),
      figureOf(made, 0, "reconstruction", description));
    const facts = [["number", `#${index}`], ["label", points.labels ? description.classes[points.labels[index]] : null],
      ["loss", points.losses ? figure(points.losses[index]) : null],
      ["component", points.components ? points.components[index] + 1 : null],
      ["code", [...page.codeOf(index)].slice(0, 16).map(figure).join(", ") + (points.dim > 16 ? ", ..." : "")]];
    const list = el("dl", {}, ...facts.filter(([, value]) => value !== null).flatMap(([term, value]) => [
      el("dt", { textContent: term }), el("dd", { textContent: String(value) })]));
    const save = () => download(`${description.name}-${index}.csv`, codesAsCsv(description, points, [index]), "text/csv");
    return [el("h2", { textContent: name }), pair, list, el("p", { className: "row" },
      el("button", { type: "button", textContent: "Add to the path", onclick: () => page.panels.path.add(page.codeOf(index), page.classAt(index)) }),
      el("button", { type: "button", textContent: "Code as CSV", onclick: save }))];
  }

  async neighbours(index, asked) {
    const { page } = this, { points } = page;
    const near = nearestCodes(points, index, NEAREST);
    const groups = [["Nearest codes", near.map(([i]) => i), near.map(([, far]) => `distance ${figure(far)}`)]];
    if (page.can.neighbours) {
      const found = await page.source.neighbours(index, NEAREST);
      groups.push(["Most alike in pixels", found.indices, found.losses.map((loss) => `loss ${figure(loss)}`)]);
    }
    for (const [title, indices, words] of groups) {
      if (!indices.length) continue;
      const samples = await page.images(indices, null);
      if (asked !== this.asked) return;
      this.root.append(el("h2", { textContent: title }), gallery(page, indices, samples, words));
    }
  }
}

/** A sample with words below it. */
export function figureOf(samples, i, words, description) {
  return el("figure", {}, pictured(samples, i, words, description.columns), el("figcaption", { textContent: words }));
}

/** Training samples side by side, each of which can be picked. */
export function gallery(page, indices, samples, words) {
  const { points, description } = page;
  return el("div", { className: "sheet" }, ...indices.map((index, i) => {
    const label = points.labels ? `${description.classes[points.labels[index]]}, ` : "";
    const button = el("button", { type: "button", title: `#${index}`, "aria-label": `Sample ${index}, ${label}${words[i]}`, onclick: () => page.go(index) });
    button.append(figureOf(samples, i, label + words[i], description));
    return button;
  }));
}

/** The nearest other codes of a sample, and how far they are: of its class, if there are enough. */
function nearestCodes(points, index, count) {
  const { codes, dim } = points, found = [];
  for (let i = 0; i < points.count; i++) {
    if (i === index) continue;
    let far = 0;
    for (let k = 0; k < dim; k++) far += (codes[i * dim + k] - codes[index * dim + k]) ** 2;
    if (found.length < count || far < found[found.length - 1][1]) {
      const place = found.findIndex(([, other]) => far < other);
      found.splice(place < 0 ? found.length : place, 0, [i, far]);
      if (found.length > count) found.pop();
    }
  }
  return found.map(([i, far]) => [i, Math.sqrt(far)]);
}
