/** Elements of the page, made without any HTML from strangers: text is text. */

/** An element with properties, listeners (`onclick`, ...), attributes (`aria-...`, `data-...`) and children. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.includes("-") || name === "role" || name === "for") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The element of the page with that id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Give a list of choices [value, text] to a <select>; returns whether `chosen` is among them. */
export function choices(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => el("option", { value, textContent: text })));
  const there = options.some(([value]) => value === chosen);
  select.value = there ? chosen : options[0]?.[0];
  return there;
}

/** Say something that screen readers say too; an error stays until it is dismissed. */
export function say(words, { error = false } = {}) {
  const place = byId("said");
  place.classList.toggle("error", error);
  place.replaceChildren(words);
  place.hidden = !words;
  if (error) place.append(el("button", { className: "plain", textContent: "Dismiss", onclick: () => say("") }));
  clearTimeout(say.timer);
  if (words && !error) say.timer = setTimeout(() => { place.hidden = true; }, 6000);
}

/** What an action failed with, in a sentence. */
export function complain(error) {
  say(error instanceof Error ? error.message : String(error), { error: true });
}

/** A number as a reader needs it. */
export function figure(value) {
  if (!Number.isFinite(value)) return "";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** Call a function at most once in so many milliseconds, the last time with the last arguments. */
export function calmly(milliseconds, call) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), milliseconds);
  };
}
