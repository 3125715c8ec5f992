// The page: its state, where it is, and when it is drawn.

import { get, open, post, watch } from "./api.js";
import { clients } from "./clients.js";
import { h, render } from "./dom.js";
import { faults } from "./faults.js";
import { notes } from "./notes.js";
import { headlines, overview } from "./overview.js";
import { partition } from "./partition.js";
import { Player, bar } from "./player.js";
import { quorum } from "./quorum.js";
import { Heard, Tape, kept } from "./tape.js";
import { timeline } from "./timeline.js";
import { whatIf } from "./whatif.js";
import { LABEL, command, consequences, sinceStart, span } from "./words.js";

const VIEWS = { overview: ["Overview", overview], partition: ["Partition", partition], timeline: ["Timeline", timeline], quorum: ["Quorum", quorum], faults: ["Faults", (it) => (it.notes.length ? notes(it) : faults(it))], clients: ["Clients", clients], whatif: ["What if", whatIf] };
const LATE_MS = 1500;
const at = (id) => document.getElementById(id);

const page = {
  state: null,
  rows: [],
  matching: 0,
  filter: "",
  stories: null,
  /** What clients missed, and what the cluster says of the same time. */
  outages: null,
  told: null,
  /** Votes, and the newest records of the metadata log. */
  tail: null,
  lanes: null,
  /** The leader epochs of the partition that is shown, with the offsets at which they begin. */
  epochs: [],
  back: 180000,
  /** What the timeline was zoomed to: from, until. Null: `back` says it. */
  window: null,
  /** Zoom (`by` > 1: in) around a moment that stays where it is, or move by a part of what is shown. */
  zoom: (by, around) => zoom(by, around),
  shift: (part) => shift(part),
  cluster: null,
  /** A recording: all stories, lanes and notes of it. Null on a live page. */
  tape: null,
  /** What can be changed of the run of a seed, to run it again. Null where that cannot be. */
  whatIf: null,
  notes: [],
  empty: undefined,
  /** Nothing can be done to what has been. */
  get role() {
    return page.past ? "past" : page.cluster.role;
  },
  get past() {
    return player !== null && player.past;
  },
  view: "overview",
  subject: "",
  /** The server's clock, as far as it has been heard. */
  now: () => (page.past ? player.ms : Date.now() + offset),
  /** What the timeline shows: to the end of what is known, or around the moment of a recording. */
  range: () => {
    if (page.window) return page.window;
    if (!page.tape) return [Date.now() + offset - page.back, Date.now() + offset];
    const { begin, end } = player.moments;
    if (page.back >= end - begin) return [begin, Math.max(end, begin + 1)];
    const since = Math.max(begin, Math.min(end - page.back, player.ms - page.back / 2));
    return [since, since + page.back];
  },
  seek: (ms) => player.seek(ms),
  /** Show another recording at the same moment. */
  show: (tape) => {
    take(tape);
    player.moments = new Tape(tape.frames);
    recall(true);
    player.seek(player.ms);
  },
  /** The stories that had begun at the moment that is shown. */
  sofar: (found, when = "at_ms") => (page.past && found ? found.filter((it) => it[when] <= player.ms) : found),
  ask,
  draw: () => draw(),
  go: (view, subject) => (location.hash = subject ? `${view}/${encodeURIComponent(subject)}` : view),
  why: (about) => {
    page.asked = true;
    if (about.kind === "client") page.go("clients");
    else if (about.kind === "controller") page.go("quorum");
    else if (about.kind === "partition") page.go("partition", about.name);
    else page.go("timeline");
  },
  /** Somebody asked why: the newest story is open. */
  asked: false,
  startClient: () => startClient(),
  setFilter: (text) => {
    page.filter = text;
    if (page.tape) return moved();
    clearTimeout(filtering);
    filtering = setTimeout(connect, 200);
  },
  setBack: (ms) => {
    page.back = ms;
    page.window = null;
    recall(true);
    draw();
  },
};
let player = null;
let offset = 0;
let drawn = 0;
let heard = 0;
let lost = false;
let source = null;
let filtering = 0;
let asked = { version: "", at: 0, place: "" };
let spoken = { text: "", at: 0 };
/** A record is to be shown as soon as it is there. */
let arriving = false;

start();

async function start() {
  document.documentElement.dataset.theme = colours();
  try {
    await load();
  } catch (error) {
    render(at("main"), h("h1", {}, "kraftlite"), h("p", { class: "alarm" }, error.message), h("p", {}, "In the terminal: ", h("code", {}, "kraftlite ui")));
    return;
  }
  player = page.tape ? new Player(new Tape(page.tape.frames), false, moved) : new Player(new Heard(), true, moved);
  if (page.tape) moved();
  route();
  window.addEventListener("hashchange", route);
  window.addEventListener("keydown", key);
  if (page.tape) return;
  connect();
  setInterval(() => performance.now() - drawn > 240 && draw(), 250); // ages grow, also when nobody says anything
}

