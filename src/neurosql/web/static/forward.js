/**
 * A recorded computation, followed in plain JavaScript: what `computation/packed.py` writes, for one code at a time.
 *
 * Every step becomes a function when the page opens, with arrays for its result and tables of places, so that running
 * them allocates nothing. Products of matrices, and with them all convolutions, are one loop; see `product`.
 */

/** What a model makes of codes. */
export class Forward {
  /**
   * @param {{codes: number, labels: number | null, output: number, steps: object[], shapes: Object<string, number[]>}} computation
   * @param {Map<number, {shape: number[], values: Float32Array}>} constants
   */
  constructor(computation, constants) {
    this.values = new Map(constants);
    const { codes, labels, shapes, steps } = computation;
    this.codes = this.make(codes, shapes[codes]);
    this.labels = labels === null ? null : this.make(labels, shapes[labels]);
    const fixed = new Set(constants.keys());
    this.steps = [];
    for (const step of steps) {
      const inputs = step.inputs.map((number) => this.values.get(number));
      const how = STEPS[step.op];
      if (!how) throw new Error(`This page does not know the step ${step.op}.`);
      const run = how(inputs, step, (values) => this.make(step.output, shapes[step.output], values));
      if (!run) continue;
      if (step.inputs.every((number) => fixed.has(number))) {
        run();
        fixed.add(step.output);
      } else this.steps.push(run);
    }
    this.output = this.values.get(computation.output);
  }

  make(number, shape, values = new Float32Array(count(shape))) {
    const made = { shape, values };
    this.values.set(number, made);
    return made;
  }

  /** The sample of a code, of the class `label` if the model is conditional. The array is used again by the next call. */
  run(code, label = 0) {
    this.codes.values.set(code);
    if (this.labels) this.labels.values[0] = label;
    for (const step of this.steps) step();
    return this.output.values;
  }
}

function count(shape) {
  return shape.reduce((a, b) => a * b, 1);
}

/** Places that follow each other along the axes of a shape: one number for each element. */
function places(shape, strides, start = 0) {
  let found = Int32Array.of(start);
  shape.forEach((size, axis) => {
    const next = new Int32Array(found.length * size);
    for (let i = 0; i < found.length; i++) for (let j = 0; j < size; j++) next[i * size + j] = found[i] + j * strides[axis];
    found = next;
  });
  return found;
}

function stridesOf(shape) {
  const strides = new Array(shape.length);
  for (let axis = shape.length - 1, step = 1; axis >= 0; step *= shape[axis], axis--) strides[axis] = step;
  return strides;
}

/** The strides by which a shape is read as a larger one: 0 along axes that are repeated. */
function broadcast(from, to) {
  const lacking = to.length - from.length, strides = stridesOf(from);
  return to.map((_, axis) => (axis < lacking || from[axis - lacking] === 1 ? 0 : strides[axis - lacking]));
}

/** A step that copies elements from a table of places. */
function gathered(x, table, make) {
  const from = x.values, to = make().values;
  return () => { for (let i = 0; i < to.length; i++) to[i] = from[table[i]]; };
}

const TOGETHER = 32;

/**
 * to[rows[m] + columns[p]] += sum over k of weights[m * K + k] * from[inner[k] + outer[p]].
 *
 * Columns are copied a few at a time, four beside each other, and 4 x 4 results are summed up at once: that is what
 * makes it fast without vector instructions.
 */
