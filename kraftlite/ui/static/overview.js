// The overview: who is there, who leads, what is wrong, and what happened lately.

import { h } from "./dom.js";
import { stories } from "./stories.js";
import { LABEL, LIFE, acts, number, past, sign, span } from "./words.js";

export function overview(page) {
  const { state } = page;
  const controllers = state.nodes.filter((node) => node.roles.includes("controller"));
  const brokers = state.nodes.filter((node) => node.roles.includes("broker"));
  return [
    headlines(page),
    tryThis(page),
    writing(page),
    h("div", { class: "nodes" }, group(page, "Controllers", controllers), group(page, "Brokers", brokers)),
    partitions(page, brokers),
    h("section", { "aria-labelledby": "h-stories" }, h("h2", { id: "h-stories" }, "What happened, and why"), stories(page.sofar(page.stories), page.empty, page.seek)),
  ];
}

function group(page, name, nodes) {
  const id = `h-${name.toLowerCase()}`;
  return h("section", { key: name, "aria-labelledby": id }, h("h2", { id }, name), h("div", { class: "cards" }, nodes.map((node) => card(page, node))));
}

/** For how long something is so; "at least" when it was so before anybody looked. */
export const lasting = (page, it) => `for ${it.since_exact ? "" : "at least "}${span(page.now() - it.since_ms)}`;

export function headlines(page) {
  return h(
    "section",
    { "aria-label": "What is wrong" },
    h(
      "ul",
      { class: "headlines" },
      page.state.headlines.map((line) =>
        h(
          "li",
          { class: line.level },
          h("span", { class: "mark", "aria-hidden": "true" }, { ok: "✔", info: "·", warn: "▲", alarm: "▲" }[line.level]),
          h("span", {}, line.text, line.since_ms !== null ? h("span", { class: "soft" }, ` · ${lasting(page, line)}`) : null),
          line.about ? h("button", { class: "link", onclick: () => page.why(line.about) }, "why?") : null,
        ),
      ),
    ),
  );
}

function tryThis(page) {
  if (page.role !== "operator") return null;
  const rows = page.rows.filter((row) => row.verdict.kind === "agree" && !row.topic.startsWith("__"));
  const quorum = page.state.quorum.verdict;
  const offers = [];
  if (rows.length) offers.push(["kill", rows[0].verdict.leader, `Kill the leader of ${rows[0].name}`]);
  if (rows.length) offers.push(["pause", rows[rows.length - 1].verdict.leader, `Pause the leader of ${rows[rows.length - 1].name}`]);
  if (quorum.kind === "agree") offers.push(["kill", quorum.leader, "Kill the active controller"]);
  const down = page.state.nodes.filter((node) => node.life === "dead" || node.life === "paused");
  for (const node of down) offers.unshift([node.life === "dead" ? "start" : "resume", node.id, node.life === "dead" ? `Start node ${node.id} again` : `Resume node ${node.id}`]);
  if (!offers.length) return null;
  const idle = rows.length && page.state.client && !page.state.client.running;
  return h(
    "section",
    { class: "try", "aria-label": "Try this" },
    h("span", { class: "soft" }, down.length ? "Bring it back, or go on:" : "Try this:"),
    offers.slice(0, 4).map(([kind, node, label]) => h("button", { key: label, class: kind === "kill" || kind === "pause" ? "danger" : "", onclick: () => page.ask(kind, node) }, label)),
    idle ? h("button", { key: "client", title: "100 records a second to the first topic, with acks=all", onclick: () => page.startClient() }, "Start a client") : null,
    rows.length ? null : h("span", { class: "soft" }, "Make a topic to see leaders move: ", h("code", {}, "kraftlite create-topic orders --partitions 3 --replication-factor 3")),
  );
}

/** What each client is told, in one line. */
function writing(page) {
  const found = (page.state.clients || []).filter((it) => !it.old);
  if (!found.length) return null;
  return h(
    "section",
    { class: "writing", "aria-label": "Clients" },
    found.map((it) => {
      const waits = it.waits_ms === null ? 0 : page.now() - it.waits_ms;
      return h(
        "p",
        { key: it.client },
        h("a", { href: "#clients" }, `client ${it.client}`),
        ` writes to ${it.topic}: `,
        h("b", {}, number(it.acked)),
        " acknowledged, ",
        h("b", {}, number(it.refused)),
        " refused, 99 of 100 within ",
        h("b", {}, span(it.p99)),
        waits > 1000 ? h("b", { class: "bad" }, ` · no acknowledgement for ${span(waits)}`) : it.longest_ms !== null ? ` · longest without an acknowledgement ${span(it.longest_ms)}` : "",
      );
    }),
  );
}