/** The cluster, and the recording where this is the page of one: of the server, or in this very file. */
async function load() {
  const inside = at("tape");
  if (inside) page.tape = JSON.parse(inside.textContent);
  else {
    await open();
    page.cluster = await get("/api/v1/cluster");
    page.whatIf = page.cluster.what_if || null;
    if (page.cluster.traces === false) page.empty = "This page hears nodes by their addresses, and has none of their trace files (--trace FILE): what happened before, and why, it cannot tell.";
    if (page.cluster.recording) page.tape = await get("/api/v1/tape");
  }
  if (!page.tape) return;
  take(page.tape);
  page.back = Infinity;
  page.empty = "Nothing of it is recorded up to here.";
  if (page.cluster.recording.clock === "virtual") sinceStart();
}

function take(tape) {
  page.tape = tape;
  page.cluster = page.tape.cluster;
  page.notes = page.tape.notes;
  page.lanes = page.tape.lanes;
  page.outages = page.tape.outages;
  page.tail = page.tape.quorum;
}

/** The views that this page has. */
const views = () => Object.entries(VIEWS).filter(([name]) => (name === "whatif" ? page.whatIf : name === "clients" ? !page.tape || page.cluster.recording.clients > 0 : true));

/** Show the moment at which the player is. */
function moved() {
  if (player === null || !player.moments.times.length) return;
  const { state, partitions } = player.value();
  page.state = state;
  page.rows = partitions.rows.filter((row) => row.name.includes(page.filter));
  page.matching = page.filter ? page.rows.length : partitions.matching;
  draw();
}

function connect() {
  if (source) source.close();
  source = watch(page.filter, {
    state: (value, text) => {
      heard = Date.now();
      player.moments.push(value.t, text);
      offset = value.t - heard;
      lost = false;
      if (!page.past) {
        page.state = value;
        draw();
      } else render(at("time"), bar(player, page.stories, page.notes));
      recall(false);
    },
    partitions: (value, text) => {
      player.moments.partitions(text);
      if (page.past) return;
      page.rows = kept(page.rows, value.rows);
      page.matching = value.matching;
    },
    lost: () => {
      lost = true;
      draw();
      setTimeout(again, 2000);
    },
  });
}

/** The stream has ended for good: the server has gone, or the session. */
async function again() {
  try {
    page.cluster = await get("/api/v1/cluster");
    connect();
  } catch (error) {
    if (error.status === 401) lost = error.message;
    else setTimeout(again, 2000);
  }
}

function route() {
  const [view, subject] = location.hash.slice(1).split("/");
  if (view === "main") return;
  const moved = page.view !== view;
  if (moved && view === "overview") page.asked = false;
  page.view = views().some(([name]) => name === view) ? view : "overview";
  page.subject = decodeURIComponent(subject || "");
  page.told = null;
  recall(true);
  draw();
  if (moved) window.scrollTo(0, 0);
  arriving = page.view === "quorum" && page.subject !== "";
}

/** Ask for stories and lanes when something new was recorded, at most once a second. */
async function recall(now) {
  if (page.tape) {
    const name = page.view === "quorum" ? "controller" : page.subject || (page.rows[0] && page.rows[0].name);
    page.stories = page.tape.stories[""];
    page.told = page.tape.stories[name] || [];
    page.epochs = page.tape.epochs[name] || [];
    return;
  }
  const version = page.state ? `${page.state.recorded}/${(page.state.clients || []).map((it) => it.longest_ms).join()}` : "";
  const place = `${page.view}/${page.subject}/${page.back}`;
  const fresh = asked.version === version && asked.place === place;
  if (!page.state || (!now && (fresh || Date.now() - asked.at < 1000))) return;
  asked = { version, at: Date.now(), place };
  try {
    if (page.view === "overview" || page.view === "timeline") page.stories = (await get("/api/v1/stories")).stories;
    if (page.view === "timeline") page.lanes = await get(`/api/v1/timeline?since=${Math.round(page.range()[0])}`);
    if (page.view === "clients") page.outages = (await get("/api/v1/outages")).outages;
    if (page.view === "quorum") {
      page.told = (await get("/api/v1/stories?quiet=1&kind=controller")).stories;
      const from = /^@\d{1,15}$/.test(page.subject) ? `from=${Math.max(0, Number(page.subject.slice(1)) - 10)}&max=100` : "max=200";
      page.tail = await get(`/api/v1/quorum?${from}`);
    }
    if (page.view === "partition") {
      const name = page.subject || (page.rows[0] && page.rows[0].name);
      page.told = name ? (await get(`/api/v1/stories?quiet=1&kind=partition&name=${encodeURIComponent(name)}`)).stories : [];
      page.epochs = name ? (await get(`/api/v1/claims?about=${encodeURIComponent(name)}`)).epochs : [];
    }
  } catch (error) {
    if (error.status === 404) page.told = [];
    else asked.version = ""; // try again with the next state
  }
  draw();
}

