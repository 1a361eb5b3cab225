/**
 * The map: points that one can pan, zoom, pinch, pick and lasso. It knows no run and no server.
 *
 * Three canvases lie on each other: land, points with thumbnails, and what follows the pointer.
 */

import { el } from "./elements.js";
import { Cells } from "./cells.js";
import { pixelOf } from "./colours.js";
import { Raster, stampOf } from "./raster.js";

const PICK = 14;
const STEP = 24;
const MOST_ZOOM = 4000;
const CLICK = 5;

/** A map in an element. `on` has functions for what people do: see the end of the constructor. */
export class Plane {
  constructor(root, on) {
    this.root = root;
    [this.land, this.base, this.above] = ["land", "points", "above"].map((className) => el("canvas", { className }));
    root.append(this.land, this.base, this.above);
    this.context = this.base.getContext("2d");
    this.pen = this.above.getContext("2d");
    this.raster = new Raster();
    this.view = { x: 0, y: 0, scale: 100 };
    this.setPoints(new Float32Array(0));
    this.mode = "move";
    this.images = "auto";
    this.selected = -1;
    this.cursor = null;
    this.path = [];
    this.line = [];
    this.pointers = new Map();
    this.shade = null;
    this.landed = null;
    this.on = {
      move: () => {}, // (x, y): the pointer or the cursor is here
      pick: () => {}, // (index or -1, x, y, shift)
      lasso: () => {}, // (indices)
      view: () => {}, // the view has changed
      thumbnail: () => null, // (index): {image, x, y, width, height} or null, if it is not there yet
      drawn: () => {}, // (milliseconds)
      ...on,
    };
    this.listen();
    new ResizeObserver(() => this.resize()).observe(root);
    this.resize();
  }

  setPoints(xy) {
    this.xy = xy;
    this.count = xy.length / 2;
    this.cells = new Cells(xy);
    this.colours = new Uint32Array(this.count);
    this.room = new Int32Array(this.count);
    this.hidden = null;
    this.marks = null;
    this.extent = Math.max(this.cells.box[2] - this.cells.box[0], this.cells.box[3] - this.cells.box[1]) || 1;
    this.redraw();
  }

  /** Where the map says that there is land: a mask of `columns` x `rows` in a box, rows from the top; or null. */
  setShade(shade) {
    this.shade = shade && { ...shade, canvas: shade.canvas ?? landOf(shade) };
    this.redraw();
  }

  resize() {
    const { clientWidth, clientHeight } = this.root;
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = Math.max(clientWidth, 1);
    this.height = Math.max(clientHeight, 1);
    for (const canvas of [this.land, this.base, this.above]) {
      canvas.width = Math.round(this.width * this.ratio);
      canvas.height = Math.round(this.height * this.ratio);
    }
    this.draw();
  }

  /** Show a box [left, bottom, right, top] as large as it can be. */
  fit([left, bottom, right, top] = this.cells.box) {
    const room = 0.92;
    const scale = room * Math.min(this.width / (right - left || 1), this.height / (top - bottom || 1));
    this.look({ x: (left + right) / 2, y: (bottom + top) / 2, scale });
  }

  look(view) {
    const home = Math.min(this.width, this.height) / this.extent;
    const scale = Math.min(Math.max(view.scale, 0.2 * home), MOST_ZOOM * home);
    this.view = { x: view.x, y: view.y, scale };
    this.redraw();
    this.on.view();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const [u, v] = this.place(x, y), before = this.view.scale;
    this.look({ ...this.view, scale: before * factor });
    const left = before / this.view.scale;
    this.look({ x: u + (this.view.x - u) * left, y: v + (this.view.y - v) * left, scale: this.view.scale });
  }

  /** The place of the plane under a pixel of the element. */
  place(x, y) {
    const { view } = this;
    return [view.x + (x - this.width / 2) / view.scale, view.y - (y - this.height / 2) / view.scale];
  }

