/** The panel of new samples: drawn by seed and sampler, each beside the training sample most like it. */

import { numberIn } from "./address.js";
import { choices, complain, el, figure } from "./elements.js";
import { contactSheet, some } from "./drawing.js";
import { Latest } from "./latest.js";
import { figureOf } from "./picked.js";
import { csvOf, download, downloadPicture } from "./saving.js";

/** The panel. */
export class Sheet {
  constructor(page) {
    this.page = page;
    this.title = "Samples";
    this.root = el("section");
    this.requests = new Latest((options) => page.source.sample(options), (drawn) => this.take(drawn), (error) => this.fail(error));
  }

  applies() {
    return this.page.can.sample;
  }

  /** Whoever opens the panel wants to see samples. */
  entered() {
    if (!this.drawn && !this.requests.busy) this.draw();
  }

  open(given) {
    if (!this.applies()) return;
    const { description } = this.page;
    this.drawn = null;
    this.seed = el("input", { type: "number", min: 0, step: 1, value: numberIn(given, "seed", 0), id: "seed" });
    this.count = el("input", { type: "number", min: 1, max: 64, value: numberIn(given, "count", 12), id: "count" });
    this.sampler = el("select", { id: "sampler" });
    choices(this.sampler, description.samplers.map(({ name, title }) => [name, `${name}: ${title}`]), given.sampler);
    this.usual = !description.samplers.some(({ name }) => name === given.sampler);
    this.sampler.onchange = () => { this.usual = false; this.fraction.value = this.record().fraction ?? ""; this.settle(); };
    this.sampler.style.maxWidth = "14rem";
    this.fraction = el("input", { type: "number", min: 0, max: 1, step: 0.05, id: "fraction", value: given.fraction ?? this.record()?.fraction ?? "" });
    this.label = el("select", { id: "sample-class" });
    choices(this.label, [["", "any"], ...description.classes.map((name, i) => [String(i), name])], given.of ?? "");
    const field = (words, input) => el("label", {}, words, input);
    this.fractionField = field("Fraction", this.fraction);
    this.place = el("div");
    this.verdict = el("p", { className: "note", role: "status" });
    const form = el("form", { className: "row", onsubmit: (event) => { event.preventDefault(); this.draw(); } },
      field("Seed", this.seed), field("Count", this.count),
      ...(description.samplers.length > 1 ? [field("Sampler", this.sampler), this.fractionField] : []),
      ...(description.conditional ? [field("Class", this.label)] : []),
      el("button", { id: "draw", textContent: "Draw" }),
      el("button", { type: "button", textContent: "Next seed", onclick: () => { this.seed.value = Number(this.seed.value) + 1; this.draw(); } }));
    this.savers = el("p", { className: "row", hidden: true },
      el("button", { type: "button", textContent: "PNG", onclick: () => downloadPicture(this.name("png"), contactSheet(this.drawn.samples, 8)) }),
      el("button", { type: "button", textContent: "CSV", onclick: () => download(this.name("csv"), this.csv(), "text/csv") }));
    this.savers.firstChild.hidden = !["image", "volume"].includes(description.kind);
    this.root.replaceChildren(form, this.verdict, this.savers, this.place);
    this.settle();
  }

  record() {
    return this.page.description.samplers.find(({ name }) => name === this.sampler.value);
  }

  settle() {
    this.fractionField.hidden = (this.record()?.fraction ?? null) === null;
  }

  /** What of the sheet belongs to the address. */
  address() {
    if (!this.drawn) return {};
    const of = this.page.description.conditional ? this.label.value : null;
    const fraction = this.fractionField.hidden ? null : this.fraction.value;
    return { seed: this.seed.value, count: this.count.value, sampler: this.usual ? null : this.sampler.value, fraction, of };
  }

  name(ending) {
    return `${this.page.description.name}-samples-seed${this.seed.value}.${ending}`;
  }

  draw() {
    const options = { seed: Number(this.seed.value), count: Number(this.count.value) };
    if (!this.usual) options.sampler = this.sampler.value;
    if (!this.usual && !this.fractionField.hidden && this.fraction.value !== "") options.fraction = Number(this.fraction.value);
    if (this.page.description.conditional && this.label.value !== "") options.label = Number(this.label.value);
    this.verdict.textContent = "Drawing ...";
    this.root.setAttribute("aria-busy", "true");
    this.requests.want(options);
  }

  async take(drawn) {
    if (this.requests.next) return;
    this.drawn = drawn;
    try {
      await this.fill(drawn);
      this.page.keep();
    } catch (error) {
      this.fail(error);
    }
    this.root.setAttribute("aria-busy", "false");
  }

  fail(error) {
    this.verdict.textContent = "";
    this.root.setAttribute("aria-busy", "false");
    complain(error);
  }

  async fill({ samples, codes, labels, nearest, losses, suspicious, verdict }) {
    const { page } = this, { description } = page;
    const others = nearest ? await page.images([...nearest], null) : null;
    if (this.drawn.samples !== samples) return;
    this.verdict.textContent = verdict;
    this.savers.hidden = false;
    const rows = Array.from({ length: samples.count }, (_, i) => {
      const own = figureOf(samples, i, `new${labels ? `, ${description.classes[labels[i]]}` : ""}`, description);
      const button = el("button", { type: "button", className: suspicious?.[i] ? "close" : "", "aria-label": `New sample ${i + 1}` }, own);
      button.disabled = !codes;
      button.onclick = () => this.visit(codes.slice(i * description.dim, (i + 1) * description.dim), labels?.[i] ?? null);
      if (!others) return button;
      const words = `most like #${nearest[i]}, loss ${figure(losses[i])}${suspicious?.[i] ? ": suspiciously close" : ""}`;
      const other = el("button", { type: "button", title: `#${nearest[i]}`, onclick: () => page.go(nearest[i]) }, figureOf(others, i, words, description));
      return el("div", { className: "pair" }, button, other);
    });
    const sheet = el("div", { className: "sheet" }, ...rows);
    sheet.style.gridTemplateColumns = others ? "repeat(auto-fill, minmax(9rem, 1fr))" : "";
    this.place.replaceChildren(sheet);
  }

  /** Go where a sample comes from. */
  visit(code, label) {
    const { page } = this, [u, v] = page.projection.flat(code);
    page.plane.cursor = [u, v];
    page.plane.look({ ...page.plane.view, x: u, y: v });
    page.show(code, label);
  }

  csv() {
    const { description } = this.page, { samples, codes, nearest, losses } = this.drawn;
    const each = samples.shape.reduce((a, b) => a * b, 1), vectors = description.kind === "vector";
    const values = vectors ? Array.from({ length: each }, (_, k) => description.columns[k] ?? `x${k}`) : [];
    const heads = ["sample", "nearest", "loss", ...Array.from({ length: codes ? description.dim : 0 }, (_, k) => `z${k + 1}`), ...values];
    const rows = Array.from({ length: samples.count }, (_, i) => [
      i, nearest?.[i], losses?.[i], ...(codes ? codes.subarray(i * description.dim, (i + 1) * description.dim) : []),
      ...(vectors ? some(samples, i, 1).values : [])]);
    return csvOf(heads, rows);
  }
}