function draw() {
  if (!page.state) return;
  drawn = performance.now();
  const late = page.tape ? 0 : Date.now() - heard;
  document.body.classList.toggle("late", late > LATE_MS || Boolean(lost));
  render(at("top"), top(late));
  render(at("time"), bar(player, page.stories, page.notes));
  const told = [];
  if (late > LATE_MS || lost) told.push(h("p", { class: "banner alarm", role: "alert" }, typeof lost === "string" ? lost : `This page has not heard from its server for ${span(late)}: what you see is as old as that.`));
  const about = page.cluster.recording;
  if (about && about.outcome && about.outcome !== "OK") told.push(h("p", { class: "banner alarm" }, `${{ full: "The recording ends early", stopped: "The recording was stopped" }[about.outcome] || about.outcome}: ${about.text}`));
  if (about && about.left_out) told.push(h("p", { class: "banner warn" }, `${about.left_out} ${about.left_out === 1 ? "event is" : "events are"} left out, being longer than 1 MiB or of another version of kraftlite (${about.made_by} made the recording): a story may lack a step.`));
  if (page.state.gone) told.push(h("p", { class: "banner alarm" }, page.state.gone));
  if (page.state.self.late_ms > 250) told.push(h("p", { class: "banner warn" }, `The page's server was late itself by ${span(page.state.self.late_ms)}: ages are less exact.`));
  const [, view] = VIEWS[page.view];
  render(at("main"), told, page.view === "overview" ? null : headlines(page), h("div", { key: page.view, class: `view ${page.view}` }, view(page)));
  render(at("foot"), foot());
  speak();
  const here = arriving && document.querySelector("tr.here");
  if (!here) return;
  arriving = false;
  here.scrollIntoView({ block: "center" });
}

function top(late) {
  const live = late <= LATE_MS && !lost;
  const about = page.cluster.recording;
  const pulse = about ? `▮ ${about.title || about.source}` : !live ? "▨ old" : page.past ? "▨ the past" : "● live";
  return [
    h("h1", {}, h("span", { "aria-hidden": "true" }, "◆ "), "kraftlite"),
    h("p", { class: "soft where" }, `${page.cluster.controllers}+${page.cluster.brokers} · ${page.cluster.cluster_id}`),
    h("nav", { "aria-label": "Views" }, views().map(([name, [title]]) => h("a", { key: name, href: `#${name}`, "aria-current": page.view === name ? "page" : undefined }, title))),
    h("p", { class: `pulse ${about || page.past ? "warn" : live ? "good" : "bad"}` }, pulse, page.role === "viewer" ? h("span", { class: "soft" }, " · looking only") : null),
    h("button", { class: "plain", onclick: theme, title: "Light, dark, or as the system", "aria-label": "Colours: light, dark, or as the system" }, "◐"),
    h("button", { class: "plain", onclick: help, "aria-label": "Help and keys" }, "?"),
  ];
}

function foot() {
  const about = page.cluster.recording;
  if (about) return [h("span", {}, `A recording of a ${about.source} cluster by kraftlite ${about.made_by}${about.outcome === "OK" ? "; every check of the run holds" : ""}. `), h("code", {}, "kraftlite ui FILE"), h("span", {}, " shows it; "), h("code", {}, "kraftlite explain --trace FILE"), h("span", {}, " reads it, too.")];
  return [h("span", {}, "What you do here is a command, too: "), h("code", {}, "kraftlite kill leader orders-0"), h("span", {}, ", "), h("code", {}, "kraftlite explain partition orders-0"), h("span", {}, ` · ${page.state.self.pages} page${page.state.self.pages === 1 ? "" : "s"} watching · `), page.role === "operator" ? h("a", { href: "/api/v1/export?format=html", download: "kraftlite.html" }, "Save the last minutes as one file") : null];
}

/** Say for a screen reader what has changed, at most once in two seconds. */
function speak() {
  const text = page.state.headlines.slice(0, 3).map((line) => line.text).join("; ");
  if (text === spoken.text || Date.now() - spoken.at < 2000) return;
  spoken = { text, at: Date.now() };
  at("live").textContent = text;
}