function product(weights, M, K, from, inner, outer, to, rows, columns) {
  const N = outer.length, block = new Float32Array(K * TOGETHER);
  return () => {
    for (let first = 0; first < N; first += TOGETHER) {
      const taken = Math.min(TOGETHER, N - first), panels = (taken + 3) >> 2;
      for (let panel = 0; panel < panels; panel++) {
        const p = first + 4 * panel, last = N - 1, at = 4 * K * panel;
        const o0 = outer[p], o1 = outer[Math.min(p + 1, last)], o2 = outer[Math.min(p + 2, last)], o3 = outer[Math.min(p + 3, last)];
        for (let k = 0, b = at; k < K; k++, b += 4) {
          const i = inner[k];
          block[b] = from[i + o0];
          block[b + 1] = from[i + o1];
          block[b + 2] = from[i + o2];
          block[b + 3] = from[i + o3];
        }
      }
      let m = 0;
      for (; m + 3 < M; m += 4) {
        const w0 = m * K, w1 = w0 + K, w2 = w1 + K, w3 = w2 + K;
        for (let panel = 0; panel < panels; panel++) {
          let a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
          let c0 = 0, c1 = 0, c2 = 0, c3 = 0, d0 = 0, d1 = 0, d2 = 0, d3 = 0;
          for (let k = 0, b = 4 * K * panel; k < K; k++, b += 4) {
            const x0 = block[b], x1 = block[b + 1], x2 = block[b + 2], x3 = block[b + 3];
            const a = weights[w0 + k], e = weights[w1 + k], c = weights[w2 + k], d = weights[w3 + k];
            a0 += a * x0; a1 += a * x1; a2 += a * x2; a3 += a * x3;
            b0 += e * x0; b1 += e * x1; b2 += e * x2; b3 += e * x3;
            c0 += c * x0; c1 += c * x1; c2 += c * x2; c3 += c * x3;
            d0 += d * x0; d1 += d * x1; d2 += d * x2; d3 += d * x3;
          }
          const p = first + 4 * panel, left = N - p, r0 = rows[m], r1 = rows[m + 1], r2 = rows[m + 2], r3 = rows[m + 3];
          let q = columns[p];
          to[r0 + q] += a0; to[r1 + q] += b0; to[r2 + q] += c0; to[r3 + q] += d0;
          if (left > 1) { q = columns[p + 1]; to[r0 + q] += a1; to[r1 + q] += b1; to[r2 + q] += c1; to[r3 + q] += d1; }
          if (left > 2) { q = columns[p + 2]; to[r0 + q] += a2; to[r1 + q] += b2; to[r2 + q] += c2; to[r3 + q] += d2; }
          if (left > 3) { q = columns[p + 3]; to[r0 + q] += a3; to[r1 + q] += b3; to[r2 + q] += c3; to[r3 + q] += d3; }
        }
      }
      for (; m < M; m++) {
        for (let panel = 0; panel < panels; panel++) {
          let a0 = 0, a1 = 0, a2 = 0, a3 = 0;
          for (let k = 0, b = 4 * K * panel, w = m * K; k < K; k++, b += 4) {
            const a = weights[w + k];
            a0 += a * block[b]; a1 += a * block[b + 1]; a2 += a * block[b + 2]; a3 += a * block[b + 3];
          }
          const p = first + 4 * panel, left = N - p, r = rows[m];
          to[r + columns[p]] += a0;
          if (left > 1) to[r + columns[p + 1]] += a1;
          if (left > 2) to[r + columns[p + 2]] += a2;
          if (left > 3) to[r + columns[p + 3]] += a3;
        }
      }
    }
  };
}

/** One value per row, spread over the elements of the row. */
function spread(to, bias, size) {
  if (!bias) to.fill(0);
  else for (let first = 0, row = 0; first < to.length; first += size, row++) to.fill(bias[row % bias.length], first, first + size);
}

function linear([x, weight, bias], step, make) {
  const [M, K] = weight.shape, N = x.shape[0], to = make().values;
  const [w, from, b] = [weight.values, x.values, bias?.values];
  if (N > 1) {
    const multiply = product(w, M, K, from, places([K], [1]), places([N], [K]), to, places([M], [1]), places([N], [M]));
    return () => { spread(to, b, 1); multiply(); };
  }
  return () => {
    for (let m = 0, at = 0; m < M; m++) {
      let sum = b ? b[m] : 0, other = 0;
      const end = at + K;
      let k = 0;
      for (; at + 1 < end; at += 2, k += 2) { sum += w[at] * from[k]; other += w[at + 1] * from[k + 1]; }
      if (at < end) { sum += w[at] * from[k]; at++; }
      to[m] = sum + other;
    }
  };
}