function card(page, node) {
  const life = LIFE[node.life];
  const said = node.status;
  const old = node.life !== "alive";
  const active = said && said.active;
  return h(
    "article",
    { key: `node-${node.id}`, class: `card ${life.kind}${old ? " old" : ""}`, "aria-label": `Node ${node.id}` },
    h(
      "h3",
      {},
      h("span", { class: "id" }, node.id),
      active ? h("span", { class: "star" }, old ? "★ was active" : "★ active") : null,
      sign(life.kind, `${life.sign} ${life.word}`),
    ),
    node.fault ? h("p", { class: "fault" }, `✸ ${past(node.fault.kind)} by ${node.fault.who} (${node.fault.door}), ${node.fault.seen_ms === null ? "asked" : "seen"} ${span(page.now() - (node.fault.seen_ms || node.fault.asked_ms))} ago`) : null,
    h(
      "dl",
      {},
      facts(node, said).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
    h("p", { class: "heard" }, node.heard_ms === null ? "never heard" : old ? `last word ${span(page.now() - node.heard_ms)} ago` : `heard ${span(page.now() - node.heard_ms)} ago`),
    node.polled ? h("p", { class: "soft" }, `asked again and again, because ${node.polled}`) : null,
    page.role === "operator"
      ? h("p", { class: "acts" }, acts(node).slice(0, 2).map((kind) => h("button", { key: kind, class: kind === "kill" ? "danger" : "", "aria-label": `${LABEL[kind]} node ${node.id}`, onclick: () => page.ask(kind, node.id) }, LABEL[kind])))
      : null,
  );
}

function facts(node, said) {
  if (!said) return [["state", "–"]];
  const found = [];
  if (node.roles.includes("controller")) found.push(["quorum", `${said.raft_state} e${said.raft_epoch}`], ["log end", `${number(said.leo)}`], ["committed", number(said.hw)]);
  if (node.roles.includes("broker")) found.push(["state", said.broker_state || "–"], ["leads", node.leads === null ? "–" : `${node.leads} of ${node.holds}`], ["metadata", `@${number(said.metadata_offset)}`]);
  return found;
}

function partitions(page, brokers) {
  const counts = page.state.partitions;
  const of = counts.answering || counts.total === null ? `as ${counts.answering} of ${counts.of_brokers} brokers say now` : "by the last words: no broker answers now";
  const summary = [
    ["partitions", counts.total, ""],
    ["without a leader that answers", counts.leaderless, counts.leaderless ? "bad" : "good"],
    ["under-replicated", counts.under_replicated, counts.under_replicated ? "warn" : "good"],
    ["below min.insync.replicas", counts.under_min, counts.under_min ? "bad" : "good"],
    ["waiting for a silent replica", counts.waiting, counts.waiting ? "warn" : "good"],
  ];
  return h(
    "section",
    { "aria-labelledby": "h-partitions" },
    h("h2", { id: "h-partitions" }, "Partitions"),
    h("p", { class: "counts" }, summary.map(([name, value, kind]) => h("span", {}, h("b", { class: value === null ? "unknown" : kind }, number(value)), ` ${name}`)), h("span", { class: "soft" }, of)),
    h("label", { class: "filter" }, "Filter ", h("input", { id: "filter", type: "search", value: page.filter, autocomplete: "off", spellcheck: "false", oninput: (event) => page.setFilter(event.target.value) })),
    page.rows.length ? [page.rows.some((row) => shown(page, row)) ? matrix(page, brokers) : null, inner(page)] : h("p", { class: "soft" }, counts.total === null ? "No broker has said what it holds." : counts.total === 0 ? "There is no topic yet." : "No partition has that in its name."),
    page.matching > page.rows.length ? h("p", { class: "soft" }, `${page.rows.length} of ${number(page.matching)} are shown, those with trouble first.`) : null,
    h("p", { class: "soft key" }, "◆ leads  ● in sync  ◐ not in sync  ▨ last word of one that does not answer  ? not known. The number is how far it is behind."),
  );
}

/** Topics that brokers keep for themselves are told of in one line, until somebody opens them or looks for them. */
const opened = new Set();
const shown = (page, row) => !row.topic.startsWith("__") || page.filter !== "" || opened.has(row.topic);
const NAMES = { split: "with two that say they lead", leaderless: "without a leader that answers", under_min: "below min.insync.replicas", waiting: "waiting for a silent replica", short: "under-replicated", news: "whose news spread", whole: "whole" };

function inner(page) {
  const topics = [...new Set(page.rows.filter((row) => row.topic.startsWith("__")).map((row) => row.topic))].sort();
  if (!topics.length || page.filter) return null;
  return h(
    "p",
    { class: "inner" },
    topics.map((topic) => {
      const rows = page.rows.filter((row) => row.topic === topic);
      const counts = Object.keys(NAMES).map((name) => [name, rows.filter((row) => row.standing === name).length]).filter(([, count]) => count);
      const open = opened.has(topic);
      const turn = () => {
        if (open) opened.delete(topic);
        else opened.add(topic);
        page.draw();
      };
      return h("button", { key: topic, class: "plain", "aria-expanded": String(open), onclick: turn }, `${open ? "▾" : "▸"} ${topic}: `, counts.map(([name, count], at) => h("span", { key: name, class: { whole: "soft", news: "soft", short: "warn", waiting: "warn" }[name] || "bad" }, `${at ? ", " : ""}${number(count)} ${NAMES[name]}`)));
    }),
  );
}

function matrix(page, brokers) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Partitions and their replicas" },
    h(
      "table",
      { class: "matrix" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "partition"), brokers.map((node) => h("th", { scope: "col", key: `b${node.id}` }, `broker ${node.id}`)), ["epoch", "in sync", "min", "HW", "how it stands"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, page.rows.filter((row) => shown(page, row)).map((row) => line(page, row, brokers))),
    ),
  );
}

