// The timeline: a lane for the faults, the quorum, each node, and some partitions. Two bars above each other are two beliefs at once.

import { h } from "./dom.js";
import { stories } from "./stories.js";
import { clock } from "./words.js";

const SPANS = [["1 min", 60000], ["3 min", 180000], ["10 min", 600000]];
const OF_TAPE = [["1 s", 1000], ["10 s", 10000], ["1 min", 60000], ["all", Infinity]];
const ROW = 22;

export function timeline(page) {
  const data = page.lanes;
  return [
    h("h2", {}, "Timeline"),
    h("p", { class: "acts", role: "group", "aria-label": "How far back" }, (page.tape ? OF_TAPE : SPANS).map(([name, ms]) => h("button", { key: name, "aria-pressed": String(!page.window && page.back === ms), onclick: () => page.setBack(ms) }, name)), [["Closer", "+", () => page.zoom(2)], ["Further", "−", () => page.zoom(0.5)], ["Earlier", "◀", () => page.shift(-0.25)], ["Later", "▶", () => page.shift(0.25)]].map(([name, text, act]) => h("button", { key: name, class: "plain", "aria-label": name, title: name, onclick: act }, text))),
    data ? chart(page, data, "Timeline; the same is told in words below") : h("p", { class: "soft" }, "Reading what the nodes recorded …"),
    h("p", { class: "soft key" }, "Click for the moment; Ctrl and the wheel, or + and −, to look closer. Green: its process runs. Blue: it believes to lead. Red: fenced, or stood still. Orange: a fault, and by whom. Where two bars of one lane lie above each other, two nodes believed to lead at once."),
    h("section", { "aria-labelledby": "h-all" }, h("h3", { id: "h-all" }, "The same in words"), stories(page.stories, page.empty, page.seek, page.asked)),
  ];
}

/** Put the spans of a lane into rows, so that none lies over another. */
function rows(spans, until) {
  const ends = [];
  return spans.map((span) => {
    let row = ends.findIndex((end) => end <= span.from);
    if (row < 0) row = ends.push(0) - 1;
    ends[row] = span.until === null ? until + 1 : Math.max(span.until, span.from + 1);
    return { ...span, row };
  });
}

/** `named`: what a screen reader calls it. */
export function chart(page, data, named) {
  const narrow = window.innerWidth < 640;
  const most = narrow ? 9 : 26;
  const short = (name) => (name.length > most ? `${name.slice(0, most - 8)}…${name.slice(-7)}` : name);
  const left = narrow ? 66 : Math.max(120, 16 + 7 * Math.max(...data.lanes.map((name) => short(name).length)));
  const width = narrow ? Math.max(300, window.innerWidth - 26) : 1180;
  const [since, until] = page.range();
  const x = (ms) => left + ((Math.max(since, Math.min(until, ms)) - since) / (until - since)) * (width - left - 8);
  const moment = (event) => since + (((event.offsetX / event.currentTarget.clientWidth) * width - left) / (width - left - 8)) * (until - since);
  const closer = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    page.zoom(event.deltaY < 0 ? 1.4 : 1 / 1.4, moment(event));
  };
  let y = 26;
  const drawn = [];
  for (const lane of data.lanes) {
    // Fenced lies over the bar of the process; what overlaps otherwise gets a row of its own.
    const mine = data.spans.filter((it) => it.lane === lane && it.from <= until && (it.until === null || it.until >= since));
    const over = mine.filter((it) => it.kind === "fenced").map((it) => ({ ...it, row: 0 }));
    const base = rows(mine.filter((it) => !over.some((other) => other.kind === it.kind)), until);
    const count = Math.max(1, ...base.map((it) => it.row + 1));
    drawn.push(h("text", { class: "lane", x: left - 8, y: y + 15, "text-anchor": "end" }, short(lane)), h("line", { class: "rule", x1: left, x2: width, y1: y + count * ROW + 3, y2: y + count * ROW + 3 }));
    for (const it of [...base, ...over]) drawn.push(...span(it, x, y + it.row * ROW, until));
    y += count * ROW + 6;
  }
  const ticks = narrow ? 2 : 6;
  const grid = Array.from({ length: ticks + 1 }, (_, i) => since + (i * (until - since)) / ticks);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": named },
    h(
      "svg",
      { class: "chart", viewBox: `0 0 ${width} ${y + 4}`, role: "img", onclick: (event) => page.seek(moment(event)), onwheel: (event) => closer(event), "aria-label": `What each node believed from ${clock(since)} to ${clock(until)}` },
      grid.map((at, i) => [h("line", { class: "rule", x1: x(at), x2: x(at), y1: 20, y2: y }), h("text", { class: "tick", x: x(at), y: 14, "text-anchor": i === 0 ? "start" : i === ticks ? "end" : "middle" }, until - since < 20000 ? clock(at) : clock(at).replace(/(:\d\d)\.\d+$/, "$1"))]),
      drawn,
      page.past ? h("line", { class: "cursor", x1: x(page.now()), x2: x(page.now()), y1: 16, y2: y }) : null,
    ),
  );
}

function span(it, x, y, until) {
  const from = x(it.from);
  const end = Math.max(x(it.until === null ? until : it.until), from + 3);
  const room = Math.floor((end - from - 8) / 7);
  const text = it.label.length <= room ? it.label : room > 8 ? `${it.label.slice(0, room - 1)}…` : "";
  return [
    h("rect", { class: `span ${it.kind}`, x: from, y: y + 2, width: end - from, height: ROW - 4, rx: 3 }, h("title", {}, `${it.lane}: ${it.label}, ${clock(it.from)} – ${it.until === null ? "now" : clock(it.until)}`)),
    text ? h("text", { class: `label ${it.kind}`, x: from + 5, y: y + 15 }, text) : null,
  ];
}
