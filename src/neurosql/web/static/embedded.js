/** The source of a page that is one file: the run is in the page, and its model runs in the browser. */

import { drawCode, drawLabel, logDensity, randomOf } from "./laws.js";
import { Source } from "./source.js";
import { forwardOf } from "./unpacked.js";

const TYPED = { f4: Float32Array, i4: Int32Array, u1: Uint8Array };
/** Milliseconds of work after which the page may draw. */
const SLICE = 12;

/** What `app/portable/page.py` has written into the page. */
export async function embeddedSource() {
  const head = JSON.parse(document.getElementById("embedded").textContent);
  const text = atob(document.getElementById("content").textContent.trim()), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const arrays = {};
  for (const [name, { type, shape, at }] of Object.entries(head.arrays)) {
    const size = shape.reduce((a, b) => a * b, 1);
    arrays[name] = { shape, values: new TYPED[type](bytes.buffer, at, size) };
  }
  return new EmbeddedSource(head, arrays);
}

/** The run of the page. */
export class EmbeddedSource extends Source {
  constructor(head, arrays) {
    super();
    [this.head, this.arrays, this.name] = [head, arrays, head.description.name];
    const { model } = arrays;
    this.model = head.plan ? forwardOf(head.plan, model.values.slice().buffer) : new Atlas(head, model);
  }

  async describe() {
    return this.head.description;
  }

  async points() {
    const of = (name) => this.arrays[name]?.values ?? null, { dim } = this.head.description, codes = of("codes") ?? new Float32Array(0);
    return {
      count: dim ? codes.length / dim : 0, dim, codes, labels: of("labels"), losses: of("losses"), density: of("density"),
      components: of("components"), positions: null, names: null,
    };
  }

  async decode(codes, { labels = null } = {}) {
    const { latent: dim, description: { shape } } = this.head, count = codes.length / dim, size = shape.reduce((a, b) => a * b, 1);
    const values = new Float32Array(count * size);
    let since = performance.now();
    for (let i = 0; i < count; i++) {
      values.set(this.model.run(codes.subarray(i * dim, (i + 1) * dim), labels?.[i] ?? 0), i * size);
      if (performance.now() - since > SLICE && i + 1 < count) {
        await new Promise((go) => setTimeout(go));
        since = performance.now();
      }
    }
    return { count, shape, values };
  }

  async images(indices) {
    this.sprite ??= this.head.sprite ? await pixelsOf(this.head.sprite, this.arrays.images.values) : null;
    const { values, shape } = this.sprite ?? this.arrays.images, each = shape.slice(1).reduce((a, b) => a * b, 1);
    const found = new values.constructor(indices.length * each);
    indices.forEach((index, i) => found.set(values.subarray(index * each, (index + 1) * each), i * each));
    return { count: indices.length, shape: shape.slice(1), values: found };
  }

  async sample({ count, seed, label = null }) {
    const { law, latent: dim, description } = this.head, random = randomOf(seed);
    const codes = new Float32Array(count * dim), labels = new Int32Array(count);
    for (let i = 0; i < count; i++) {
      labels[i] = label ?? drawLabel(law, random);
      codes.set(drawCode(law, dim, labels[i], random), i * dim);
    }
    const samples = await this.decode(codes, { labels });
    return {
      samples, codes: description.dim ? codes : null, labels: description.conditional ? labels : null, nearest: null, losses: null,
      suspicious: null, verdict: "",
    };
  }

  async reach(codes) {
    const { law, least, description: { dim } } = this.head;
    return Uint8Array.from({ length: codes.length / dim }, (_, i) => logDensity(law, codes.subarray(i * dim, (i + 1) * dim)) >= least);
  }
}

/** Images that were made beforehand, on a grid of the plane: a code gets the nearest. */
class Atlas {
  constructor({ description: { dim, main, shape }, atlas: { box, side } }, { values }) {
    Object.assign(this, { dim, main, box, side, values, size: shape.reduce((a, b) => a * b, 1) });
    this.output = new Float32Array(this.size);
  }

  run(code, label) {
    const { side, size, values, output, main, box } = this;
    const flat = this.dim > 2
      ? main.axes.map((axis) => axis.reduce((sum, a, k) => sum + a * (code[k] - main.mean[k]), 0))
      : [code[0], code[1] ?? 0];
    const [column, row] = flat.map((z, k) => {
      const [low, high] = box[k];
      return Math.min(Math.max(Math.round(((z - low) / (high - low || 1)) * (side - 1)), 0), side - 1);
    });
    const first = ((label * side + row) * side + column) * size, factor = values instanceof Uint8Array ? 1 / 255 : 1;
    for (let i = 0; i < size; i++) output[i] = values[first + i] * factor;
    return output;
  }
}

/** The tiles of a picture that holds all training images, row by row, as samples. */
async function pixelsOf({ type, columns, tile, shape }, bytes) {
  const picture = await createImageBitmap(new Blob([bytes], { type })), { width, height } = picture;
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(picture, 0, 0);
  const { data } = pen.getImageData(0, 0, width, height), [count, channels, h, w] = shape;
  const values = new Uint8Array(count * channels * h * w);
  for (let i = 0, to = 0; i < count; i++) {
    const left = (i % columns) * tile[1], top = Math.floor(i / columns) * tile[0];
    for (let c = 0; c < channels; c++) {
      for (let y = 0; y < h; y++) for (let x = 0; x < w; x++) values[to++] = data[4 * ((top + y) * width + left + x) + c];
    }
  }
  return { shape, values };
}
