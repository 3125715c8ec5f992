// What if: the run of a seed once more, with a change, and both runs side by side.

import { post } from "./api.js";
import { h } from "./dom.js";
import { Tape } from "./tape.js";
import { chart } from "./timeline.js";
import { clock, number, span } from "./words.js";

const form = { lines: null, added: "", seed: "", busy: false, said: null, found: null };

export function whatIf(page) {
  const about = page.whatIf;
  if (form.lines === null) Object.assign(form, { lines: about.faults.map((line) => ({ line, out: false })), seed: String(about.seed) });
  return [
    h("h2", {}, "What if"),
    h("p", {}, "The same run from its beginning, with a change: both are the same until the change matters. A fault is a line: when (ms), what, to whom, for how long (ms)."),
    about.made_by === about.run_by ? null : h("p", { class: "banner warn" }, `The recording was made by kraftlite ${about.made_by}, and this is ${about.run_by}: both runs are made anew, and may be other ones.`),
    asking(page, about),
    form.found ? told(page, form.found) : null,
  ];
}

/** The changes, as the server and the command take them. */
function wanted(about) {
  const changes = form.lines.flatMap(({ line, out }, at) => (out ? [[at + 1, null]] : line.trim() !== about.faults[at] ? [[at + 1, line.trim()]] : []));
  if (form.added.trim()) changes.push([about.faults.length + 1, form.added.trim()]);
  const seed = form.seed.trim();
  return { changes, seed: seed === String(about.seed) || !/^\d{1,15}$/.test(seed) ? null : Number(seed) };
}

const quoted = (text) => `'${text.replace(/'/g, "'\"'\"'")}'`;

function command(about, { changes, seed }) {
  const options = [...(seed === null ? [] : [`seed=${seed}`]), ...changes.map(([at, line]) => `${at}=${line || ""}`)];
  return `${about.command} ${options.map((it) => `--what-if ${quoted(it)}`).join(" ")}`;
}

function asking(page, about) {
  const set = (what, value) => {
    Object.assign(what, value);
    page.draw();
  };
  const line = (label, what, name, more) => h("input", { type: "text", class: "fault", maxlength: 200, spellcheck: "false", "aria-label": label, value: what[name], oninput: (event) => set(what, { [name]: event.target.value }), ...more });
  const asked = wanted(about);
  const nothing = !asked.changes.length && asked.seed === null;
  return h(
    "section",
    { "aria-label": "The change" },
    h(
      "ol",
      { class: "changes" },
      form.lines.map((it, at) => h("li", { key: `f${at}` }, line(`Fault ${at + 1}`, it, "line", { disabled: it.out }), h("label", {}, h("input", { type: "checkbox", checked: it.out, onchange: (event) => set(it, { out: event.target.checked }) }), ` without fault ${at + 1}`))),
      h("li", { key: "new" }, line("A new fault", form, "added", { placeholder: "a new one, e.g. 4000 kill leader orders-0 for 3000" })),
    ),
    h("p", { class: "acts" }, h("label", {}, "Seed ", h("input", { type: "text", inputmode: "numeric", maxlength: 15, size: 8, value: form.seed, oninput: (event) => set(form, { seed: event.target.value }) })), h("span", { class: "soft" }, "Another seed keeps the cluster and the faults, and changes all other chance.")),
    h(
      "p",
      { class: "acts" },
      about.may ? h("button", { id: "run-again", class: "strong", disabled: form.busy || nothing, onclick: () => run(page, asked) }, form.busy ? "Both runs are under way …" : "Run it again") : h("span", { class: "soft" }, "This link is for looking only: the other link has a button here."),
      h("button", { disabled: form.busy, onclick: () => set(form, { lines: null, added: "" }) }, "As it was"),
    ),
    nothing ? null : h("p", { class: "soft" }, "As a command: ", h("code", {}, command(about, asked))),
    h("p", { class: "unseen", role: "status" }, form.busy ? "Both runs are under way" : form.found ? `Both runs have ended. ${parting(form.found)}` : ""),
    form.said ? h("p", { class: "banner alarm", role: "alert" }, form.said) : null,
  );
}

