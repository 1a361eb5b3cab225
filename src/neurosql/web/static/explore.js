/** The page: one run of those that there are on the map, and panels beside it that follow what one does there. */

import { About } from "./about.js";
import { numberIn, readAddress, writeAddress } from "./address.js";
import { Chosen } from "./chosen.js";
import { Comparison } from "./comparison.js";
import { coloured, colourings } from "./colours.js";
import { drawSample } from "./drawing.js";
import { byId, choices, complain, el, say } from "./elements.js";
import { Journey } from "./journey.js";
import { Latest } from "./latest.js";
import { mosaic } from "./mosaic.js";
import { Picked } from "./picked.js";
import { Place } from "./place.js";
import { Plane } from "./plane.js";
import { Projection } from "./projection.js";
import { downloadPicture } from "./saving.js";
import { found, hints } from "./search.js";
import { Sheet } from "./sheet.js";
import { Tabs } from "./tabs.js";
import { Thumbnails } from "./thumbnails.js";
import { Training } from "./training.js";

const THUMBNAIL = 48;
const SHOWN = [["auto", "images when close"], ["images", "images"], ["dots", "dots"]];
const LAND = 96;

/** Show some runs: an array of sources, each with a `name`. */
export async function explore(sources) {
  const page = new Page(sources);
  await page.open(numberIn(readAddress(), "run", 0));
  return page;
}

/** What the panels share: the run, the code that is shown, the sample that is picked and those that are chosen. */
class Page {
  constructor(sources) {
    this.sources = sources;
    this.plane = new Plane(byId("plane"), {
      move: (u, v) => this.point(u, v),
      pick: (index, u, v, shift) => this.pick(index, u, v, shift),
      lasso: (indices) => this.choose(indices),
      view: () => this.keep(),
      thumbnail: (index) => this.thumbnails?.get(index) ?? null,
      drawn: (milliseconds) => tell("frame", milliseconds),
    });
    this.panels = { place: Place, picked: Picked, sheet: Sheet, path: Journey, chosen: Chosen, runs: Comparison, training: Training, about: About };
    for (const [name, Panel] of Object.entries(this.panels)) this.panels[name] = new Panel(this);
    this.tabs = new Tabs(byId("tabs"), byId("panels"), (name) => { this.panels[name].entered?.(); this.keep(); });
    this.latest = new Latest(
      ({ code, label }) => this.source.decode(code, { labels: label === null ? null : Int32Array.of(label) }),
      (samples, asked, milliseconds) => this.decoded(samples, asked, milliseconds),
      complain,
    );
    this.listen();
  }

