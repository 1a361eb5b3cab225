/** Find training samples by the name of their file, by label, or by number. */

import { el } from "./elements.js";

/** The numbers of the samples that some words stand for: "#12", a label, or a part of a file name. */
export function found(words, description, points) {
  const text = words.trim().toLowerCase();
  if (!text) return [];
  const number = /^#(\d+)$/.exec(text);
  if (number) return Number(number[1]) < points.count ? [Number(number[1])] : [];
  const label = description.classes.findIndex((name) => name.toLowerCase() === text.replace(/^label:\s*/, ""));
  const indices = [];
  for (let i = 0; i < points.count; i++) {
    const named = points.names?.[i]?.toLowerCase().includes(text);
    if (named || (label >= 0 && points.labels?.[i] === label)) indices.push(i);
  }
  return indices;
}

/** Suggest the labels while one types. */
export function hints(list, description) {
  list.replaceChildren(...description.classes.slice(0, 200).map((name) => el("option", { value: name })));
}
