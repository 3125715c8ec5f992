// The words and signs of the page, and what a fault will look like.

import { h } from "./dom.js";

/** A duration in words; "–" when it is not known. */
export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  const value = Math.max(0, ms);
  if (value < 950) return `${Math.round(value / 10) * 10} ms`;
  if (value < 60000) return `${(value / 1000).toFixed(1)} s`;
  if (value < 3600000) return `${Math.floor(value / 60000)} min ${Math.floor((value % 60000) / 1000)} s`;
  return `${Math.floor(value / 3600000)} h ${Math.floor((value % 3600000) / 60000)} min`;
}

let virtual = false;
/** Times are those of a simulation: since its start. */
export function sinceStart() {
  virtual = true;
}

export function clock(ms) {
  if (ms === null || ms === undefined) return "–";
  if (virtual) return `${(ms / 1000).toFixed(3)} s`;
  const at = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** A number that somebody said; "–" when nobody has. */
export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US"));

export const LIFE = {
  alive: { sign: "●", word: "answers", kind: "good" },
  silent: { sign: "▨", word: "silent", kind: "bad" },
  paused: { sign: "‖", word: "paused", kind: "bad" },
  dead: { sign: "╳", word: "no process", kind: "bad" },
  unknown: { sign: "?", word: "not heard yet", kind: "dim" },
};

export const VERDICT = {
  agree: "everybody who answers agrees",
  spreading: "the news is spreading",
  disagree: "not everybody who answers has heard of it",
  split: "two say that they lead, in different epochs",
  same_epoch: "two lead in one epoch: this must never happen",
  silent: "its last word; it does not answer",
  nobody: "nobody who answers leads",
  unknown: "nobody has said anything yet",
};

/** The faults that a node causes to itself: what is asked for, its unit, the factor to what the node is told, and a beginning. */
export const INJECTED = {
  cut: { label: "Cut off", clients: true, link: true },
  "cut-one-way": { label: "Cut off in one direction", clients: true, link: true },
  refuse: { label: "Refuse connections", clients: true, link: true },
  slow: { label: "Slow link", link: true, unit: "ms", factor: 1000, amount: 250 },
  lossy: { label: "Lossy link", link: true, unit: "%", factor: 10000, amount: 5 },
  "disk-slow": { label: "Slow disk", unit: "ms", factor: 1000, amount: 50 },
  "disk-stall": { label: "Disk stalls" },
  "disk-full": { label: "Disk is full", ends: true },
  "disk-error": { label: "Disk fails", ends: true },
  "wall-jump": { label: "Wall clock jumps", unit: "s", factor: 1000, amount: 3600 },
  "api-error": { label: "API answers an error", api: true, error: true },
  "api-slow": { label: "API answers late", api: true, unit: "ms", factor: 1000, amount: 500 },
};

/** The command that does the same. */
export function injection(fault) {
  const end = `--for ${fault.for_ms / 1000}s`;
  const kind = INJECTED[fault.kind];
  const amount = kind.unit ? fault.amount / kind.factor : null;
  if (kind.link) {
    const other = fault.other === -1 ? "clients" : fault.other;
    const name = fault.kind === "cut-one-way" ? "cut" : fault.kind;
    return `kraftlite fault ${name} ${fault.node} ${other}${amount === null ? "" : ` ${amount}${kind.unit}`}${fault.kind === "cut-one-way" ? " --one-way" : ""} ${end}`;
  }
  if (fault.kind === "wall-jump") return `kraftlite fault clock ${fault.node} ${amount < 0 ? "" : "+"}${amount}s ${end}`;
  if (kind.api) return `kraftlite fault api ${fault.api} --node ${fault.node}${fault.error ? ` --error ${fault.error}` : ""}${amount ? ` --delay ${amount}ms` : ""}${fault.count ? ` --count ${fault.count}` : ""} ${end}`;
  return `kraftlite fault disk ${fault.node} ${fault.kind.slice(5)}${amount === null ? "" : ` ${amount}ms`} ${end}`;
}

/** What a fault of the ledger did, in words. */
export function told(fault) {
  if (!(fault.kind in INJECTED)) return `node ${fault.node} ${past(fault.kind)}`;
  const other = fault.other === null ? "" : fault.other === -1 ? " and its clients" : ` and node ${fault.other}`;
  return `node ${fault.node}${other}: ${INJECTED[fault.kind].label.toLowerCase()}${fault.what ? ` (${fault.what})` : ""}`;
}

const PAST = { kill: "killed", pause: "paused", stop: "told to stop", restart: "restarted", resume: "resumed", start: "started" };
export const past = (kind) => PAST[kind] || kind;

export const command = (kind, node) =>
  ({ stop: `kraftlite kill ${node} --signal TERM`, start: `kraftlite restart ${node}` })[kind] || `kraftlite ${kind} ${node}`;

/** The acts that make sense on a node as it is now. */
export function acts(node) {
  if (node.life === "dead") return ["start"];
  if (node.life === "paused") return ["resume", "kill"];
  return ["kill", "pause", "stop", "restart"];
}

export const LABEL = { kill: "Kill", pause: "Pause", resume: "Resume", start: "Start again", restart: "Restart", stop: "Stop cleanly" };

/** What will be seen, in sentences, and how long it takes. */
export function consequences(kind, node, state, rows, timings) {
  const told = [];
  const broker = node.roles.includes("broker");
  const active = node.status && node.status.active;
  const led = rows.filter((row) => row.verdict.leader === node.id);
  const session = timings["broker.session.timeout.ms"];
  const quorum = timings["controller.quorum.fetch.timeout.ms"];
  if (kind === "kill" || kind === "pause") {
    told.push(kind === "kill" ? "The process is gone at once (SIGKILL), without a word to anybody." : "The process stands still where it is (SIGSTOP), as in a long garbage collection. It keeps its connections and does not know what happens.");
    if (broker && led.length) {
      told.push(`${led.length === 1 ? led[0].name + " has" : led.length + " partitions have"} no leader that answers until the controller has missed the broker's heartbeats for ${span(session)}. Then the broker is fenced, and another replica in sync leads, in the next leader epoch.`);
    } else if (broker) told.push(`It leads nothing here. Until it is fenced, after ${span(session)}, acks=all waits for it where it is in sync.`);
    if (active) told.push(`It is the active controller: another one is elected after about ${span(quorum)}, in the next epoch. Brokers go on serving their clients meanwhile.`);
    else if (node.roles.includes("controller")) told.push("It is not the active controller: as long as a majority of controllers is left, nobody notices much.");
    if (kind === "pause" && broker) told.push("Resumed later than that, it believes for a moment that it still leads: two claims, the newer epoch wins.");
  } else if (kind === "stop") told.push("A controlled shutdown (SIGTERM): its leaderships move first, then it goes. Clients hardly notice.");
  else if (kind === "restart") told.push("It stops cleanly, its leaderships move, and the same node starts again. Its replicas catch up, then they are in sync again. A few seconds.");
  else if (kind === "start") told.push("The node starts again with its directory and its ports: it registers with a new broker epoch, cuts off what the leader does not have, catches up, and is in sync again. A few seconds.");
  else if (kind === "resume") told.push("The process goes on (SIGCONT). What it believes is old: it hears of the newer epoch, cuts off what only it has, and follows.");
  const down = state.nodes.filter((it) => it.roles.includes("controller") && it.life !== "alive" && it.id !== node.id).length;
  const all = state.nodes.filter((it) => it.roles.includes("controller")).length;
  if ((kind === "kill" || kind === "pause" || kind === "stop") && node.roles.includes("controller") && (down + 1) * 2 >= all) {
    told.push("Careful: no majority of controllers is left after it. Nothing that needs the controller happens then, no election, no new topic, until one comes back.");
  }
  return told;
}

export const sign = (kind, text, title) => h("span", { class: `sign ${kind}`, title }, text);
