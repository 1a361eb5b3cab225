/** Points of the plane in square cells, so that those in view or near a place are found without looking at all. */
export class Cells {
  /** @param {Float32Array} xy x and y of each point, in turn. */
  constructor(xy) {
    this.xy = xy;
    this.count = xy.length / 2;
    this.box = boxOf(xy);
    const [left, bottom, right, top] = this.box;
    const side = Math.max(right - left, top - bottom) || 1;
    this.across = Math.max(1, Math.round(Math.sqrt(this.count / 2)));
    this.cell = side / this.across || 1;
    const place = new Int32Array(this.count);
    this.start = new Int32Array(this.across * this.across + 1);
    for (let i = 0; i < this.count; i++) {
      place[i] = this.row(xy[2 * i + 1]) * this.across + this.column(xy[2 * i]);
      this.start[place[i] + 1]++;
    }
    for (let c = 0; c < this.start.length - 1; c++) this.start[c + 1] += this.start[c];
    this.order = new Int32Array(this.count);
    const next = this.start.slice();
    for (let i = 0; i < this.count; i++) this.order[next[place[i]]++] = i;
  }

  column(x) {
    return Math.min(Math.max(Math.floor((x - this.box[0]) / this.cell), 0), this.across - 1);
  }

  row(y) {
    return Math.min(Math.max(Math.floor((y - this.box[1]) / this.cell), 0), this.across - 1);
  }

  /** Call `visit(i)` for all points in cells that meet a box, perhaps also for some just outside it. */
  within([left, bottom, right, top], visit) {
    if (!this.count) return;
    const [first, last] = [this.column(left), this.column(right)];
    for (let row = this.row(bottom); row <= this.row(top); row++) {
      const end = this.start[row * this.across + last + 1];
      for (let k = this.start[row * this.across + first]; k < end; k++) visit(this.order[k]);
    }
  }

  /** The point nearest to a place, of those that `may` accepts, at most so far away; -1 if there is none. */
  nearest(x, y, most = Infinity, may = () => true) {
    let best = -1, least = most * most;
    const look = (reach) => this.within([x - reach, y - reach, x + reach, y + reach], (i) => {
      const far = (this.xy[2 * i] - x) ** 2 + (this.xy[2 * i + 1] - y) ** 2;
      if (far <= least && may(i)) [best, least] = [i, far];
    });
    const [left, bottom, right, top] = this.box;
    const outside = Math.max(left - x, x - right, bottom - y, y - top, 0);
    const all = outside + 2 * this.cell * this.across;
    for (let reach = Math.min(outside + this.cell, most); ; reach *= 2) {
      look(reach);
      // Nothing outside the box that was searched is nearer than its border.
      if ((best >= 0 && Math.sqrt(least) <= reach) || reach >= Math.min(most, all)) return best;
    }
  }
}

/** The smallest box [left, bottom, right, top] around points. */
export function boxOf(xy) {
  let [left, bottom, right, top] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i < xy.length; i += 2) {
    left = Math.min(left, xy[i]);
    right = Math.max(right, xy[i]);
    bottom = Math.min(bottom, xy[i + 1]);
    top = Math.max(top, xy[i + 1]);
  }
  return left <= right ? [left, bottom, right, top] : [-1, -1, 1, 1];
}
