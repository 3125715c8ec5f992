// One partition: a bar for each replica, by its own word; who says who leads; and its stories.

import { h } from "./dom.js";
import { lost, standing } from "./overview.js";
import { stories } from "./stories.js";
import { LIFE, VERDICT, number, span } from "./words.js";

export function partition(page) {
  const row = page.rows.find((it) => it.name === page.subject) || page.rows[0];
  if (!row) return [h("h2", {}, "Partition"), h("p", { class: "soft" }, "No broker has spoken of any partition.")];
  const ends = row.replicas.flatMap((it) => (it.leo === null ? [] : [it.leo]));
  const starts = row.replicas.flatMap((it) => (it.start === null ? [] : [it.start]));
  const top = Math.max(1, ...ends);
  // Where replicas are close together at a high offset, only the end of the scale tells them apart.
  const spread = top - Math.min(...ends, top);
  const low = Math.max(Math.min(...starts, top), top - Math.max(60, spread * 3));
  const epochs = page.sofar(page.epochs || [], "ts");
  return [
    h("h2", {}, h("label", {}, "Partition ", h("select", { value: row.name, onchange: (event) => page.go("partition", event.target.value) }, page.rows.map((it) => h("option", { value: it.name, key: it.name, selected: it.name === row.name }, it.name))))),
    h("p", {}, verdict(row), " · ISR ", h("b", {}, row.isr.join(", ") || "–"), ` (as ${row.told_by} says) · min ${number(row.min_isr)} · `, standing(page, row)),
    row.lost ? h("p", { class: "bad" }, lost(row)) : null,
    h(
      "section",
      { "aria-labelledby": "h-bars" },
      h("h3", { id: "h-bars" }, "Replicas, each by its own word"),
      h("div", { class: "scale soft", "aria-hidden": "true" }, h("span", {}, number(low)), h("span", {}, "offset"), h("span", {}, number(top))),
      h("ul", { class: "bars" }, row.replicas.map((it) => bar(page, row, it, low, top, epochs))),
      epochs.length ? h("p", {}, "Epochs: ", epochs.map((it, at) => [at ? " · " : "", h("b", {}, `e${it.epoch}`), ` from offset ${number(it.start)}, led by ${it.leader}`])) : null,
      h("p", { class: "soft key" }, "The bar ends at the replica's log end offset (LEO); its dark part is below the high watermark (HW) that it knows: what consumers see. A hatched bar is a last word."),
    ),
    h(
      "section",
      { "aria-labelledby": "h-claims" },
      h("h3", { id: "h-claims" }, "Who says who leads"),
      h("ul", { class: "claims" }, row.claims.map((claim) => h("li", { key: `c${claim.by}`, class: claim.fresh ? "" : "lastword" }, `${claim.by} ${claim.fresh ? "says" : "said last"}: `, h("b", {}, claim.leader === null ? "nobody leads" : claim.own ? "I lead" : `${claim.leader} leads`), ` in epoch ${claim.epoch}`))),
    ),
    h("section", { "aria-labelledby": "h-why" }, h("h3", { id: "h-why" }, "What happened to it, and why"), stories(page.sofar(page.told), page.empty, page.seek, page.asked)),
  ];
}

function verdict(row) {
  const { kind, leader, epoch } = row.verdict;
  const who = leader === null ? "no leader" : `leader ${leader}`;
  return [h("b", {}, who), epoch === null ? "" : ` in epoch ${epoch}`, h("span", { class: "soft" }, ` (${VERDICT[kind]})`)];
}

/** The records of a replica that an epoch which it has not heard of does not have: it cuts them off when it hears of it. */
function beyond(replica, epochs) {
  const next = epochs.find((it) => replica.epoch !== null && it.epoch > replica.epoch);
  const more = next && replica.leo !== null ? replica.leo - next.start : 0;
  return more > 0 ? { more, epoch: next.epoch, start: next.start } : null;
}

/** What the leader knows of a follower, by its fetches alone, beside its own word. */
function leaderKnows(page, row, replica) {
  const leader = row.replicas.find((it) => it.node === row.told_by);
  const says = `${row.told_by} ${leader && leader.fresh ? "says" : "said last"}`;
  if (replica.seen < 0) return `${says}: it has not fetched in epoch ${leader ? leader.epoch : "–"}${replica.holds ? ", and the HW waits for it" : ""}`;
  const apart = replica.leo === null ? 0 : replica.leo - replica.seen;
  const differs = !apart ? "" : apart > 0 ? ` (${number(apart)} fewer than its own word)` : ` (${number(-apart)} more than its own word)`;
  return `${says}: it has fetched up to ${number(replica.seen)}${differs}${replica.holds ? "; the HW waits for it" : ""}`;
}

function bar(page, row, replica, low, top, epochs) {
  const node = page.state.nodes.find((it) => it.id === replica.node);
  const part = (value) => `${(100 * Math.max(0, Math.min(1, (value - low) / Math.max(1, top - low)))).toFixed(2)}%`;
  const leads = replica.says === "leader";
  const words = replica.says === null ? "has not said anything of it" : `${replica.fresh ? "" : "said last that it "}${leads ? "leads" : "follows"} in epoch ${replica.epoch} · LEO ${number(replica.leo)} · HW ${number(replica.hw)}`;
  const alone = beyond(replica, epochs);
  const late = replica.fresh || !node || node.replicas_ms === null ? "" : ` · last word ${span(page.now() - node.replicas_ms)} ago`;
  return h(
    "li",
    { key: `r${replica.node}` },
    h("p", {}, h("b", {}, `${!replica.fresh ? "▨ " : leads ? "◆ " : row.isr.includes(replica.node) ? "● " : "◐ "}${replica.node}`), ` ${words}`, node && node.life !== "alive" ? h("span", { class: "bad" }, ` · ${LIFE[node.life].word}`) : null, h("span", { class: "soft" }, late)),
    replica.seen === null || replica.seen === undefined ? null : h("p", { class: replica.holds ? "warn" : "soft" }, leaderKnows(page, row, replica)),
    alone ? h("p", { class: "warn" }, `${number(alone.more)} ${alone.more === 1 ? "record" : "records"} from offset ${number(alone.start)} on that epoch ${alone.epoch} does not have: cut off when it hears of that epoch.`) : null,
    replica.leo === null
      ? h("div", { class: "bar unknown" })
      : h("div", { class: `bar${replica.fresh ? "" : " stale"}${leads && replica.fresh ? " leads" : ""}` }, h("div", { class: "leo", style: { width: part(replica.leo) } }), h("div", { class: "hw", style: { width: part(replica.hw) } }), epochs.filter((it) => it.start > low && it.start <= top && it.start <= replica.leo).map((it) => h("span", { key: `e${it.epoch}`, class: "epoch", title: `epoch ${it.epoch} begins at ${it.start}`, style: { left: part(it.start) } }))),
  );
}