const [LEAST_MS, MOST_MS] = [20, 3600000];

function zoom(by, around) {
  const [since, until] = page.range();
  const length = Math.max(LEAST_MS, Math.min(MOST_MS, (until - since) / by));
  const part = around === undefined ? 0.5 : (around - since) / (until - since);
  const at = around === undefined ? (since + until) / 2 : around;
  page.window = [at - part * length, at + (1 - part) * length];
  recall(true);
  draw();
}

function shift(part) {
  const [since, until] = page.range();
  page.window = [since + part * (until - since), until + part * (until - since)];
  recall(true);
  draw();
}

/** A client on the first topic that is shown, at once. */
async function startClient() {
  const row = page.rows.find((it) => !it.topic.startsWith("__"));
  try {
    await post("/api/v1/clients", { kind: "start", topic: row.topic, rate: 100 });
  } catch {
    page.go("clients"); // says why it cannot be
  }
}

function theme() {
  const order = ["", "light", "dark"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % order.length];
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    return; // a page from a file may not be allowed to keep anything
  }
}

/** The colours that were chosen last, where the page may keep anything. */
function colours() {
  try {
    return localStorage.getItem("theme") || "";
  } catch {
    return "";
  }
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || at("ask").open || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (player.key(event, page.stories)) {
    event.preventDefault();
    return;
  }
  if (page.view === "timeline") {
    const act = { "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(0.5), a: () => shift(-0.25), d: () => shift(0.25) }[event.key];
    if (act) return act();
  }
  const view = { o: "overview", p: "partition", t: "timeline", q: "quorum", f: "faults", c: "clients", w: "whatif" }[event.key];
  if (view && views().some(([name]) => name === view)) page.go(view);
  else if (event.key === "?") help();
  else if (event.key === "/" && at("filter")) {
    event.preventDefault();
    at("filter").focus();
  }
}

function help() {
  dialog(
    "Help",
    h("p", {}, "Each number is the word of one node, with the time at which it was heard. Nothing is merged: where nodes disagree, you see both. A hatched field is a last word, and “–” is what nobody has said."),
    h("p", {}, "Kill the leader of a partition. The line on top says what is missing and for how long, the partition shows who leads next and in which epoch, and “What happened, and why” tells the chain of causes."),
    h("dl", { class: "keys" }, [["o p t q f", "overview, partition, timeline, quorum, faults"], page.tape ? null : ["c", "clients"], page.whatIf && ["w", "what if: run it again with a change"], ["/", "filter partitions"], ["+ − a d", "timeline: closer, further, earlier, later"], ["Space", "stop here, play, pause"], ["← →", "one moment back or on; with Shift, one story"], ["[ ]", "slower, faster"], ["Home, End, l", "to the beginning, to the end, live"], ["Tab, Enter", "everything else"], ["Esc", "close this"]].filter(Boolean).map(([name, words]) => h("div", {}, h("dt", {}, h("kbd", {}, name)), h("dd", {}, words)))),
    h("p", { class: "acts" }, h("button", { onclick: () => at("ask").close() }, "Close")),
  );
}

function dialog(title, ...children) {
  render(at("ask"), h("h2", { id: "ask-title" }, title), children);
  if (!at("ask").open) at("ask").showModal();
}

/** Say what the fault will look like, and do it when that is wanted. */
function ask(kind, id) {
  const node = page.state.nodes.find((it) => it.id === id);
  if (!node) return;
  const role = node.roles.join(" and ");
  const told = consequences(kind, node, page.state, page.rows, page.cluster.timings_ms);
  const risky = kind === "kill" || kind === "pause";
  const body = (error, busy) => [
    told.map((text) => h("p", { key: text }, text)),
    h("p", { class: "soft" }, "As a command: ", h("code", {}, command(kind, id)), " ", h("button", { class: "link", onclick: () => navigator.clipboard && navigator.clipboard.writeText(command(kind, id)) }, "copy")),
    error ? h("p", { class: "banner alarm", role: "alert" }, error) : null,
    h(
      "p",
      { class: "acts" },
      h("button", { id: "do-it", class: risky ? "danger strong" : "strong", disabled: busy, onclick: go }, busy ? "Asked …" : `${LABEL[kind]} node ${id}`),
      h("button", { onclick: () => at("ask").close() }, "Leave it"),
    ),
  ];
  const show = (error, busy) => dialog(`${LABEL[kind]} ${role} ${id}?`, body(error, busy));
  async function go() {
    show(null, true);
    try {
      await post("/api/v1/faults", { kind, node: id });
      at("ask").close();
    } catch (error) {
      show(error.message, false);
    }
  }
  show(null, false);
  at("do-it").focus();
}