function conv([x, weight, bias], { stride, padding, dilation, groups }, make) {
  const [, C, H, W] = x.shape, [M, c, h, w] = weight.shape, made = make(), [, , rows, columns] = made.shape;
  const [PH, PW] = [H + 2 * padding[0], W + 2 * padding[1]], padded = new Float32Array(C * PH * PW), to = made.values;
  const table = places([C, H, W], [PH * PW, PW, 1], padding[0] * PW + padding[1]), K = c * h * w, m = M / groups;
  const outer = places([rows, columns], [stride[0] * PW, stride[1]]), area = rows * columns, there = places([area], [1]);
  const parts = Array.from({ length: groups }, (_, group) => product(
    weight.values.subarray(group * m * K, (group + 1) * m * K), m, K, padded,
    places([c, h, w], [PH * PW, dilation[0] * PW, dilation[1]], group * c * PH * PW), outer, to,
    places([m], [area], group * m * area), there,
  ));
  return () => {
    const from = x.values;
    for (let i = 0; i < table.length; i++) padded[table[i]] = from[i];
    spread(to, bias?.values, area);
    for (const part of parts) part();
  };
}

function deconv([x, weight, bias], { stride, padding, dilation, groups }, make) {
  const [, C, H, W] = x.shape, [, m, h, w] = weight.shape, made = make(), [, M, rows, columns] = made.shape;
  const c = C / groups, size = m * h * w, area = H * W, to = made.values;
  // Room for all that the kernel reaches, and for output padding; the frame is cut off in the end.
  const PH = Math.max((H - 1) * stride[0] + dilation[0] * (h - 1) + 1, rows + padding[0]);
  const PW = Math.max((W - 1) * stride[1] + dilation[1] * (w - 1) + 1, columns + padding[1]);
  const padded = new Float32Array(M * PH * PW), table = places([M, rows, columns], [PH * PW, PW, 1], padding[0] * PW + padding[1]);
  const parts = Array.from({ length: groups }, (_, group) => {
    const turned = new Float32Array(size * c);
    for (let k = 0; k < c; k++) for (let i = 0; i < size; i++) turned[i * c + k] = weight.values[(group * c + k) * size + i];
    return product(
      turned, size, c, x.values, places([c], [area], group * c * area), places([area], [1]), padded,
      places([m, h, w], [PH * PW, dilation[0] * PW, dilation[1]], group * m * PH * PW),
      places([H, W], [stride[0] * PW, stride[1]]),
    );
  });
  return () => {
    padded.fill(0);
    for (const part of parts) part();
    spread(to, bias?.values, rows * columns);
    for (let i = 0; i < to.length; i++) to[i] += padded[table[i]];
  };
}

function affine([x, scale, shift], step, make) {
  const from = x.values, to = make().values, size = count(x.shape.slice(2)), [s, t] = [scale.values, shift.values];
  return () => {
    for (let c = 0, i = 0; c < s.length; c++) for (let end = i + size; i < end; i++) to[i] = s[c] * from[i] + t[c];
  };
}

/** Every run of `size` elements gets mean 0 and variance 1. */
function normalise(from, to, size, eps) {
  for (let first = 0; first < from.length; first += size) {
    let mean = 0, variance = 0;
    for (let i = first; i < first + size; i++) mean += from[i];
    mean /= size;
    for (let i = first; i < first + size; i++) variance += (from[i] - mean) ** 2;
    const factor = 1 / Math.sqrt(variance / size + eps);
    for (let i = first; i < first + size; i++) to[i] = (from[i] - mean) * factor;
  }
}

function layerNorm([x, weight, bias], { eps }, make) {
  const to = make().values, w = weight.values, b = bias.values, size = w.length;
  return () => {
    normalise(x.values, to, size, eps);
    for (let i = 0; i < to.length; i++) to[i] = to[i] * w[i % size] + b[i % size];
  };
}

function groupNorm([x], { groups, eps }, make) {
  const to = make().values, size = to.length / groups;
  return () => normalise(x.values, to, size, eps);
}

