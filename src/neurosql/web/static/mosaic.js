/** A map without training samples: what the model makes, at places all over it. */

import { imageOf } from "./drawing.js";
import { byId, el } from "./elements.js";

/** Tiles along each side, and pixels that they may have together along one side. */
const TILES = 14;
const MOST = 2048;

/** Decode row after row; `show` is called after each, with a picture and its box in the plane. */
export async function mosaic(page, show) {
  const { description, source, projection } = page, asked = (mosaic.asked = {});
  const [height, width] = description.shape.slice(-2), tiles = Math.max(2, Math.min(TILES, Math.floor(MOST / Math.max(height, width))));
  const [[left, right], [bottom, top]] = [description.range[0], description.range[1] ?? [-1, 1]];
  const [w, h] = [(right - left) / tiles, (top - bottom) / tiles], box = [left, bottom, right, top];
  const canvas = el("canvas", { width: tiles * width, height: tiles * height }), pen = canvas.getContext("2d");
  byId("empty").hidden = true;
  for (let row = 0; row < tiles; row++) {
    const places = Array.from({ length: tiles }, (_, column) => projection.code(left + (column + 0.5) * w, top - (row + 0.5) * h));
    const codes = Float32Array.from(places.flatMap((code) => [...code]));
    const there = page.can.reach ? await source.reach(codes) : null;
    const columns = places.map((_, column) => column).filter((column) => there?.[column] ?? true);
    if (!columns.length) continue;
    const labels = description.conditional ? new Int32Array(columns.length).fill(page.classAt(-1)) : null;
    const wanted = Float32Array.from(columns.flatMap((column) => [...places[column]]));
    const samples = await source.decode(wanted, { labels });
    if (asked !== mosaic.asked || source !== page.source || projection !== page.projection) return;
    columns.forEach((column, i) => pen.putImageData(imageOf(samples, i), column * width, row * height));
    show({ canvas, box });
  }
}
