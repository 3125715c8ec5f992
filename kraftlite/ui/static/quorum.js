// The quorum: what each node says of the active controller.

import { h } from "./dom.js";
import { lasting } from "./overview.js";
import { stories } from "./stories.js";
import { LIFE, VERDICT, number, span } from "./words.js";

export function quorum(page) {
  const { verdict } = page.state.quorum;
  const voters = page.state.nodes.filter((node) => node.roles.includes("controller"));
  const others = page.state.nodes.filter((node) => !node.roles.includes("controller"));
  const who = verdict.leaders.length > 1 ? `${verdict.leaders.join(" and ")} each say that they are active` : verdict.leader === null ? "no active controller" : `active controller ${verdict.leader}`;
  return [
    h("h2", {}, "Quorum"),
    h("p", {}, h("b", {}, who), verdict.epoch === null ? "" : ` in epoch ${verdict.epoch}`, h("span", { class: "soft" }, ` (${VERDICT[verdict.kind]}, ${lasting(page, page.state.quorum)})`)),
    table(page, "Voters", voters),
    others.length ? table(page, "Observers", others) : null,
    h("p", { class: "soft key" }, "Each row is one node's own word. LEO is the end of its metadata log, HW is what it knows to be committed; a voter that lags is behind by a fetch."),
    h("section", { "aria-labelledby": "h-elections" }, h("h3", { id: "h-elections" }, "Elections, and why"), stories(page.sofar(page.told), page.tape ? page.empty : "No election is recorded in the last ten minutes.", page.seek)),
  ];
}

function table(page, name, nodes) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
    h(
      "table",
      {},
      h("caption", {}, name),
      h("thead", {}, h("tr", {}, ["node", "it", "says it is", "epoch", "its leader", "LEO", "HW", "image", "heard"].map((it) => h("th", { scope: "col" }, it)))),
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
