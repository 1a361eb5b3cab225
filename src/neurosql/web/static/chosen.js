/** The panel of samples that were chosen with the lasso or by search: look at them, name them, export them. */

import { complain, el } from "./elements.js";
import { contactSheet, pictured } from "./drawing.js";
import { gallery } from "./picked.js";
import { codesAsCsv, download, downloadPicture } from "./saving.js";

const SHOWN = 48;
const DRAWN = 12;
const MOST_SAVED = 400;

/** The panel. */
export class Chosen {
  constructor(page) {
    this.page = page;
    this.title = "Selection";
    this.root = el("section");
  }

  applies() {
    return this.page.can.points;
  }

  open() {
    this.own = "";
    this.show([]);
  }

  async show(indices) {
    const { page } = this, asked = (this.asked = {});
    if (!indices.length) {
      this.root.replaceChildren(el("p", { className: "note", textContent:
        "Choose Lasso above the map and draw around points, or search for a label or a part of a file name." }));
      return;
    }
    const own = el("input", { type: "text", value: this.own, placeholder: "a name of your own", "aria-label": "Your label for these samples", id: "own-label" });
    own.oninput = () => { this.own = own.value; };
    const button = (id, textContent, onclick) => el("button", { type: "button", id, textContent, onclick });
    const drawable = ["image", "volume"].includes(page.description.kind);
    this.new = el("div", { className: "sheet" });
    this.root.replaceChildren(
      el("h2", { textContent: `${indices.length.toLocaleString("en")} samples` }),
      el("p", { className: "note", textContent: this.counts(indices) }),
      el("p", { className: "row" }, el("label", {}, "Label ", own)),
      el("p", { className: "row" }, button("save-chosen", "CSV", () => this.save(indices)),
        ...(drawable ? [button("save-images", "Images as PNG", () => this.saveImages(indices).catch(complain))] : []),
        ...(page.can.decode ? [button("draw-chosen", "New samples from here", () => this.draw(indices).catch(complain))] : []),
        button("clear-chosen", "Clear", () => page.choose([]))),
      this.new);
    try {
      const shown = indices.slice(0, SHOWN), samples = await page.images(shown, null);
      if (asked !== this.asked) return;
      this.root.append(gallery(page, shown, samples, shown.map((i) => `#${i}`)));
      if (indices.length > SHOWN) this.root.append(el("p", { className: "note", textContent: `The first ${SHOWN} are shown; CSV has all.` }));
    } catch (error) {
      complain(error);
    }
  }

  counts(indices) {
    const { points, description } = this.page;
    if (!points.labels) return "";
    const counts = new Map();
    for (const i of indices) counts.set(points.labels[i], (counts.get(points.labels[i]) ?? 0) + 1);
    const most = [...counts].sort((a, b) => b[1] - a[1]);
    return most.slice(0, 8).map(([label, count]) => `${description.classes[label]}: ${count}`).join(", ") + (most.length > 8 ? ", ..." : "");
  }

  save(indices) {
    const { description, points } = this.page;
    download(`${description.name}-selection.csv`, codesAsCsv(description, points, indices, this.own), "text/csv");
  }

  async saveImages(indices) {
    const samples = await this.page.images(indices.slice(0, MOST_SAVED), null);
    await downloadPicture(`${this.page.description.name}-selection.png`, contactSheet(samples, Math.ceil(Math.sqrt(samples.count))));
  }

  /** New samples from between the chosen codes: each from a point between one of them and one of its three nearest. */
  async draw(indices) {
    const { page } = this, { points, description } = page, { dim } = points;
    const codes = new Float32Array(DRAWN * dim), labels = new Int32Array(DRAWN);
    for (let n = 0; n < DRAWN; n++) {
      const i = indices[Math.floor(Math.random() * indices.length)], from = page.codeOf(i);
      const others = indices.filter((j) => j !== i && (!description.conditional || points.labels[j] === points.labels[i]));
      const far = (j) => from.reduce((sum, z, k) => sum + (z - points.codes[j * dim + k]) ** 2, 0);
      const near = others.map((j) => [far(j), j]).sort((a, b) => a[0] - b[0]).slice(0, 3);
      const to = near.length ? page.codeOf(near[Math.floor(Math.random() * near.length)][1]) : from, share = Math.random();
      from.forEach((z, k) => { codes[n * dim + k] = z + share * (to[k] - z); });
      labels[n] = points.labels?.[i] ?? 0;
    }
    const samples = await page.source.decode(codes, { labels: description.conditional ? labels : null });
    this.new.replaceChildren(...Array.from({ length: DRAWN }, (_, i) => {
      const canvas = pictured(samples, i, `New sample ${i + 1} from the selection`, description.columns);
      canvas.style.width = "100%";
      return canvas;
    }));
  }
}