  listen() {
    const changed = (id, call) => byId(id).addEventListener("change", (event) => call(event.target.value));
    changed("run", (value) => { location.hash = `run=${value}`; });
    changed("colour", (value) => this.colour(value));
    changed("images", (value) => { this.plane.images = value; this.plane.redraw(); this.keep(); });
    changed("axes", (value) => { this.project(value); this.fit(); this.landBelow().catch(complain); });
    byId("closer").onclick = () => this.plane.zoom(1.5);
    byId("farther").onclick = () => this.plane.zoom(1 / 1.5);
    byId("fit").onclick = () => this.fit();
    byId("save-map").onclick = () => downloadPicture(`${this.description.name}-map.png`, this.plane.picture());
    byId("theme").onclick = () => this.theme(dark() ? "light" : "dark");
    byId("find").addEventListener("submit", (event) => { event.preventDefault(); this.search(byId("search").value); });
    byId("search").addEventListener("input", (event) => { if (!event.target.value) this.choose([]); });
    for (const button of document.querySelectorAll("[data-mode]")) button.onclick = () => this.mode(button.dataset.mode);
    addEventListener("hashchange", () => this.open(numberIn(readAddress(), "run", 0)).catch(complain));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.colour(byId("colour").value));
    byId("plane").addEventListener("pointerleave", () => { byId("lens").hidden = true; });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { this.pick(-1); this.choose([]); }
      if (event.key === "/" && !/input|select/i.test(event.target.tagName)) { event.preventDefault(); byId("search").focus(); }
    });
  }

  /** Show run number `number`, as the address says. */
  async open(number) {
    const given = readAddress();
    this.number = Math.min(Math.max(Math.round(number), 0), this.sources.length - 1);
    this.source = this.sources[this.number];
    if (given.theme) document.documentElement.dataset.theme = given.theme;
    this.opening = true;
    const description = await this.source.describe();
    this.description = description;
    this.can = { ...description.capabilities };
    this.points = this.can.points ? await this.source.points() : null;
    document.title = `${description.name} · neurosql`;
    byId("title").textContent = `${description.name}: ${description.facts.find(([name]) => name === "data")?.[1] ?? ""}`;
    byId("run").hidden = this.sources.length < 2;
    choices(byId("run"), this.sources.map((source, i) => [String(i), source.name]), String(this.number));
    this.prepareMap(given);
    this.selected = -1;
    this.chosen = [];
    for (const panel of Object.values(this.panels)) panel.open(given);
    this.tabs.show(Object.entries(this.panels).filter(([, panel]) => panel.applies()), given.tab);
    this.opening = false;
    this.keep();
    const picked = Math.round(numberIn(given, "sample", -1));
    if (this.points && picked >= 0 && picked < this.points.count) await this.pick(picked);
    for (const note of description.notes) say(note);
    tell("opened", performance.now());
  }

  /** Take over what has changed in a run that is still being trained: the view stays. */
  async renew() {
    const source = this.source, description = await source.describe(), points = await source.points();
    if (source !== this.source || points.count !== this.points?.count) return;
    const by = !this.points.labels && points.labels ? "label" : byId("colour").value;
    [this.description, this.points] = [description, points];
    choices(byId("colour"), colourings(description, points), by);
    this.project(this.axes);
    this.show(this.code, this.classAt(-1));
    this.landBelow().catch(complain);
  }

  prepareMap(given) {
    const { description, points, can } = this;
    byId("mapped").classList.toggle("none", !points);
    byId("empty").hidden = Boolean(points && points.count);
    byId("empty").textContent = description.dim
      ? "This run has no training samples to show: it was shared without them. Move over the map to see what it makes."
      : "This model has no map: its samples come from noise. The tab Samples shows new ones.";
    if (!description.dim) {
      this.plane.setPoints(new Float32Array(0));
      byId("legend").replaceChildren();
      return;
    }
    this.points ??= { count: 0, dim: description.dim, codes: new Float32Array(0) };
    this.code = Float32Array.from(description.range, ([low, high]) => (low + high) / 2);
    this.label = description.conditional ? Number(given.class ?? -1) : null;
    this.thumbnails = null;
    const drawable = ["image", "volume"].includes(description.kind);
    this.plane.side = drawable ? Math.min(THUMBNAIL, Math.max(28, ...description.shape.slice(-2))) : 0;
    if (drawable) {
      this.thumbnails = new Thumbnails((indices) => this.images(indices, this.plane.side), this.plane.side, (failed) => {
        if (failed) complain(failed);
        this.plane.redraw();
      });
    }
    byId("images").parentElement.hidden = !drawable || !this.points.count;
    const none = !this.points.count;
    byId("colour").parentElement.hidden = byId("find").hidden = document.querySelector('[data-mode="lasso"]').hidden = none;
    choices(byId("images"), SHOWN, given.show ?? "auto");
    this.plane.images = byId("images").value;
    byId("axes-of").hidden = description.dim < 3;
    const pairs = [];
    const most = Math.min(description.dim, 8);
    for (let i = 0; i < most; i++) for (let j = i + 1; j < most; j++) pairs.push([`${i + 1},${j + 1}`, `z${i + 1} and z${j + 1}`]);
    choices(byId("axes"), [["main", "main directions"], ...pairs], given.axes ?? "main");
    this.project(byId("axes").value);
    choices(byId("colour"), colourings(description, this.points), given.colour ?? (this.points.labels ? "label" : "none"));
    this.colour(byId("colour").value);
    hints(byId("labels"), description);
    const x = numberIn(given, "x", NaN), y = numberIn(given, "y", NaN), scale = numberIn(given, "zoom", NaN);
    if (Number.isFinite(x + y + scale)) this.plane.look({ x, y, scale });
    else this.fit();
    this.landBelow().catch(complain);
  }

  /** Show all points or, where there are none, all of the range that a map should cover. */
  fit() {
    const [[left, right], [bottom, top]] = [this.description.range[0], this.description.range[1] ?? [-1, 1]];
    if (this.points?.count) this.plane.fit();
    else this.plane.fit([left, bottom, right, top]);
  }

  /** Where samples come from: the rest of the map is sea. */
  async landBelow() {
    this.plane.setShade(null);
    const { description, source } = this;
    if (!this.points.count && this.thumbnails && this.can.decode) {
      await mosaic(this, (shade) => this.plane.setShade(shade));
      return;
    }
    if (!this.can.reach || description.dim !== 2) return;
    const [[left, right], [bottom, top]] = description.range, [w, h] = [(right - left) / 8, (top - bottom) / 8];
    const box = [left - w, bottom - h, right + w, top + h], codes = new Float32Array(2 * LAND * LAND);
    for (let i = 0; i < LAND * LAND; i++) {
      codes[2 * i] = box[0] + ((i % LAND) + 0.5) * (box[2] - box[0]) / LAND;
      codes[2 * i + 1] = box[3] - (Math.floor(i / LAND) + 0.5) * (box[3] - box[1]) / LAND;
    }
    const mask = await source.reach(codes);
    if (source === this.source) this.plane.setShade({ box, mask, columns: LAND, rows: LAND, colour: dark() ? "#23272e" : "#e4e8ed" });
  }

  project(axes) {
    this.axes = axes;
    this.projection = new Projection(this.description, axes === "main" ? "main" : axes.split(",").map((n) => Number(n) - 1));
    this.plane.setPoints(this.projection.flat(this.points.codes));
    this.plane.path = this.panels.path.codes?.map((code) => [...this.projection.flat(code)]) ?? [];
    this.plane.selected = this.selected ?? -1;
    if (this.coloured) this.colour(byId("colour").value);
    this.mark();
  }

  colour(by) {
    const { plane, points, description } = this;
    if (!points) return;
    this.coloured = coloured(by, description, points, dark());
    plane.colours = this.coloured.colours;
    plane.hidden = null;
    const { legend, scale } = this.coloured, place = byId("legend");
    place.replaceChildren(...legend.map(({ group, name, colour, count }) => {
      const swatch = el("i", { className: "swatch" });
      swatch.style.background = colour;
      const words = el("span", { textContent: name, title: `${name}: ${count.toLocaleString("en")}` });
      return el("button", { type: "button", "aria-pressed": "true", onclick: (e) => this.toggle(group, e.currentTarget) }, swatch, words);
    }));
    if (scale) {
      const ramp = el("i", { className: "ramp" });
      ramp.style.background = `linear-gradient(to right, ${scale.stops.join(", ")})`;
      place.append(String(Number(scale.low.toPrecision(3))), ramp, String(Number(scale.high.toPrecision(3))));
    }
    this.plane.redraw();
    this.keep();
  }

  /** Show or hide the points of a group. */
  toggle(group, button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", on);
    this.plane.hidden ??= new Uint8Array(this.points.count);
    this.coloured.groups.forEach((g, i) => { if (g === group) this.plane.hidden[i] = on ? 0 : 1; });
    this.plane.redraw();
  }

  theme(name) {
    document.documentElement.dataset.theme = name;
    this.colour(byId("colour").value);
    this.landBelow().catch(complain);
    this.keep();
  }

  mode(name) {
    this.plane.mode = name;
    for (const button of document.querySelectorAll("[data-mode]")) button.setAttribute("aria-pressed", button.dataset.mode === name);
    if (name === "path") this.tabs.open("path");
    if (name === "lasso") this.tabs.open("chosen");
  }

  /** The pointer is at a place of the map. */
  point(u, v) {
    if (!this.can.decode || !this.projection) return;
    const { points, description } = this, near = points.count ? this.plane.nearest(u, v) : -1;
    // A plane through many dimensions passes by most samples: there, one looks near the nearest of them.
    const from = description.dim > 2 && near >= 0 && this.panels.place.follows ? this.codeOf(near) : this.code;
    this.show(this.projection.code(u, v, from), this.classAt(near));
  }

  /** The class that a place is decoded with, if the model is conditional. */
  classAt(near) {
    if (!this.description.conditional) return null;
    return this.label >= 0 ? this.label : near >= 0 ? this.points.labels[near] : 0;
  }

  /** Show what the model makes of a code. */
  show(code, label = null) {
    this.code = code;
    this.latest.want({ code, label });
  }

  decoded(samples, { code, label }, milliseconds) {
    this.panels.place.shown(samples, code, label);
    const lens = byId("lens"), { plane } = this;
    if (plane.cursor && plane.side && byId("plane").matches(":hover, :focus-visible")) {
      drawSample(lens, samples, 0);
      const [x, y] = plane.pixel(...plane.cursor), offset = byId("plane").offsetTop;
      lens.style.left = `${Math.min(Math.max(x + (x > plane.width - 150 ? -116 : 20), 4), plane.width - 100)}px`;
      lens.style.top = `${Math.min(Math.max(y + offset - 116, offset + 4), offset + plane.height - 104)}px`;
      lens.hidden = false;
    }
    tell("decoded", milliseconds);
  }

  codeOf(index) {
    return this.points.codes.slice(index * this.points.dim, (index + 1) * this.points.dim);
  }

  /** Samples of these numbers: the images themselves or, where they are not at hand, their reconstructions. */
  async images(indices, side) {
    if (this.can.images) {
      try {
        return await this.source.images(indices, { side });
      } catch (error) {
        this.can.images = this.can.neighbours = false;
        say(`${error.message} The map shows reconstructions.`);
      }
    }
    return this.remade(indices);
  }

  /** What the model makes of the codes of these samples. */
  remade(indices) {
    const { points, description } = this, codes = new Float32Array(indices.length * points.dim);
    indices.forEach((index, i) => codes.set(this.codeOf(index), i * points.dim));
    const labels = description.conditional ? Int32Array.from(indices, (index) => points.labels[index]) : null;
    return this.source.decode(codes, { labels });
  }

  async pick(index, u, v, shift = false) {
    if (this.plane.mode === "path" && u !== undefined) {
      this.panels.path.add(index >= 0 && !shift ? this.codeOf(index) : this.code, this.classAt(index));
      return;
    }
    this.selected = this.plane.selected = index;
    this.plane.drawAbove();
    if (index >= 0) {
      this.tabs.open("picked");
      this.show(this.codeOf(index), this.description.conditional ? this.points.labels[index] : null);
    }
    this.keep();
    await this.panels.picked.show(index);
  }

  /** Bring a sample into the middle, and pick it. */
  go(index) {
    const { xy, view } = this.plane;
    this.plane.look({ ...view, x: xy[2 * index], y: xy[2 * index + 1] });
    byId("mapped").scrollIntoView({ block: "nearest" });
    return this.pick(index);
  }

  choose(indices) {
    this.chosen = indices;
    this.mark();
    this.panels.chosen.show(indices);
    if (indices.length) this.tabs.open("chosen");
  }

  mark() {
    this.plane.marks = this.chosen?.length ? new Uint8Array(this.points.count) : null;
    for (const index of this.chosen ?? []) this.plane.marks[index] = 1;
    this.plane.redraw();
  }

  search(words) {
    if (!this.points?.count) return;
    const indices = found(words, this.description, this.points);
    if (!indices.length) say(`Nothing is called ${JSON.stringify(words)}: search for a part of a file name, a label, or #12.`);
    else if (indices.length === 1) this.go(indices[0]);
    this.choose(indices.length === 1 ? [] : indices);
  }

  /** Write the view to the address. */
  keep() {
    if (this.opening || !this.description) return;
    const { view } = this.plane, round = (value) => Number(value.toPrecision(5));
    const map = this.points && this.description.dim ? {
      x: round(view.x), y: round(view.y), zoom: round(view.scale), colour: byId("colour").value, show: this.plane.images,
      axes: this.description.dim > 2 ? this.axes : null, class: this.label >= 0 ? this.label : null,
      sample: this.selected >= 0 ? this.selected : null,
    } : {};
    const theme = document.documentElement.dataset.theme;
    writeAddress({ run: this.number || null, ...map, tab: this.tabs.current, ...this.panels.sheet.address(), theme });
  }
}

function dark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Let whoever measures know what was done, and how long it took. */
function tell(what, milliseconds) {
  document.dispatchEvent(new CustomEvent(`neurosql:${what}`, { detail: milliseconds }));
}
