/** The other half of `computation/packed.py`. */

import { Forward } from "./forward.js";

/** The model of a plan and of its constants, which are in a buffer. */
export function forwardOf(plan, buffer) {
  const constants = new Map();
  for (const [number, { shape, at, rows }] of Object.entries(plan.constants)) {
    const size = shape.reduce((a, b) => a * b, 1);
    let values = rows ? new Float32Array(size) : new Float32Array(buffer, at, size);
    if (rows) {
      const scales = new Float32Array(buffer, at, rows), whole = new Int16Array(buffer, at + 4 * rows, size), length = size / rows;
      for (let i = 0; i < size; i++) values[i] = scales[Math.floor(i / length)] * whole[i];
    }
    constants.set(Number(number), { shape, values });
  }
  return new Forward(plan, constants);
}
