/** The view in the address of the page, so that it can be kept and shared. */

import { calmly } from "./elements.js";

/** What the address says, by name. */
export function readAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Write values to the address, soon; null leaves a name out. */
export const writeAddress = calmly(150, (values) => {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  history.replaceState(null, "", `#${new URLSearchParams(given)}`);
});

/** A number of the address, or a default. */
export function numberIn(given, name, otherwise) {
  const value = given[name] === undefined ? NaN : Number(given[name]);
  return Number.isFinite(value) ? value : otherwise;
}
