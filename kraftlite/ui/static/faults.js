// Faults: a button for each, and the ledger of those that were.

import { h } from "./dom.js";
import { LABEL, LIFE, acts, clock, command, past, span } from "./words.js";

export function faults(page) {
  return [
    h("h2", {}, "Faults"),
    page.role === "operator" ? targets(page) : h("p", { class: "soft" }, "This link is for looking only. The operator's link has the buttons."),
    h("section", { "aria-labelledby": "h-ledger" }, h("h3", { id: "h-ledger" }, "Ledger"), ledger(page)),
  ];
}

function targets(page) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes and what may be done to them" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ["node", "roles", "it", "do"].map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        page.state.nodes.map((node) =>
          h(
            "tr",
            { key: `n${node.id}` },
            h("th", { scope: "row" }, node.id),
            h("td", {}, node.roles.join(", "), node.status && node.status.active ? " ★" : ""),
            h("td", {}, `${LIFE[node.life].sign} ${LIFE[node.life].word}`),
            h("td", { class: "wide acts" }, acts(node).map((kind) => h("button", { key: kind, class: kind === "kill" || kind === "pause" ? "danger" : "", title: command(kind, node.id), "aria-label": `${LABEL[kind]} node ${node.id}`, onclick: () => page.ask(kind, node.id) }, LABEL[kind]))),
          ),
        ),
      ),
    ),
  );
}

function ledger(page) {
  const found = page.state.faults;
  if (!found.length) return h("p", { class: "soft" }, "Nobody has done anything to this cluster yet. What is done by command appears here, too.");
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ledger of faults" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ["asked", "what", "by", "seen", "ended"].map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        {},
        found.map((fault) =>
          h(
            "tr",
            { key: fault.id, class: fault.active ? "warn" : "" },
            h("td", {}, clock(fault.asked_ms)),
            h("td", {}, `node ${fault.node} ${past(fault.kind)}`),
            h("td", {}, `${fault.who} (${fault.door})`),
            h("td", {}, fault.failed !== null ? "not done" : fault.seen_ms === null ? "not seen yet" : `after ${span(fault.seen_ms - fault.asked_ms)}`),
            h("td", { class: "wide" }, fault.failed !== null ? fault.failed : fault.ended_ms === null ? (fault.active ? `goes on, for ${span(page.now() - fault.asked_ms)}` : "–") : `${clock(fault.ended_ms)}, ${fault.ended_how} by ${fault.ended_by}`),
          ),
        ),
      ),
    ),
  );
}
