// The quorum: what each node says of the active controller, who voted for whom, and the metadata log.

import { h } from "./dom.js";
import { lasting } from "./overview.js";
import { stories } from "./stories.js";
import { LIFE, VERDICT, clock, number, span } from "./words.js";

const VOTES = 12;
const RECORDS = 40;

export function quorum(page) {
  const { verdict } = page.state.quorum;
  const voters = page.state.nodes.filter((node) => node.roles.includes("controller"));
  const others = page.state.nodes.filter((node) => !node.roles.includes("controller"));
  const who = verdict.leaders.length > 1 ? `${verdict.leaders.join(" and ")} each say that they are active` : verdict.leader === null ? "no active controller" : `active controller ${verdict.leader}`;
  const tail = page.tail && { votes: page.sofar(page.tail.votes, "ts"), records: page.sofar(page.tail.records, "ts") };
  return [
    h("h2", {}, "Quorum"),
    h("p", {}, h("b", {}, who), verdict.epoch === null ? "" : ` in epoch ${verdict.epoch}`, h("span", { class: "soft" }, ` (${VERDICT[verdict.kind]}, ${lasting(page, page.state.quorum)})`)),
    table(page, "Voters", voters, tail ? tail.votes : []),
    others.length ? table(page, "Observers", others, null) : null,
    h("p", { class: "soft key" }, "Each row is one node's own word. LEO is the end of its metadata log, HW is what it knows to be committed; a voter that lags is behind by a fetch."),
    tail && tail.votes.length ? h("section", { "aria-labelledby": "h-votes" }, h("h3", { id: "h-votes" }, "Votes"), votes(tail.votes)) : null,
    h("section", { "aria-labelledby": "h-elections" }, h("h3", { id: "h-elections" }, "Elections, and why"), stories(page.sofar(page.told), page.empty || "No election is recorded in the last ten minutes.", page.seek, page.asked)),
    h("section", { "aria-labelledby": "h-log" }, h("h3", { id: "h-log" }, "Metadata log"), tail ? log(page, tail.records, voters) : h("p", { class: "soft" }, "Reading what the controllers recorded …")),
  ];
}

/** Whom a voter gave its vote last, as far as it was recorded. */
function voted(node, votes) {
  const last = votes.filter((it) => it.node === node.id && !it.pre_vote && it.granted).pop();
  return last ? `${last.candidate === node.id ? "itself" : last.candidate} in ${last.epoch}` : "–";
}

function table(page, name, nodes, votes) {
  const columns = ["node", "it", "says it is", "epoch", "its leader", ...(votes ? ["voted for"] : []), "LEO", "HW", "image", "heard"];
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
    h(
      "table",
      {},
      h("caption", {}, name),
      h("thead", {}, h("tr", {}, columns.map((it) => h("th", { scope: "col" }, it)))),
      h(
        "tbody",
        {},
        nodes.map((node) => {
          const said = node.status;
          return h(
            "tr",
            { key: `n${node.id}`, class: node.life === "alive" ? "" : "lastword" },
            h("th", { scope: "row" }, node.id),
            h("td", {}, `${LIFE[node.life].sign} ${LIFE[node.life].word}`),
            h("td", {}, said ? (said.active ? "★ active" : said.raft_state) : "–"),
            h("td", {}, said ? said.raft_epoch : "–"),
            h("td", {}, said ? (said.leader_id === null ? "none" : said.leader_id) : "–"),
            votes ? h("td", {}, voted(node, votes)) : null,
            h("td", {}, said ? number(said.leo) : "–"),
            h("td", {}, said ? number(said.hw) : "–"),
            h("td", {}, said ? `@${number(said.metadata_offset)}` : "–"),
            h("td", {}, node.heard_ms === null ? "never" : `${span(page.now() - node.heard_ms)} ago`),
          );
        }),
      ),
    ),
  );
}