  /** The pixel of the element that shows a place of the plane. */
  pixel(u, v) {
    const { view } = this;
    return [this.width / 2 + (u - view.x) * view.scale, this.height / 2 - (v - view.y) * view.scale];
  }

  /** The point nearest to a place, among those that are shown. */
  nearest(u, v, pixels = Infinity) {
    return this.cells.nearest(u, v, pixels / this.view.scale, (i) => !this.hidden?.[i]);
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.waiting = 0;
    const began = performance.now();
    const style = getComputedStyle(this.root);
    const ink = pixelOf(style.getPropertyValue("--ink").trim());
    const { context, ratio } = this;
    const corners = [...this.place(0, this.height), ...this.place(this.width, 0)];
    const { hidden, room } = this;
    let many = 0;
    this.cells.within(corners, (i) => {
      if (!hidden?.[i]) room[many++] = i;
    });
    const seen = room.subarray(0, many);
    const shown = this.pictures(seen);
    this.raster.begin(this.base.width, this.base.height);
    this.drawLand();
    const dot = stampOf(this.radius() * ratio), ring = stampOf((this.radius() + 1.75) * ratio);
    const { x, y, scale } = this.view;
    const [left, top] = [(this.width / 2 - x * scale) * ratio, (this.height / 2 + y * scale) * ratio], zoom = scale * ratio;
    const pictured = shown.length ? new Set(shown.map((s) => s.index)) : null;
    for (const marked of this.marks ? [1, 0] : [0]) {
      for (const i of seen) {
        const px = left + this.xy[2 * i] * zoom, py = top - this.xy[2 * i + 1] * zoom;
        if (marked) {
          if (this.marks[i]) this.raster.dot(px, py, ink, ring);
        } else if (!pictured?.has(i)) this.raster.dot(px, py, this.colours[i], dot);
      }
    }
    this.raster.end(context);
    this.drawPictures(shown);
    this.drawAbove();
    this.on.drawn(performance.now() - began);
  }

  /** The radius of a dot: a part of the distance between points. */
  radius() {
    const spacing = (this.extent * this.view.scale) / Math.sqrt(this.count || 1);
    return Math.min(Math.max(0.22 * spacing, 1.1), 5);
  }

  /** Where thumbnails are shown: at most one for each cell of a grid that stays in its place while one pans. */
  pictures(seen) {
    if (this.images === "dots" || !seen.length || !this.side) return [];
    const least = this.side;
    const spacing = Math.sqrt((this.width * this.height) / seen.length);
    if (this.images === "auto" && spacing < 0.75 * least) return [];
    const cell = 2 ** Math.ceil(Math.log2(least / this.view.scale));
    const taken = new Map();
    for (const i of seen) {
      const column = Math.floor(this.xy[2 * i] / cell), row = Math.floor(this.xy[2 * i + 1] / cell);
      const key = `${column},${row}`, before = taken.get(key);
      if (before === undefined || i < before) taken.set(key, i);
    }
    const room = cell * this.view.scale, shown = [];
    const size = Math.min(room * 0.94, 2 * least);
    for (const [key, index] of taken) {
      const [column, row] = key.split(",").map(Number);
      const low = this.pixel(column * cell, row * cell);
      const [px, py] = this.pixel(this.xy[2 * index], this.xy[2 * index + 1]);
      // Within its cell, so that thumbnails do not hide each other.
      const px0 = Math.min(Math.max(px, low[0] + size / 2), low[0] + room - size / 2);
      const py0 = Math.min(Math.max(py, low[1] - room + size / 2), low[1] - size / 2);
      const found = this.on.thumbnail(index);
      if (found) shown.push({ index, x: px0, y: py0, size, ...found });
    }
    return shown;
  }

