/** The panel of the training: its figures epoch by epoch. While the run is being trained, they and the map move on. */

import { complain, el, figure } from "./elements.js";

const PAUSE = 2000;
const SHOWN = ["loss", "heldout_loss", "cost", "changed", "gap", "drift", "learning_rate"];
const SIZE = [320, 90];

/** The panel. */
export class Training {
  constructor(page) {
    this.page = page;
    this.title = "Training";
    this.root = el("section");
  }

  applies() {
    return this.page.can.watch;
  }

  open() {
    clearTimeout(this.timer);
    this.version = null;
    if (!this.applies()) return;
    this.state = el("p", { role: "status" });
    this.curves = el("div", { id: "curves" });
    this.root.replaceChildren(this.state, this.curves);
    this.look(this.page.source).catch(complain);
  }

  /** Look how far the training is and, while it goes on, look again. */
  async look(source) {
    const found = await source.progress();
    if (source !== this.page.source) return;
    this.state.textContent = `${found.epoch} epochs, ${found.state}`;
    this.draw(found.history);
    if (this.version !== null && found.version !== this.version) await this.page.renew();
    this.version = found.version;
    if (found.running) this.timer = setTimeout(() => this.look(source).catch(complain), PAUSE);
  }

  draw(history) {
    const names = Object.keys(Object.assign({}, ...history)).filter((name) => !["epoch", "step"].includes(name));
    const order = [...SHOWN.filter((name) => names.includes(name)), ...names.filter((name) => !SHOWN.includes(name))];
    this.curves.replaceChildren(...order.map((name) => {
      const values = history.map((figures) => figures[name]);
      const known = values.filter((value) => value !== undefined);
      const words = `${name.replaceAll("_", " ")}: ${figure(known.at(-1))}`;
      const canvas = el("canvas", { className: "bars", role: "img", "aria-label": `${words}, epoch by epoch` });
      const shown = el("figure", {}, el("figcaption", { textContent: words }), canvas);
      requestAnimationFrame(() => curve(canvas, values));
      return shown;
    }));
  }
}

/** Draw numbers as a curve; gaps are passed over. */
function curve(canvas, values) {
  const ratio = Math.min(devicePixelRatio || 1, 2), [width, height] = SIZE, pen = canvas.getContext("2d");
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  const known = values.map((value, i) => [i, value]).filter(([, value]) => value !== undefined);
  const low = known.reduce((least, [, v]) => Math.min(least, v), Infinity);
  const high = known.reduce((most, [, v]) => Math.max(most, v), -Infinity);
  pen.scale(ratio, ratio);
  pen.strokeStyle = getComputedStyle(canvas).color;
  pen.lineWidth = 1.5;
  pen.beginPath();
  known.forEach(([i, value], k) => {
    const x = values.length > 1 ? 4 + ((width - 8) * i) / (values.length - 1) : width / 2;
    pen[k ? "lineTo" : "moveTo"](x, high > low ? 4 + ((height - 8) * (high - value)) / (high - low) : height / 2);
  });
  pen.stroke();
}
