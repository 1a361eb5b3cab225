/** Small pictures of training samples, asked for when they come into view and kept on one canvas. */

import { el } from "./elements.js";
import { imageOf } from "./drawing.js";

const TOGETHER = 256;
const SLOTS = 48;

/** `ask(indices)` returns a promise of their samples; `changed()` is called when some have come. */
export class Thumbnails {
  constructor(ask, side, changed) {
    [this.ask, this.side, this.changed] = [ask, side, changed];
    this.atlas = el("canvas", { width: SLOTS * side, height: SLOTS * side });
    this.pen = this.atlas.getContext("2d");
    this.slots = new Map();
    this.wanted = new Set();
    this.asked = new Set();
    this.busy = false;
    this.failed = null;
  }

  /** Where the picture of a sample is: an image and a box in it; null if it is still to come. */
  get(index) {
    const slot = this.slots.get(index);
    if (slot) {
      // The last in the map is the last to be dropped.
      this.slots.delete(index);
      this.slots.set(index, slot);
      return { image: this.atlas, from: slot };
    }
    if (!this.failed && !this.asked.has(index)) {
      this.wanted.add(index);
      if (!this.busy) this.fetch();
    }
    return null;
  }

  async fetch() {
    this.busy = true;
    await new Promise((done) => setTimeout(done, 30));
    while (this.wanted.size && !this.failed) {
      // What was asked for last is in view.
      const indices = [...this.wanted].slice(-TOGETHER);
      this.wanted.clear();
      this.asked = new Set(indices);
      try {
        this.keep(indices, await this.ask(indices));
      } catch (error) {
        this.failed = error;
      }
      this.asked.clear();
      this.changed(this.failed);
    }
    this.busy = false;
  }

  keep(indices, samples) {
    indices.forEach((index, i) => {
      const image = imageOf(samples, i);
      const place = this.free();
      const factor = Math.min(1, this.side / Math.max(image.width, image.height));
      const [width, height] = [Math.max(1, Math.floor(image.width * factor)), Math.max(1, Math.floor(image.height * factor))];
      const [x, y] = [(place % SLOTS) * this.side, Math.floor(place / SLOTS) * this.side];
      this.pen.clearRect(x, y, this.side, this.side);
      if (factor === 1) this.pen.putImageData(image, x, y);
      else {
        const whole = el("canvas", { width: image.width, height: image.height });
        whole.getContext("2d").putImageData(image, 0, 0);
        this.pen.drawImage(whole, x, y, width, height);
      }
      this.slots.set(index, Object.assign([x, y, width, height], { place }));
    });
  }

  free() {
    if (this.slots.size < SLOTS * SLOTS) return this.slots.size;
    const [oldest, { place }] = this.slots.entries().next().value;
    this.slots.delete(oldest);
    return place;
  }
}