/** softmax(scale q k') v, for each head. */
function attention([q, k, v], { scale }, make) {
  const [, heads, queries, d] = q.shape, keys = k.shape[2], width = v.shape[3], to = make().values;
  const weights = new Float32Array(keys), [Q, K, V] = [q.values, k.values, v.values];
  return () => {
    for (let head = 0; head < heads; head++) {
      for (let i = 0; i < queries; i++) {
        const at = (head * queries + i) * d, out = (head * queries + i) * width;
        let most = -Infinity, sum = 0;
        for (let j = 0; j < keys; j++) {
          let dot = 0;
          for (let e = 0, b = (head * keys + j) * d; e < d; e++) dot += Q[at + e] * K[b + e];
          weights[j] = dot * scale;
          if (weights[j] > most) most = weights[j];
        }
        for (let j = 0; j < keys; j++) sum += weights[j] = Math.exp(weights[j] - most);
        to.fill(0, out, out + width);
        for (let j = 0; j < keys; j++) {
          const share = weights[j] / sum;
          for (let e = 0, b = (head * keys + j) * width; e < width; e++) to[out + e] += share * V[b + e];
        }
      }
    }
  };
}

function each(f) {
  return ([x], step, make) => {
    const from = x.values, to = make().values;
    return () => { for (let i = 0; i < to.length; i++) to[i] = f(from[i]); };
  };
}

function both(f) {
  return ([x, y], step, make) => {
    const made = make(), to = made.values, [a, b] = [x.values, y.values];
    if (a.length === to.length && b.length === to.length) return () => { for (let i = 0; i < to.length; i++) to[i] = f(a[i], b[i]); };
    if (a.length === to.length && b.length === 1) return () => { for (let i = 0; i < to.length; i++) to[i] = f(a[i], b[0]); };
    const [s, t] = [x, y].map((part) => places(made.shape, broadcast(part.shape, made.shape)));
    return () => { for (let i = 0; i < to.length; i++) to[i] = f(a[s[i]], b[t[i]]); };
  };
}

/** The error function, to 1.5e-7: Abramowitz and Stegun, 7.1.26. */
function erf(x) {
  const a = Math.abs(x), t = 1 / (1 + 0.3275911 * a);
  const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - sum * Math.exp(-a * a));
}

function concat(parts, { axis }, make) {
  const made = make(), to = made.values, inner = count(made.shape.slice(axis + 1)), outer = count(made.shape.slice(0, axis));
  return () => {
    let place = 0;
    for (let i = 0; i < outer; i++) {
      for (const { shape, values } of parts) {
        const size = shape[axis] * inner;
        for (let j = i * size; j < (i + 1) * size; j++) to[place++] = values[j];
      }
    }
  };
}

function slice([x], { axis, start }, make) {
  const strides = stridesOf(x.shape), made = make();
  return gathered(x, places(made.shape, strides, start * strides[axis]), () => made);
}

function permute([x], { axes }, make) {
  const strides = stridesOf(x.shape), made = make();
  return gathered(x, places(made.shape, axes.map((axis) => strides[axis])), () => made);
}

function expand([x], step, make) {
  const made = make();
  return gathered(x, places(made.shape, broadcast(x.shape, made.shape)), () => made);
}

function repeat([x], { rows, columns }, make) {
  const [n, c, h, w] = x.shape, strides = [c * h * w, h * w, w, 0, 1, 0];
  return gathered(x, places([n, c, h, rows, w, columns], strides), make);
}

function lookup([table, index], step, make) {
  const to = make().values, width = to.length;
  return () => { to.set(table.values.subarray(index.values[0] * width, (index.values[0] + 1) * width)); };
}

/** Halves go to the even number, as they do in Python. */
function even(x) {
  const near = Math.round(x);
  return near - x === 0.5 && near % 2 ? near - 1 : near;
}

const STEPS = {
  linear, conv, deconv, affine, attention, concat, slice, permute, expand, repeat, lookup,
  layer_norm: layerNorm,
  group_norm: groupNorm,
  reshape: ([x], step, make) => { make(x.values); },
  whole: both((x, where) => (where ? even(x) : x)),
  relu: each((x) => (x > 0 ? x : 0)),
  sigmoid: each((x) => 1 / (1 + Math.exp(-x))),
  silu: each((x) => x / (1 + Math.exp(-x))),
  gelu: each((x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2))),
  tanh: each(Math.tanh),
  sin: each(Math.sin),
  cos: each(Math.cos),
  exp: each(Math.exp),
  add: both((x, y) => x + y),
  sub: both((x, y) => x - y),
  mul: both((x, y) => x * y),
  div: both((x, y) => x / y),
  minimum: both(Math.min),
  maximum: both(Math.max),
};
