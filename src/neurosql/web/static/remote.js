/** The source of a page that a server of this machine serves: each method is a request. */

import { Source } from "./source.js";

const TYPED = { f4: Float32Array, i4: Int32Array, u1: Uint8Array };

/** The runs that the server shows, as sources with names. */
export async function remoteSources() {
  const { runs } = await (await answered(fetch("api/runs"))).json();
  return runs.map((name, number) => new RemoteSource(number, name));
}

/** One run of the server. */
export class RemoteSource extends Source {
  constructor(number, name) {
    super();
    this.base = `api/runs/${number}`;
    this.name = name;
  }

  async describe() {
    this.description = await (await answered(fetch(this.base))).json();
    return this.description;
  }

  async points() {
    const { plain, arrays } = unpacked(await bytes(fetch(`${this.base}/points`)));
    const [count, dim] = arrays.codes.shape;
    const of = (name) => arrays[name]?.values ?? null;
    return {
      count, dim, codes: of("codes"), labels: of("labels"), losses: of("losses"), density: of("density"),
      components: of("components"), positions: of("positions"), names: plain.names,
    };
  }

  async decode(codes, { labels = null } = {}) {
    const dim = this.description.dim;
    const rows = Array.from({ length: codes.length / dim }, (_, i) => Array.from(codes.subarray(i * dim, (i + 1) * dim)));
    const asked = { codes: rows, labels: labels && Array.from(labels) };
    return samplesOf(unpacked(await this.post("decode", asked)).arrays.samples);
  }

  async images(indices, { side = null } = {}) {
    return samplesOf(unpacked(await this.post("images", { indices, side })).arrays.samples);
  }

  async neighbours(index, count) {
    return JSON.parse(new TextDecoder().decode(await this.post("neighbours", { index, count })));
  }

  async sample(options) {
    const { plain, arrays } = unpacked(await this.post("sample", options));
    const of = (name) => arrays[name]?.values ?? null;
    return {
      samples: samplesOf(arrays.samples), codes: of("codes"), labels: of("labels"), nearest: of("nearest"),
      losses: of("losses"), suspicious: of("suspicious"), verdict: plain.verdict,
    };
  }

  async reach(codes) {
    const dim = this.description.dim;
    const rows = Array.from({ length: codes.length / dim }, (_, i) => Array.from(codes.subarray(i * dim, (i + 1) * dim)));
    return unpacked(await this.post("reach", { codes: rows })).arrays.reached.values;
  }

  async locate(file) {
    const { plain, arrays } = unpacked(await this.post("locate", file));
    return { ...plain, samples: samplesOf(arrays.samples), remade: samplesOf(arrays.remade), code: arrays.code.values };
  }

  async progress() {
    return (await answered(fetch(`${this.base}/progress`))).json();
  }

  post(what, content) {
    const file = content instanceof Blob;
    const type = file ? "application/octet-stream" : "application/json";
    const body = file ? content : JSON.stringify(content);
    return bytes(fetch(`${this.base}/${what}`, { method: "POST", headers: { "content-type": type }, body }));
  }
}

/** The answer to a request; an Error with its sentence if it was refused. */
async function answered(request) {
  let response;
  try {
    response = await request;
  } catch {
    throw new Error("The program does not answer: is `neurosql explore` still running in its terminal?");
  }
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    throw new Error(said.error ?? `The program answered with an error (${response.status}).`);
  }
  return response;
}

async function bytes(request) {
  return (await answered(request)).arrayBuffer();
}

/** What wire.py has packed: plain values, and arrays with their shapes by name. */
function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const [name, { type, shape, at }] of Object.entries(head.arrays)) {
    arrays[name] = { shape, values: new TYPED[type](buffer, 4 + length + at, shape.reduce((a, b) => a * b, 1)) };
  }
  return { plain: head.plain, arrays };
}

function samplesOf({ shape, values }) {
  return { count: shape[0], shape: shape.slice(1), values };
}
