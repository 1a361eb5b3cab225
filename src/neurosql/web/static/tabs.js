/** Tabs that are used like any others: by mouse, or by arrow keys. */

import { el } from "./elements.js";

/** Panels in tabs; `changed()` is called when another one is opened. */
export class Tabs {
  constructor(list, place, changed) {
    [this.list, this.place, this.changed] = [list, place, changed];
    list.addEventListener("keydown", (event) => this.key(event));
  }

  /** Show these panels: [name, {title, root}] each. */
  show(panels, current) {
    this.buttons = new Map(panels.map(([name, { title, root }]) => {
      root.id = `panel-${name}`;
      root.setAttribute("role", "tabpanel");
      root.setAttribute("aria-label", title);
      const button = el("button", { type: "button", role: "tab", id: `tab-${name}`, textContent: title, "aria-controls": root.id });
      button.onclick = () => this.open(name);
      return [name, { button, root }];
    }));
    this.list.replaceChildren(...[...this.buttons.values()].map(({ button }) => button));
    this.place.replaceChildren(...[...this.buttons.values()].map(({ root }) => root));
    this.open(this.buttons.has(current) ? current : panels[0][0]);
  }

  open(name) {
    if (!this.buttons.has(name)) return;
    this.current = name;
    for (const [other, { button, root }] of this.buttons) {
      button.setAttribute("aria-selected", other === name);
      button.tabIndex = other === name ? 0 : -1;
      root.hidden = other !== name;
    }
    this.changed(name);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = [...this.buttons.keys()], next = names[(names.indexOf(this.current) + step + names.length) % names.length];
    this.open(next);
    this.buttons.get(next).button.focus();
    event.preventDefault();
  }
}
