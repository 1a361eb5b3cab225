/** The laws that codes of new samples follow, as `app/portable/laws.py` describes them. */

/** Random numbers in [0, 1) by a seed: mulberry32. */
export function randomOf(seed) {
  let state = (seed ^ 0x9e3779b9) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

function normals(dim, random) {
  return Array.from({ length: dim }, () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()));
}

function chosen(weights, random) {
  let left = random() * weights.reduce((a, b) => a + b, 0);
  const found = weights.findIndex((weight) => (left -= weight) < 0);
  return found < 0 ? weights.length - 1 : found;
}

/** The mixture of a class; one for all, if there is just one. */
function groupOf(law, label) {
  return law.groups[law.groups.length > 1 ? label : 0];
}

/** One code of a law; null if the law is the user's own. */
export function drawCode(law, dim, label, random) {
  if (law.name === "normal") return normals(dim, random).map((z) => law.scale * z);
  if (law.name === "cube") return Array.from({ length: dim }, () => law.low + (law.high - law.low) * random());
  if (law.name === "ball" || law.name === "spherical") {
    const noise = normals(dim, random), length = Math.hypot(...noise) || 1;
    const radius = law.radius * random() ** (law.name === "ball" ? 1 / dim : 1);
    return noise.map((z) => (radius * z) / length);
  }
  if (law.name !== "mixture") return null;
  const { weights, means, factors } = groupOf(law, label), k = chosen(weights, random), noise = normals(dim, random);
  return means[k].map((mean, i) => mean + factors[k][i].reduce((sum, factor, j) => sum + factor * noise[j], 0));
}

/** A class, drawn with the shares of the training set. */
export function drawLabel(law, random) {
  return law.shares ? chosen(law.shares, random) : 0;
}

/** The logarithm of the density of a mixture without classes at a code. */
export function logDensity(law, code) {
  const { weights, means, factors } = law.groups[0], dim = code.length;
  const parts = weights.map((weight, k) => {
    // Forward substitution with the lower triangular factor.
    const solved = [];
    let sum = 0, volume = 0;
    for (let i = 0; i < dim; i++) {
      let rest = code[i] - means[k][i];
      for (let j = 0; j < i; j++) rest -= factors[k][i][j] * solved[j];
      solved.push(rest / factors[k][i][i]);
      sum += solved[i] ** 2;
      volume += Math.log(factors[k][i][i]);
    }
    return Math.log(weight) - 0.5 * sum - volume;
  });
  const most = Math.max(...parts);
  return most + Math.log(parts.reduce((sum, part) => sum + Math.exp(part - most), 0)) - 0.5 * dim * Math.log(2 * Math.PI);
}