/** The lines of rows in which no time passes. */
const lines = new WeakMap();

function line(page, row, brokers) {
  const columns = brokers.map((node) => node.id).join();
  const known = lines.get(row);
  if (known && known.columns === columns) return known.made;
  const made = makeLine(page, row, brokers);
  if (row.standing === "whole") lines.set(row, { columns, made });
  return made;
}

function makeLine(page, row, brokers) {
  const leader = row.replicas.find((it) => it.node === row.verdict.leader);
  return h(
    "tr",
    { key: row.name, class: { split: "bad", leaderless: "bad", under_min: "bad", waiting: "warn", short: "warn" }[row.standing] || "" },
    h("th", { scope: "row" }, h("a", { href: `#partition/${encodeURIComponent(row.name)}` }, row.name)),
    brokers.map((node) => h("td", { key: `b${node.id}` }, cell(row, row.replicas.find((it) => it.node === node.id), leader))),
    h("td", {}, row.verdict.epoch === null ? "–" : `e${row.verdict.epoch}`),
    h("td", {}, row.isr.join(", ")),
    h("td", {}, number(row.min_isr)),
    h("td", { class: leader && !leader.fresh ? "lastword" : "" }, leader && leader.hw !== null ? number(leader.hw) : "–"),
    h("td", { class: "wide" }, standing(page, row)),
  );
}

function cell(row, replica, leader) {
  if (!replica) return h("span", { class: "dim" }, "·");
  const inSync = row.isr.includes(replica.node);
  const leads = replica.says === "leader";
  if (replica.says === null) return sign("dim", `? ${inSync ? "in sync" : ""}`, "it has not said anything of this partition");
  const behind = leader && leader.leo !== null && replica.leo !== null && !leads ? ` −${number(Math.max(0, leader.leo - replica.leo))}` : "";
  if (!replica.fresh) return sign("stale", `▨ ${leads ? "L?" : inSync ? "in sync" : ""}`, `its last word: ${leads ? "it leads" : "it follows"}, epoch ${replica.epoch}, LEO ${replica.leo}`);
  if (leads) return sign(row.verdict.leader === replica.node ? "lead" : "bad", row.verdict.leader === replica.node ? "◆ leads" : `◆ e${replica.epoch}?`, `LEO ${replica.leo}, HW ${replica.hw}`);
  return sign(inSync ? "good" : "warn", `${inSync ? "●" : "◐"}${behind}`, `LEO ${replica.leo}, HW ${replica.hw}, epoch ${replica.epoch}`);
}

export function standing(page, row) {
  const words = {
    split: () => `${row.verdict.leaders.join(" and ")} both say that they lead`,
    leaderless: () => (row.verdict.kind === "silent" && row.verdict.leader !== null ? `${row.verdict.leader} led by the last word, and does not answer` : "nobody who answers leads"),
    under_min: () => "fewer in sync than min.insync.replicas: acks=all is refused",
    waiting: () => `acks=all waits for ${row.waits_for.join(", ")}`,
    short: () => `${row.isr.length} of ${row.replicas.length} in sync`,
    news: () => "the news of its leader is spreading",
    whole: () => "whole",
  }[row.standing]();
  const found = row.standing === "whole" ? [words] : [words, h("span", { class: "soft" }, ` · ${lasting(page, row)}`)];
  return row.lost ? [sign("bad", `✘ ${number(row.lost.count)} lost`, lost(row)), " · ", ...found] : found;
}

/** What was committed, and its leader did not have when it began to lead. */
export function lost(row) {
  const { first, last, leader, epoch } = row.lost;
  return `committed records ${number(first)} to ${number(last)} are lost: ${leader} began to lead epoch ${epoch} without them`;
}
