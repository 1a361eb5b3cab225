/**
 * Where the page gets a run from: one object, a *source*, and nothing else.
 *
 * The page knows no server. Everything that it shows comes from the methods below, so that the same page works over HTTP
 * (remote.js) and in a single file that holds the run. A source says in `capabilities` what it can do; the page leaves
 * out the controls for all else, and never calls what a source does not have.
 *
 * Every method may be slow and returns a promise. One that fails rejects with an Error whose message is a sentence for
 * the user. Indices count the training samples of the run from 0, in the order of `points`.
 *
 * All files of this folder keep to one form, so that they can be joined into one script without a parser: imports stand
 * at the top, one a line, `import { a, b } from "./file.js";`, and exports are declarations, `export function`,
 * `export class` or `export const`.
 */

/**
 * Samples of the run's kind, drawn or decoded.
 *
 * @typedef {object} Samples
 * @property {number} count
 * @property {number[]} shape Of one sample, channels first: [c, h, w], [c, length], [c, depth, h, w] or [p].
 * @property {Uint8Array | Uint8ClampedArray | Float32Array} values count * product(shape) numbers. Pictures, signals and
 *   volumes: bytes from 0 to 255, or floats from 0 to 1. Vectors: floats in the units of the user's table.
 */

/**
 * What a run is. Plain JSON.
 *
 * @typedef {object} Description
 * @property {string} name For headings and file names.
 * @property {string} kind "image", "signal", "volume" or "vector".
 * @property {number[]} shape Of one sample, channels first.
 * @property {number} dim Numbers in a code; 0 if samples have no codes.
 * @property {number} count Training samples that have points.
 * @property {string[]} classes Names of the classes of the labels; empty without labels.
 * @property {boolean} conditional Whether decoding and sampling take a class.
 * @property {string[]} columns Names of the columns of a table.
 * @property {boolean[]} whole For a table: whether each column holds whole numbers alone.
 * @property {{mean: number[], axes: number[][]} | null} main The two principal directions of the codes, if dim > 2.
 * @property {number[][]} range [low, high] of each number of a code, which a map should cover.
 * @property {Sampler[]} samplers The usual one first.
 * @property {string[]} notes Sentences for the user: what is missing, and what to do about it.
 * @property {[string, string][]} facts Names and values about the run, in the order to show them.
 * @property {Score[]} scores
 * @property {boolean} running Whether the run is still being trained.
 * @property {Capabilities} capabilities
 */

/**
 * @typedef {object} Sampler
 * @property {string} name
 * @property {string} title What it does, in a few words.
 * @property {number | null} fraction The default of its number in [0, 1]; null if it has none.
 */

/**
 * @typedef {object} Score
 * @property {string} name With its features, such as "kid (vgg)".
 * @property {string} mode "sampled", "paired-train", ...
 * @property {number} value
 * @property {string} text The value as it is to be shown.
 * @property {"lower" | "higher" | "none"} direction
 * @property {string} beside The figure to read it by, with its name; may be empty.
 * @property {string} note May be empty.
 */

/**
 * @typedef {object} Capabilities
 * @property {boolean} points `points`; without it there is no plane.
 * @property {boolean} decode `decode`.
 * @property {boolean} images `images`: the training samples themselves. Without them the page shows reconstructions.
 * @property {boolean} neighbours `neighbours` in pixels. Those in the plane are found by the page.
 * @property {boolean} sample `sample`.
 * @property {boolean} nearest `sample` also finds the nearest training sample of each.
 * @property {boolean} locate `locate`.
 * @property {boolean} watch `progress`; and with `snapshots` in it, `snapshot`.
 * @property {boolean} reach `reach`.
 */

/**
 * The training samples in the space of codes. Arrays have one entry per sample, in one order; null is what a source does
 * not know.
 *
 * @typedef {object} Points
 * @property {number} count
 * @property {number} dim
 * @property {Float32Array} codes count * dim.
 * @property {Int32Array | null} labels Indices into `Description.classes`.
 * @property {Float32Array | null} losses Of the reconstructions.
 * @property {Float32Array | null} density Logarithm of the density of codes at each.
 * @property {Int32Array | null} components Component of the mixture, from 0.
 * @property {string[] | null} names Of files.
 * @property {Int32Array | null} positions In the source of the data.
 */

/**
 * @typedef {object} Drawn
 * @property {Samples} samples
 * @property {Float32Array | null} codes count * dim, if samples have codes.
 * @property {Int32Array | null} labels Their classes, if the model is conditional.
 * @property {Int32Array | null} nearest The nearest training sample of each, if `capabilities.nearest`.
 * @property {Float32Array | null} losses The loss to it.
 * @property {Uint8Array | null} suspicious 1 where the sample is so close to it that it may be a copy; null if unknown.
 * @property {string} verdict What that says about the sheet, in a sentence; may be empty.
 */

/** Base class of the sources. A method that a source does not have, and says so in `capabilities`, is left as it is. */
export class Source {
  /** @returns {Promise<Description>} */
  async describe() { throw missing("describe"); }

  /** @returns {Promise<Points>} */
  async points() { throw missing("points"); }

  /**
   * What the model makes of codes. The page asks again while an answer is under way, and drops what comes too late.
   * @param {Float32Array} codes m * dim
   * @param {{labels?: Int32Array | null}} [options] m classes; needed if the model is conditional
   * @returns {Promise<Samples>}
   */
  async decode(codes, options) { throw missing("decode"); }

  /**
   * Training samples.
   * @param {number[]} indices
   * @param {{side?: number}} [options] Pictures may come smaller, with at least `side` pixels along the longer side.
   * @returns {Promise<Samples>}
   */
  async images(indices, options) { throw missing("images"); }

  /**
   * The training samples most like one, by the loss of the model, nearest first, without itself.
   * @param {number} index
   * @param {number} count
   * @returns {Promise<{indices: number[], losses: number[]}>}
   */
  async neighbours(index, count) { throw missing("neighbours"); }

  /**
   * New samples.
   * @param {{count: number, seed: number, sampler?: string, fraction?: number, label?: number | null}} options
   * @returns {Promise<Drawn>}
   */
  async sample(options) { throw missing("sample"); }

  /**
   * Where a file of the user's lands.
   * @param {File} file
   * @returns {Promise<{samples: Samples, remade: Samples, code: Float32Array, label: number | null, loss: number,
   *   nearest: number[], known: number, notes: string[]}>} The sample as it was prepared, its reconstruction, its code,
   *   the training samples most like it, and the index of the training sample that it equals, or -1.
   */
  async locate(file) { throw missing("locate"); }

  /**
   * Whether new samples come from the neighbourhood of each of these codes.
   * @param {Float32Array} codes m * dim
   * @returns {Promise<Uint8Array>} m, 1 where they do
   */
  async reach(codes) { throw missing("reach"); }

  /**
   * How far the training is.
   * @returns {Promise<{running: boolean, state: string, version: string, epoch: number, history: object[],
   *   snapshots: number[]}>} `version` changes when the model or its points have; `snapshots` are the epochs of which
   *   the codes were kept
   */
  async progress() { throw missing("progress"); }

  /**
   * The codes after an epoch, one of `snapshots`: count * dim.
   * @param {number} epoch
   * @returns {Promise<Float32Array>}
   */
  async snapshot(epoch) { throw missing("snapshot"); }
}

function missing(what) {
  return new Error(`This page can't do that: its source has no ${what}.`);
}
