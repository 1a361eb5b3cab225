/** Files that the user downloads. */

import { el } from "./elements.js";

/** Offer content as a file of that name. */
export function download(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Download a canvas as a PNG. */
export async function downloadPicture(name, canvas) {
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  download(name, blob, "image/png");
}

/** A table as CSV. A text that a spreadsheet would take for a formula gets an apostrophe in front. */
export function csvOf(heads, rows) {
  const cell = (value) => {
    let text = String(value ?? "");
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [heads, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Codes of training samples, and what is known of each, as CSV; `labelled` is what the user calls them. */
export function codesAsCsv(description, points, indices, labelled = null) {
  const heads = ["index", "position", "name", "label", "loss", ...(labelled === null ? [] : ["own_label"])];
  for (let k = 0; k < points.dim; k++) heads.push(`z${k + 1}`);
  const rows = indices.map((i) => [
    i, points.positions?.[i], points.names?.[i], points.labels ? description.classes[points.labels[i]] : null,
    points.losses?.[i], ...(labelled === null ? [] : [labelled]), ...points.codes.subarray(i * points.dim, (i + 1) * points.dim),
  ]);
  return csvOf(heads, rows);
}