async function run(page, asked) {
  Object.assign(form, { busy: true, said: null });
  page.draw();
  try {
    const found = await post("/api/v1/what-if", asked);
    if (form.found) page.show(form.found.first);
    form.found = { ...found, first: page.tape, moments: [new Tape(page.tape.frames), new Tape(found.tape.frames)] };
  } catch (error) {
    form.said = error.message;
  }
  form.busy = false;
  page.draw();
}

function parting({ parting }) {
  return parting ? `Both are the same until ${clock(parting.at_ms)} (${number(parting.same)} events).` : "Both runs are the same, event for event.";
}

const ROWS = [
  ["it ends", (run) => (run.story ? `${run.outcome}: ${run.checker}: ${run.story}` : run.outcome)],
  ["records acknowledged", (run) => `${number(run.records.acknowledged)} of ${number(run.records.produced)}`],
  ["records consumed", (run) => number(run.records.consumed)],
  ["two active controllers at once", (run) => (run.two_active_controllers_ms ? span(run.two_active_controllers_ms) : "never")],
  ["events", (run) => number(run.events)],
  ["seed", (run) => number(run.seed)],
  ["faults", (run) => run.faults.map((it) => h("div", {}, it))],
];

function told(page, found) {
  const { as_it_was: first, what_if: second } = found;
  const ends = found.moments.map((it) => it.end);
  const range = () => [0, Math.max(...ends, 1)];
  const shown = { past: true, now: page.now, seek: page.seek, range };
  const changed = page.tape === found.tape;
  const sides = [["As it was", found.first, found.moments[0]], ["What if", found.tape, found.moments[1]]];
  return [
    h(
      "section",
      { "aria-labelledby": "h-part" },
      h("h3", { id: "h-part" }, "Where they part"),
      h("p", {}, parting(found), " ", found.parting ? h("button", { class: "link", onclick: () => page.seek(found.parting.at_ms) }, "Go there") : null),
      found.parting ? h("dl", { class: "part" }, h("dt", {}, "as it was"), h("dd", {}, h("code", {}, found.parting.as_it_was || "nothing more")), h("dt", {}, "what if"), h("dd", {}, h("code", {}, found.parting.what_if || "nothing more"))) : null,
    ),
    h(
      "section",
      { "aria-labelledby": "h-differ" },
      h("h3", { id: "h-differ" }, "How they end"),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Both runs compared" },
        h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), h("th", { scope: "col" }, "as it was"), h("th", { scope: "col" }, "what if"))), h("tbody", {}, ROWS.map(([name, of]) => h("tr", { key: name, class: String(name !== "faults" && of(first) !== of(second) ? "differs" : "") }, h("th", { scope: "row" }, name), h("td", { class: "wide" }, of(first)), h("td", { class: "wide" }, of(second)))))),
      ),
    ),
    h(
      "section",
      { "aria-labelledby": "h-both" },
      h("h3", { id: "h-both" }, `Both at ${clock(page.now())}`),
      h("p", { class: "acts", role: "group", "aria-label": "The run that the other views show" }, "The other views show: ", h("button", { "aria-pressed": String(!changed), onclick: () => page.show(found.first) }, "as it was"), h("button", { "aria-pressed": String(changed), onclick: () => page.show(found.tape) }, "what if")),
      sides.map(([name, tape, moments]) => h("section", { key: name, class: "side", "aria-label": name }, h("h4", {}, name), now(moments, page.now()), chart(shown, tape.lanes, `Timeline: ${name.toLowerCase()}`))),
    ),
  ];
}

/** What was wrong at a moment of one run. */
function now(moments, ms) {
  if (ms > moments.end) return h("p", { class: "soft" }, `This run has ended at ${clock(moments.end)}.`);
  return h("ul", { class: "headlines" }, moments.at(ms).state.headlines.map((line) => h("li", { class: line.level }, h("span", {}, line.text))));
}
