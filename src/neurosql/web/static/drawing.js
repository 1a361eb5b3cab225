/** Samples on canvases: pictures, slices of volumes, curves of signals, and cards of table rows. */

import { el, figure } from "./elements.js";

/** The slice of volumes that is shown, from 0 to 1; one for the whole page. */
export const slice = { at: 0.5 };

/** Sample number `i` as an ImageData: a picture, or a slice of a volume. */
export function imageOf(samples, i) {
  const [channels, ...spatial] = samples.shape;
  const [height, width] = spatial.slice(-2);
  const depth = spatial.length === 3 ? spatial[0] : 1;
  const plane = height * width, each = channels * depth * plane;
  const first = i * each + Math.min(depth - 1, Math.floor(slice.at * depth)) * plane;
  const { values } = samples, factor = values instanceof Float32Array ? 255 : 1;
  const image = new ImageData(width, height), { data } = image;
  const step = channels >= 3 ? depth * plane : 0;
  for (let k = 0; k < plane; k++) {
    for (let c = 0; c < 3; c++) data[4 * k + c] = values[first + c * step + k] * factor;
    data[4 * k + 3] = 255;
  }
  return image;
}

/** Draw sample number `i` on a canvas, which takes the size of the sample if that is a picture. */
export function drawSample(canvas, samples, i, columns = []) {
  const { shape } = samples;
  if (shape.length >= 3) {
    const image = imageOf(samples, i);
    if (canvas.width !== image.width || canvas.height !== image.height) {
      [canvas.width, canvas.height] = [image.width, image.height];
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  } else if (shape.length === 2) drawCurve(canvas, samples, i);
  else drawBars(canvas, samples, i, columns);
}

function drawCurve(canvas, { shape: [channels, length], values }, i) {
  [canvas.width, canvas.height] = [256, 128];
  const pen = canvas.getContext("2d"), factor = values instanceof Float32Array ? 1 : 1 / 255;
  pen.clearRect(0, 0, 256, 128);
  pen.strokeStyle = getComputedStyle(canvas).color;
  for (let c = 0; c < channels; c++) {
    pen.beginPath();
    for (let k = 0; k < length; k++) {
      const value = values[(i * channels + c) * length + k] * factor;
      pen[k ? "lineTo" : "moveTo"]((256 * (k + 0.5)) / length, 124 - 120 * value);
    }
    pen.stroke();
  }
}

function drawBars(canvas, { shape: [length], values }, i, columns) {
  const shown = Math.min(length, 40), row = 14;
  [canvas.width, canvas.height] = [256, shown * row + 4];
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = getComputedStyle(canvas).color;
  pen.font = "11px system-ui, sans-serif";
  for (let k = 0; k < shown; k++) {
    pen.fillText(String(columns[k] ?? `x${k}`).slice(0, 24), 4, row * k + 12);
    pen.fillText(figure(values[i * length + k]), 160, row * k + 12);
  }
}

/** A canvas that shows sample number `i`, with a description for those who can't see it. */
export function pictured(samples, i, words, columns) {
  const canvas = el("canvas", { className: "sample", role: "img", "aria-label": words });
  drawSample(canvas, samples, i, columns);
  return canvas;
}

/** Some of the samples, as samples. */
export function some(samples, from, count) {
  const each = samples.shape.reduce((a, b) => a * b, 1);
  return { ...samples, count, values: samples.values.subarray(from * each, (from + count) * each) };
}

/** Play a signal as a sound of two seconds at most. */
export function play(samples, i) {
  const [, length] = samples.shape, factor = samples.values instanceof Float32Array ? 1 : 1 / 255;
  const audio = new AudioContext(), buffer = audio.createBuffer(1, length, Math.max(8000, Math.min(length / 2, 48000)));
  const values = buffer.getChannelData(0);
  for (let k = 0; k < length; k++) values[k] = 2 * samples.values[i * samples.shape[0] * length + k] * factor - 1;
  const node = audio.createBufferSource();
  node.buffer = buffer;
  node.connect(audio.destination);
  node.onended = () => audio.close();
  node.start();
}

/** Pictures side by side on one canvas, enlarged, as a file to download. */
export function contactSheet(samples, columns) {
  const first = imageOf(samples, 0), factor = Math.max(1, Math.round(96 / first.width)), gap = 4;
  const rows = Math.ceil(samples.count / columns);
  const width = columns * (first.width * factor + gap) + gap, height = rows * (first.height * factor + gap) + gap;
  const canvas = el("canvas", { width, height }), pen = canvas.getContext("2d");
  pen.fillStyle = "white";
  pen.fillRect(0, 0, width, height);
  pen.imageSmoothingEnabled = false;
  const tile = el("canvas");
  for (let i = 0; i < samples.count; i++) {
    drawSample(tile, samples, i);
    const [x, y] = [gap + (i % columns) * (tile.width * factor + gap), gap + Math.floor(i / columns) * (tile.height * factor + gap)];
    pen.drawImage(tile, x, y, tile.width * factor, tile.height * factor);
  }
  return canvas;
}
