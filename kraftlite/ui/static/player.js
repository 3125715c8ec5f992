// Time: where one is in it, and the buttons and keys that move it. Going back stops nothing but the picture.

import { h } from "./dom.js";
import { clock, span } from "./words.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10];
const TICK_MS = 100;

export class Player {
  /** `moments` can be gone back to; `live`: their end moves on, and one may follow it. */
  constructor(moments, live, moved) {
    this.moments = moments;
    this.live = live;
    this.moved = moved;
    this.cursor = live ? null : moments.begin;
    this.playing = false;
    this.speed = 1;
    this.ticked = 0;
    setInterval(() => this.tick(), TICK_MS);
  }
  get past() {
    return this.cursor !== null;
  }
  get ms() {
    return this.cursor === null ? this.moments.end : this.cursor;
  }
  value() {
    return this.moments.at(this.ms);
  }
  tick() {
    const now = performance.now();
    const passed = now - this.ticked;
    this.ticked = now;
    if (!this.playing || !this.past) return;
    const to = this.cursor + Math.min(passed, 10 * TICK_MS) * this.speed;
    if (to < this.moments.end) this.cursor = to;
    else {
      this.playing = false;
      this.cursor = this.live ? null : this.moments.end;
    }
    this.moved();
  }
  seek(ms) {
    if (!this.moments.times.length) return;
    this.cursor = Math.max(this.moments.begin, Math.min(this.moments.end, ms));
    this.moved();
  }
  play() {
    if (this.live && !this.past) {
      this.cursor = this.moments.end;
      this.playing = false;
    } else {
      if (!this.playing && this.cursor >= this.moments.end) this.cursor = this.moments.begin;
      this.playing = !this.playing;
    }
    this.ticked = performance.now();
    this.moved();
  }
  step(by) {
    this.playing = false;
    this.seek(this.moments.beside(this.ms, by));
  }
  /** To the story before or behind. */
  story(stories, by) {
    const times = (stories || []).map((it) => it.at_ms).sort((a, b) => a - b);
    const found = by > 0 ? times.find((at) => at > this.ms) : times.reverse().find((at) => at < this.ms);
    if (found === undefined) return;
    this.playing = false;
    this.seek(found);
  }
  faster(by) {
    this.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, SPEEDS.indexOf(this.speed) + by))];
    this.moved();
  }
  goLive() {
    if (!this.live) return;
    this.cursor = null;
    this.playing = false;
    this.moved();
  }
  /** Do what a key stands for; returns whether it stands for anything. */
  key(event, stories) {
    const act = {
      " ": () => this.play(),
      ArrowLeft: () => (event.shiftKey ? this.story(stories, -1) : this.step(-1)),
      ArrowRight: () => (event.shiftKey ? this.story(stories, 1) : this.step(1)),
      Home: () => this.seek(this.moments.begin),
      End: () => (this.live ? this.goLive() : this.seek(this.moments.end)),
      "[": () => this.faster(-1),
      "]": () => this.faster(1),
      l: () => this.goLive(),
    }[event.key];
    const onButton = event.key === " " && /^(BUTTON|SUMMARY|A)$/.test(event.target.tagName);
    const scrolls = /^(Arrow|Home|End)/.test(event.key) && event.target.closest(".scroll"); // a table that is wider than its place
    if (!act || onButton || scrolls) return false;
    act();
    return true;
  }
}

const button = (label, sign, act, more) => h("button", { key: label, class: "plain", "aria-label": label, title: label, onclick: act, ...more }, sign);

/** The row of buttons, and the line on which one moves through time. */
export function bar(player, stories, notes) {
  const { moments } = player;
  if (moments.times.length < 2) return null;
  const length = Math.max(1, moments.end - moments.begin);
  const where = player.past ? `${clock(player.ms)}${player.live ? `, ${span(moments.end - player.ms)} ago` : ""}` : "live";
  const part = (ms) => (1000 * Math.max(0, Math.min(length, ms - moments.begin))) / length;
  return h(
    "section",
    { class: `time${player.past && player.live ? " past" : ""}`, "aria-label": "Time" },
    h(
      "p",
      { class: "acts" },
      button("Story before", "◀◀", () => player.story(stories, -1)),
      button("Moment before", "|◀", () => player.step(-1)),
      button(player.playing ? "Pause" : player.past ? "Play" : "Stop here", player.playing || !player.past ? "‖" : "▶", () => player.play()),
      button("Moment behind", "▶|", () => player.step(1), { disabled: !player.past }),
      button("Story behind", "▶▶", () => player.story(stories, 1), { disabled: !player.past }),
      h("label", {}, h("span", { class: "unseen" }, "Speed"), h("select", { value: String(player.speed), onchange: (event) => player.faster(SPEEDS.indexOf(Number(event.target.value)) - SPEEDS.indexOf(player.speed)) }, SPEEDS.map((it) => h("option", { key: `x${it}`, value: String(it), selected: it === player.speed }, `×${it}`)))),
      h("b", { class: "moment" }, where),
      player.live ? button("Go live", "● live", () => player.goLive(), { disabled: !player.past }) : null,
    ),
    h(
      "svg",
      { class: "marks", viewBox: "0 0 1000 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      (stories || []).filter((it) => it.at_ms >= moments.begin).map((it) => h("rect", { class: "story", x: part(it.at_ms), y: 0, width: 2, height: 8 })),
      (notes || []).map(([from, , until]) => h("rect", { class: "note", x: part(from), y: 5, width: Math.max(2, part(until || from) - part(from)), height: 3 })),
    ),
    h("input", { id: "scrubber", type: "range", min: moments.begin, max: moments.end, step: 1, value: String(Math.round(player.ms)), "aria-label": "Moment", "aria-valuetext": where, oninput: (event) => player.seek(Number(event.target.value)) }),
  );
}
