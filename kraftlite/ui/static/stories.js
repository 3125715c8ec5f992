// Stories: what happened, and why, step by step.

import { h } from "./dom.js";
import { clock, span } from "./words.js";

const SIGNS = { fault: "✸", elected: "★", leader_changed: "◆", not_writable: "▌", fenced: "▲", unfenced: "△", died: "╳", paused: "‖", truncated: "✂", started: "↑", stopped: "↓", hw_stalled: "▌", log_damaged: "✖", voters: "⚑", level: "⇧" };

/** `seek`: go to a time, where that can be done. `open`: the newest one is open. */
export function stories(found, empty, seek, open = false) {
  if (!found) return h("p", { class: "soft" }, "Reading what the nodes recorded …");
  if (!found.length) return h("p", { class: "soft" }, empty || "Nothing has happened in the last ten minutes.");
  return h("ol", { class: "stories" }, found.map((story, at) => h("li", { key: `${story.kind}-${story.at_ms}-${story.title}` }, one(story, seek, open && at === 0))));
}

function one(story, seek, open) {
  const at = (ms, name) => (seek ? h("button", { class: "link", "aria-label": `${clock(ms)}: ${name}`, onclick: () => seek(ms) }, clock(ms)) : clock(ms));
  const length = story.kind === "started" ? "" : story.until_ms !== null && story.until_ms > story.from_ms ? ` · ${span(story.until_ms - story.from_ms)}` : story.until_ms === null ? " · goes on" : "";
  return h(
    "details",
    { open },
    h(
      "summary",
      {},
      h("span", { class: "when" }, clock(story.at_ms)),
      h("span", { class: "mark", "aria-hidden": "true" }, SIGNS[story.kind] || "·"),
      h("span", { class: "title" }, story.title, h("span", { class: "soft" }, length)),
    ),
    h("p", { class: "chain" }, story.chain, seek ? [" ", at(story.from_ms, "Go to where it begins")] : null),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Steps of the story" },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ["step", "when", "where", "because of", "what"].map((name) => h("th", { scope: "col" }, name)))),
        h(
          "tbody",
          {},
          story.steps.map((step) =>
            h(
              "tr",
              {},
              h("td", {}, step.step),
              h("td", {}, at(step.ms, `Go to step ${step.step}`)),
              h("td", {}, step.node < 0 ? "ledger" : `node ${step.node}`),
              h("td", {}, step.because === null ? "" : `step ${step.because}`),
              h("td", { class: "wide" }, step.what, step.record !== null ? [" ", h("a", { href: `#quorum/@${step.record}`, "aria-label": `Record ${step.record}` }, `@${step.record}`)] : null),
            ),
          ),
        ),
      ),
    ),
    story.more ? h("p", { class: "soft" }, `and ${story.more} more steps`) : null,
  );
}