  drawPictures(shown) {
    const { context, ratio } = this;
    for (const { index, x, y, size, image, from } of shown) {
      const factor = size / Math.max(from[2], from[3]);
      const [width, height] = [from[2] * factor * ratio, from[3] * factor * ratio];
      const [left, top] = [x * ratio - width / 2, y * ratio - height / 2];
      const colour = this.colours[index], edge = this.marks?.[index] ? 3 : 1.5;
      context.fillStyle = `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
      context.fillRect(left - edge * ratio, top - edge * ratio, width + 2 * edge * ratio, height + 2 * edge * ratio);
      context.imageSmoothingEnabled = factor < 1;
      context.drawImage(image, ...from, left, top, width, height);
    }
  }

  drawLand() {
    const context = this.land.getContext("2d"), { ratio } = this;
    context.clearRect(0, 0, this.land.width, this.land.height);
    if (!this.shade) return;
    const { canvas, box } = this.shade;
    const [left, top] = this.pixel(box[0], box[3]), [right, bottom] = this.pixel(box[2], box[1]);
    context.drawImage(canvas, left * ratio, top * ratio, (right - left) * ratio, (bottom - top) * ratio);
  }

  /** What follows the pointer: the chosen point, the cursor, the path and the lasso. */
  drawAbove() {
    const { pen, ratio } = this, style = getComputedStyle(this.root);
    const ink = style.getPropertyValue("--ink"), paper = style.getPropertyValue("--map");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    const stroke = (draw) => {
      for (const [colour, width] of [[paper, 4], [ink, 2]]) {
        [pen.strokeStyle, pen.lineWidth] = [colour, width];
        pen.beginPath();
        draw();
        pen.stroke();
      }
    };
    const along = (places) => places.forEach(([u, v], i) => pen[i ? "lineTo" : "moveTo"](...this.pixel(u, v)));
    if (this.path.length > 1) stroke(() => along(this.path));
    for (const [u, v] of this.path) {
      const [x, y] = this.pixel(u, v);
      stroke(() => pen.arc(x, y, 4, 0, 7));
    }
    if (this.line.length > 1) stroke(() => { along(this.line); pen.closePath(); });
    if (this.selected >= 0 && this.selected < this.count) {
      const [x, y] = this.pixel(this.xy[2 * this.selected], this.xy[2 * this.selected + 1]);
      stroke(() => pen.arc(x, y, this.radius() + 5, 0, 7));
    }
    if (this.landed) {
      const [x, y] = this.pixel(...this.landed);
      stroke(() => { pen.rect(x - 8, y - 8, 16, 16); });
    }
    if (this.cursor) {
      const [x, y] = this.pixel(...this.cursor);
      stroke(() => {
        for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
          pen.moveTo(x + 4 * dx, y + 4 * dy);
          pen.lineTo(x + 12 * dx, y + 12 * dy);
        }
      });
    }
  }

  /** Move the cursor to a place, and say so. */
  point(u, v) {
    this.cursor = [u, v];
    this.drawAbove();
    this.on.move(u, v);
  }

  listen() {
    const { root } = this;
    root.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = this.at(event);
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : event.ctrlKey ? 0.01 : 0.0015)), x, y);
    }, { passive: false });
    root.addEventListener("pointerdown", (event) => this.down(event));
    root.addEventListener("pointermove", (event) => this.moved(event));
    for (const name of ["pointerup", "pointercancel"]) root.addEventListener(name, (event) => this.up(event));
    root.addEventListener("dblclick", (event) => this.zoom(2, ...this.at(event)));
    root.addEventListener("keydown", (event) => this.key(event));
  }

  at(event) {
    const box = this.root.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    if (event.button > 0) return;
    this.root.focus({ preventScroll: true, focusVisible: false });
    this.root.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.at(event));
    this.dragged = this.pointers.size > 1 ? Infinity : 0;
    this.line = this.mode === "lasso" && this.pointers.size === 1 ? [this.place(...this.at(event))] : [];
  }

  moved(event) {
    const [x, y] = this.at(event), before = this.pointers.get(event.pointerId);
    if (!before) {
      this.point(...this.place(x, y));
      return;
    }
    if (this.pointers.size === 2) this.pinch(event.pointerId, x, y);
    else if (this.mode === "lasso") {
      this.line.push(this.place(x, y));
      this.drawAbove();
    } else if (this.dragged > CLICK || Math.hypot(x - before[0], y - before[1]) + this.dragged > CLICK) {
      const { view } = this;
      this.look({ ...view, x: view.x - (x - before[0]) / view.scale, y: view.y + (y - before[1]) / view.scale });
      if (event.pointerType !== "mouse") this.point(...this.place(this.width / 2, this.height / 2));
    }
    this.dragged += Math.hypot(x - before[0], y - before[1]);
    this.pointers.set(event.pointerId, [x, y]);
  }

  pinch(moving, x, y) {
    const [other] = [...this.pointers].filter(([id]) => id !== moving).map(([, place]) => place);
    const before = this.pointers.get(moving);
    const factor = Math.hypot(x - other[0], y - other[1]) / (Math.hypot(before[0] - other[0], before[1] - other[1]) || 1);
    this.zoom(factor || 1, other[0], other[1]);
  }

  up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    const [x, y] = this.at(event), [u, v] = this.place(x, y);
    if (event.type === "pointercancel") this.line = [];
    else if (this.mode === "lasso" && this.line.length > 2) this.finishLasso();
    else if (this.dragged <= CLICK) {
      this.point(u, v);
      this.on.pick(this.nearest(u, v, PICK), u, v, event.shiftKey);
    }
    this.line = [];
    this.drawAbove();
  }

  finishLasso() {
    const found = [];
    this.cells.within(boxAround(this.line), (i) => {
      if (!this.hidden?.[i] && encloses(this.line, this.xy[2 * i], this.xy[2 * i + 1])) found.push(i);
    });
    this.on.lasso(found.sort((a, b) => a - b));
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [u, v] = this.cursor ?? [this.view.x, this.view.y];
    if (event.key in moves) {
      const step = STEP / this.view.scale / (event.shiftKey ? 6 : 1), [dx, dy] = moves[event.key];
      this.point(u + dx * step, v + dy * step);
      const [x, y] = this.pixel(...this.cursor);
      if (x < 0 || y < 0 || x > this.width || y > this.height) this.look({ ...this.view, x: u, y: v });
    } else if (event.key === "+" || event.key === "=") this.zoom(1.5, ...this.pixel(u, v));
    else if (event.key === "-") this.zoom(1 / 1.5, ...this.pixel(u, v));
    else if (event.key === "0" || event.key === "Home") this.fit();
    else if (event.key === "Enter" || event.key === " ") this.on.pick(this.nearest(u, v), u, v, event.shiftKey);
    else return;
    event.preventDefault();
  }

  /** What is seen, as one canvas. */
  picture() {
    const canvas = el("canvas", { width: this.base.width, height: this.base.height });
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(this.root).getPropertyValue("--map");
    context.fillRect(0, 0, canvas.width, canvas.height);
    for (const layer of [this.land, this.base, this.above]) context.drawImage(layer, 0, 0);
    return canvas;
  }
}

function boxAround(places) {
  const [u, v] = [places.map((p) => p[0]), places.map((p) => p[1])];
  return [Math.min(...u), Math.min(...v), Math.max(...u), Math.max(...v)];
}

function encloses(line, u, v) {
  let inside = false;
  for (let i = 0, j = line.length - 1; i < line.length; j = i++) {
    const [[a, b], [c, d]] = [line[i], line[j]];
    if ((b > v) !== (d > v) && u < ((c - a) * (v - b)) / (d - b) + a) inside = !inside;
  }
  return inside;
}

function landOf({ columns, rows, mask, colour }) {
  const canvas = el("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows), words = new Uint32Array(image.data.buffer);
  for (let i = 0; i < words.length; i++) words[i] = mask[i] ? pixelOf(colour) : 0;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