/** One row for each that asked, in one round: the answers beside each other. */
function votes(found) {
  const rounds = [];
  for (const it of found) {
    let round = rounds.find((other) => other.candidate === it.candidate && other.epoch === it.epoch && other.pre_vote === it.pre_vote && it.ts - other.ts < 10000);
    if (!round) rounds.push((round = { ...it, answers: [] }));
    if (it.node !== it.candidate) round.answers.push(it);
  }
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Who answered whom" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ["when", "epoch", "asks", "for", "answers"].map((it) => h("th", { scope: "col" }, it)))),
      h(
        "tbody",
        {},
        rounds.slice(-VOTES).reverse().map((it) =>
          h(
            "tr",
            { key: `${it.ts}-${it.candidate}-${it.epoch}-${it.pre_vote}` },
            h("td", {}, clock(it.ts)),
            h("td", {}, it.epoch),
            h("th", { scope: "row" }, `node ${it.candidate}`),
            h("td", {}, it.pre_vote ? "a word that it would win (pre-vote)" : "votes, and gives itself its own"),
            h("td", { class: "wide" }, it.answers.length ? it.answers.map((one) => h("span", { class: one.granted ? "good" : "bad" }, `${one.node} ${one.granted ? "✔ yes" : "✘ no"}  `)) : h("span", { class: "soft" }, "nobody answered, as far as is recorded")),
          ),
        ),
      ),
    ),
  );
}

/** The offset that is looked at, where the address names one: `#quorum/@158`. */
const wanted = (page) => (/^@\d{1,15}$/.test(page.subject) ? Number(page.subject.slice(1)) : null);

function log(page, records, voters) {
  const at = wanted(page);
  const known = Math.max(-1, ...voters.filter((node) => node.status && node.status.hw !== null).map((node) => node.status.hw));
  const from = at === null ? Math.max(0, records.length - RECORDS) : Math.max(0, records.findIndex((it) => it.offset >= at) - 6);
  const shown = records.slice(from, from + RECORDS).reverse();
  const told = at === null ? null : h("p", { class: "acts" }, records.some((it) => it.offset === at) ? `The record at offset ${number(at)}, and those around it.` : `The record at offset ${number(at)} is not among those that are kept.`, h("a", { href: "#quorum" }, "The newest"));
  if (!shown.length) return [told, h("p", { class: "soft" }, "No record is known. Controllers record the newest of them, without those that say nothing (NoOp).")];
  return [
    told,
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Records of the metadata log" },
      h(
        "table",
        { class: "log" },
        h("thead", {}, h("tr", {}, ["offset", "epoch", "record", "what it says", "why", "when", "it is"].map((it) => h("th", { scope: "col" }, it)))),
        h("tbody", {}, shown.map((it) => line(it, at, known))),
      ),
    ),
    h("p", { class: "soft key" }, "The newest first. It is committed when a voter says that its HW is above it; lost when the next leader does not have it."),
  ];
}

function line(it, at, known) {
  const is = it.lost !== null ? ["bad", "✘ lost"] : it.offset < known ? ["good", "✔ committed"] : ["soft", "… not known to be committed"];
  return h(
    "tr",
    { key: `${it.offset}-${it.by}-${it.ts}`, class: it.offset === at ? "here" : it.lost !== null ? "lastword" : "", "aria-current": it.offset === at ? "true" : undefined },
    h("th", { scope: "row" }, h("a", { href: `#quorum/@${it.offset}` }, `@${it.offset}`)),
    h("td", {}, it.epoch === null ? "–" : `e${it.epoch}`),
    h("td", {}, it.record),
    h("td", { class: "wide" }, it.partition ? [h("a", { href: `#partition/${encodeURIComponent(it.partition)}` }, it.partition), it.detail.startsWith(it.partition) ? it.detail.slice(it.partition.length) : ` ${it.detail}`] : it.detail),
    h("td", { class: "wide soft" }, (it.cause || "").replace(/^operation:(\S+)/, (all, name) => name.replaceAll("_", " ")) || "–"),
    h("td", {}, `${clock(it.ts)} by ${it.by}`),
    h("td", { class: is[0] }, is[1]),
  );
}
