// Faults: a button for each, and the ledger of those that were.

import { post } from "./api.js";
import { h } from "./dom.js";
import { INJECTED, LABEL, LIFE, acts, clock, command, injection, span, told } from "./words.js";

/** What the form says now. */
const form = { kind: "cut", node: null, other: null, amount: null, api: "Produce", error: "NOT_LEADER_OR_FOLLOWER", count: 3, seconds: 10, said: null, busy: false };

export function faults(page) {
  return [
    h("h2", {}, "Faults"),
    page.role === "operator" ? targets(page) : h("p", { class: "soft" }, page.past ? "This is what was: nothing can be done to it." : page.cluster.read_only ? "This page is for looking only." : "This link is for looking only. The operator's link has the buttons."),
    page.role === "operator" ? h("section", { "aria-labelledby": "h-inject" }, h("h3", { id: "h-inject" }, "Links, disks, clocks, answers"), inject(page)) : null,
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

/** The fault that the form describes, as the page's server takes it. */
function described(page) {
  const kind = INJECTED[form.kind];
  const ids = page.state.nodes.map((node) => node.id);
  const node = ids.includes(form.node) ? form.node : ids[ids.length - 1];
  const fault = { kind: form.kind, node, for_ms: Math.round(form.seconds * 1000) };
  if (kind.link) {
    const others = [...ids.filter((id) => id !== node), ...(kind.clients ? [-1] : [])];
    fault.other = others.includes(form.other) ? form.other : others[0];
  }
  if (kind.unit) fault.amount = Math.round((form.amount === null ? kind.amount : form.amount) * kind.factor);
  if (kind.api) fault.api = form.api;
  if (kind.error) Object.assign(fault, { error: form.error, count: form.count });
  return fault;
}

function inject(page) {
  const kind = INJECTED[form.kind];
  const fault = described(page);
  const ids = page.state.nodes.map((node) => node.id);
  const field = (label, name, tag, props, ...children) =>
    h("label", { class: "field" }, `${label} `, h(tag, { "aria-label": label, onchange: (event) => change(page, name, event.target.value.trim()), ...props }, children));
  const pick = (label, name, value, options) =>
    field(label, name, "select", {}, options.map(([id, text]) => h("option", { key: `o${id}`, value: id, selected: String(id) === String(value) }, text)));
  const number = (label, name, value, least) => field(label, name, "input", { type: "number", value, min: least });
  const text = (label, name, value) => field(label, name, "input", { type: "text", value, maxlength: 60, spellcheck: "false" });
  const nodeName = (id) => (id === -1 ? "its clients" : `node ${id}`);
  return h(
    "div",
    {},
    h(
      "p",
      { class: "acts" },
      pick("what", "kind", form.kind, Object.entries(INJECTED).map(([id, it]) => [id, it.label])),
      pick("node", "node", fault.node, ids.map((id) => [id, nodeName(id)])),
      kind.link ? pick("and", "other", fault.other, [...ids.filter((id) => id !== fault.node), ...(kind.clients ? [-1] : [])].map((id) => [id, nodeName(id)])) : null,
      kind.api ? text("API", "api", form.api) : null,
      kind.error ? text("code", "error", form.error) : null,
      kind.error ? number("times", "count", form.count, 0) : null,
      kind.unit ? number(`by (${kind.unit})`, "amount", fault.amount / kind.factor) : null,
      number("for (s)", "seconds", form.seconds, 1),
      h("button", { class: "danger", disabled: form.busy, onclick: () => act(page, fault) }, form.busy ? "Asked …" : "Do it"),
      page.state.faults.some((it) => it.active && it.kind in INJECTED) ? h("button", { onclick: () => act(page, { kind: "end" }) }, "End all of these") : null,
    ),
    h("p", { class: "soft" }, "As a command: ", h("code", {}, injection(fault)), ". The node ends it when its time is over, whatever becomes of this page."),
    kind.ends ? h("p", { class: "warn" }, `Careful: it hits all directories of node ${fault.node}, that of its metadata log, too. A node that cannot write there ends by itself, and stays down until it is started again. The command hits one directory alone with --dir.`) : null,
    form.said ? h("p", { class: "banner alarm", role: "alert" }, form.said) : null,
  );
}

function change(page, name, value) {
  const numbers = ["node", "other", "amount", "count", "seconds"];
  form[name] = numbers.includes(name) ? Number(value) : value;
  if (name === "kind") form.amount = null;
  form.said = null;
  page.draw();
}

async function act(page, fault) {
  form.busy = true;
  page.draw();
  try {
    await post("/api/v1/faults", fault);
    form.said = null;
  } catch (error) {
    form.said = error.message;
  }
  form.busy = false;
  page.draw();
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
            h("td", {}, told(fault)),
            h("td", {}, `${fault.who} (${fault.door})`),
            h("td", {}, fault.failed !== null ? "not done" : fault.seen_ms === null ? "not seen yet" : `after ${span(fault.seen_ms - fault.asked_ms)}`),
            h("td", { class: "wide" }, fault.failed !== null ? fault.failed : fault.ended_ms === null ? (fault.active ? [`goes on, for ${span(page.now() - fault.asked_ms)} `, page.role === "operator" && fault.kind in INJECTED ? h("button", { "aria-label": `End the ${fault.kind} of node ${fault.node}`, onclick: () => act(page, { kind: "end", id: fault.id }) }, "End") : null] : "–") : `${clock(fault.ended_ms)}, ${fault.ended_how} by ${fault.ended_by}`),
          ),
        ),
      ),
    ),
  );
}
