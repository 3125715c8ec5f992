// What was done to a simulated cluster, which has no ledger and no buttons.

import { h } from "./dom.js";
import { clock, span } from "./words.js";

export function notes(page) {
  const found = page.notes.filter(([from]) => from <= page.now());
  return [
    h("h2", {}, "Faults"),
    h("p", { class: "soft" }, "What the simulator has done up to here."),
    found.length
      ? h("ul", {}, found.map(([from, text, until], at) => h("li", { key: `n${at}` }, h("button", { class: "link", onclick: () => page.seek(from) }, clock(from)), ` ${text}`, until === null ? null : h("span", { class: "soft" }, until > page.now() ? `, for ${span(until - page.now())} more` : `, until ${clock(until)}`))))
      : h("p", { class: "soft" }, "Nothing yet."),
  ];
}
