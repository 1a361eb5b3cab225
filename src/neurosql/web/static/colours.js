/**
 * Colours of points that also people with colour blindness can tell apart: Okabe and Ito's and two more for ten classes,
 * two shades of each beyond, and cividis for numbers.
 */

const CLASSES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f", "#6a3d9a", "#7a4a1e"];
const SHADES = [0, 0.45, -0.4];
const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116],
  [195, 179, 105], [225, 204, 85], [253, 231, 55],
];

/** What points can be coloured by: [value, text] for each thing that is known of them. */
export function colourings(description, points) {
  const found = [["none", "one colour"]];
  if (points.labels) found.unshift(["label", "label"]);
  if (points.losses) found.push(["loss", "loss of the reconstruction"]);
  if (points.components) found.push(["component", "component of the mixture"]);
  if (points.density) found.push(["density", "density of codes"]);
  for (let i = 0; i < Math.min(description.dim, 32); i++) found.push([`z${i + 1}`, `z${i + 1}`]);
  return found;
}

/**
 * Colours of all points and their legend.
 *
 * @returns {{colours: Uint32Array, groups: Int32Array | null, legend: object[], scale: object | null}} `groups` has the
 *   entry of the legend of each point, where the legend has entries.
 */
export function coloured(by, description, points, dark) {
  const colours = new Uint32Array(points.count).fill(packedColour(hex(dark ? "#56b4e9" : "#0072b2")));
  if (by === "label" && points.labels) return grouped(colours, points.labels, description.classes, dark);
  if (by === "component" && points.components) {
    const most = points.components.reduce((a, b) => Math.max(a, b), 0);
    return grouped(colours, points.components, Array.from({ length: most + 1 }, (_, i) => `component ${i + 1}`), dark);
  }
  const values = numbersOf(by, points);
  return values ? scaled(colours, values) : { colours, groups: null, legend: [], scale: null };
}

/** The numbers that points are coloured by, or null. */
function numbersOf(by, points) {
  if (by === "loss") return points.losses;
  if (by === "density") return points.density;
  const axis = /^z(\d+)$/.exec(by);
  if (!axis || axis[1] < 1 || axis[1] > points.dim) return null;
  return Float32Array.from({ length: points.count }, (_, i) => points.codes[i * points.dim + Number(axis[1]) - 1]);
}

function grouped(colours, groups, names, dark) {
  const table = names.map((_, i) => classColour(i, dark));
  const packed = table.map((colour) => packedColour(hex(colour)));
  const counts = new Array(names.length).fill(0);
  for (let i = 0; i < colours.length; i++) {
    colours[i] = packed[groups[i]];
    counts[groups[i]]++;
  }
  const legend = names.map((name, i) => ({ group: i, name, colour: table[i], count: counts[i] })).filter((e) => e.count);
  return { colours, groups, legend, scale: null };
}

/** The colour of a class by its number; a little lighter on dark paper. */
function classColour(number, dark) {
  const shade = SHADES[Math.floor(number / CLASSES.length) % SHADES.length] || (dark ? 0.2 : 0);
  const towards = shade < 0 ? 0 : 255;
  const mixed = hex(CLASSES[number % CLASSES.length]).map((v) => Math.round(v + (towards - v) * Math.abs(shade)));
  return `#${mixed.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
}

function scaled(colours, values) {
  const sorted = Float32Array.from(values).sort();
  // Ends that a few odd points do not decide.
  const low = sorted[Math.floor(0.01 * (sorted.length - 1))], high = sorted[Math.ceil(0.99 * (sorted.length - 1))];
  for (let i = 0; i < colours.length; i++) {
    colours[i] = packedColour(shadeOf(high > low ? (values[i] - low) / (high - low) : 0.5));
  }
  return { colours, groups: null, legend: [], scale: { low, high, stops: CIVIDIS.map((c) => `rgb(${c.join(" ")})`) } };
}

function shadeOf(share) {
  const place = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const i = Math.min(Math.floor(place), CIVIDIS.length - 2), rest = place - i;
  return CIVIDIS[i].map((v, k) => Math.round(v + (CIVIDIS[i + 1][k] - v) * rest));
}

function hex(colour) {
  return [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
}

/** A colour as a pixel of an ImageData seen as 32-bit words (little endian). */
export function packedColour([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** A CSS colour such as rgb(1, 2, 3) or #010203 as such a pixel. */
export function pixelOf(css) {
  if (css.startsWith("#")) return packedColour(hex(css));
  return packedColour((css.match(/[\d.]+/g) ?? ["0", "0", "0"]).slice(0, 3).map(Number));
}
