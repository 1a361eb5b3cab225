/** From codes of any dimension to a plane, and back: two of their numbers, or their two main directions. */
export class Projection {
  /**
   * @param {object} description
   * @param {"main" | [number, number]} axes The main directions, or two dimensions from 0.
   */
  constructor(description, axes) {
    const { dim, main } = description;
    this.dim = dim;
    this.origin = new Float32Array(dim);
    const unit = (i) => Float32Array.from({ length: dim }, (_, k) => (k === i ? 1 : 0));
    if (axes === "main" && main) {
      this.origin = Float32Array.from(main.mean);
      this.axes = main.axes.map((axis) => Float32Array.from(axis));
    } else {
      const [first, second] = axes === "main" ? [0, 1] : axes;
      this.axes = [unit(first), dim > 1 ? unit(second) : new Float32Array(dim)];
    }
  }

  /** Where codes (n * dim) lie in the plane: x and y in turn. Codes of one number are spread out, to be seen. */
  flat(codes) {
    const { dim, axes: [a, b], origin } = this, n = codes.length / dim, xy = new Float32Array(2 * n);
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < dim; k++) {
        const value = codes[i * dim + k] - origin[k];
        xy[2 * i] += value * a[k];
        xy[2 * i + 1] += value * b[k];
      }
      if (dim === 1 && n > 1) xy[2 * i + 1] = ((i * 0.6180339887) % 1) - 0.5;
    }
    return xy;
  }

  /** The code at a place of the plane: `from`, moved within the plane until it lies there. */
  code(u, v, from = this.origin) {
    const [x, y] = this.dim === 1 ? [this.flat(from)[0], 0] : this.flat(from), [a, b] = this.axes;
    return Float32Array.from(from, (value, k) => value + (u - x) * a[k] + (v - y) * b[k]);
  }
}
