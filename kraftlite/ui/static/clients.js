// Clients: what they were told, and their outages beside those of the cluster.

import { post } from "./api.js";
import { h } from "./dom.js";
import { clock, number, span } from "./words.js";

const form = { topic: "", rate: 100, busy: false, said: null };

export function clients(page) {
  const found = page.state.clients || [];
  return [
    h("h2", {}, "Clients"),
    h("p", { class: "soft" }, "A client writes with acks=all, and says what it was told. What it missed is its own view: it waits on a socket, backs off, or asks for the new leader when the cluster could be written long ago."),
    page.role === "operator" ? starting(page) : null,
    found.length ? found.map((it) => client(page, it)) : h("p", { class: "soft" }, "No client has said anything."),
    found.length ? outages(page) : null,
  ];
}

const topics = (page) => [...new Set(page.rows.map((row) => row.topic).filter((name) => !name.startsWith("__")))].sort();

function starting(page) {
  const own = page.state.client;
  const known = topics(page);
  const topic = known.includes(form.topic) ? form.topic : known[0];
  const set = (value) => {
    Object.assign(form, value);
    page.draw();
  };
  return h(
    "section",
    { "aria-label": "A client of this page" },
    own.running
      ? h("p", { class: "acts" }, h("button", { key: "stop", disabled: form.busy, onclick: () => act(page, { kind: "stop" }) }, "Stop the client"))
      : known.length
        ? h(
            "p",
            { class: "acts" },
            h("label", {}, "Topic ", h("select", { onchange: (event) => set({ topic: event.target.value }) }, known.map((name) => h("option", { key: name, value: name, selected: name === topic }, name)))),
            h("label", {}, "Records a second ", h("input", { type: "number", min: 1, max: 1000, value: form.rate, onchange: (event) => set({ rate: Number(event.target.value) }) })),
            h("button", { key: "start", class: "strong", disabled: form.busy, onclick: () => act(page, { kind: "start", topic, rate: form.rate }) }, "Start a client"),
          )
        : h("p", { class: "soft" }, "Make a topic first: ", h("code", {}, "kraftlite create-topic orders --partitions 3 --replication-factor 3")),
    known.length ? h("p", { class: "soft" }, "As a command: ", h("code", {}, `python -m kraftlite.local.workload --data-dir ${page.cluster.data_dir} --topic ${topic} --rate ${form.rate}`)) : null,
    form.said || own.why ? h("p", { class: "banner alarm", role: "alert" }, form.said || own.why) : null,
  );
}

async function act(page, what) {
  Object.assign(form, { busy: true, said: null });
  page.draw();
  try {
    await post("/api/v1/clients", what);
  } catch (error) {
    form.said = error.message;
  }
  form.busy = false;
  page.draw();
}

function client(page, it) {
  const errors = Object.entries(it.errors);
  const id = `h-client-${it.client}`;
  const facts = [
    ["acknowledged", number(it.acked)],
    ["refused", number(it.refused)],
    ["in doubt", number(it.in_doubt)],
    ["under way", number(it.outstanding)],
    ["consumed", number(it.consumed)],
    ["half are answered within", span(it.p50)],
    ["99 of 100 within", span(it.p99)],
    ["longest without an acknowledgement", it.longest_ms === null ? "no gap" : span(it.longest_ms)],
  ];
  return h(
    "section",
    { key: it.client, "aria-labelledby": id },
    h("h3", { id }, `${it.client} → ${it.topic}`),
    h("p", { class: "soft" }, it.old ? `It has said nothing more for ${span(page.now() - it.at)}.` : it.waits_ms !== null && page.now() - it.waits_ms > 1000 ? `It waits for an acknowledgement for ${span(page.now() - it.waits_ms)}.` : "It goes on."),
    h("p", { class: "counts" }, facts.map(([name, value]) => h("span", { key: name }, h("b", {}, value), ` ${name}`))),
    errors.length ? h("p", {}, "It was told: ", errors.map(([name, count]) => `${name} (${number(count)})`).join(", ")) : null,
  );
}

function outages(page) {
  const found = (page.outages || []).filter((it) => it.from <= page.now()).map((it) => ({ ...it, cluster: it.cluster.filter((one) => one.from <= page.now()) }));
  const lasts = (until) => until === null || until > page.now(); // at the moment that is shown
  const stretch = (from, until) => `${clock(from)} – ${lasts(until) ? "now" : clock(until)}`;
  const length = (from, until) => span((lasts(until) ? page.now() : until) - from);
  return h(
    "section",
    { "aria-labelledby": "h-outages" },
    h("h3", { id: "h-outages" }, "Outages: the client's view, and the cluster's"),
    found.length
      ? h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Outages" },
          h(
            "table",
            {},
            h("thead", {}, h("tr", {}, ["partition", "client", "had no acknowledgement", "for", "the cluster", "for"].map((name) => h("th", { scope: "col" }, name)))),
            h(
              "tbody",
              {},
              found.map((it) =>
                h(
                  "tr",
                  { key: `${it.client}-${it.name}-${it.from}` },
                  h("th", { scope: "row" }, h("a", { href: `#partition/${encodeURIComponent(it.name)}` }, it.name)),
                  h("td", {}, it.client),
                  h("td", {}, stretch(it.from, it.until)),
                  h("td", {}, length(it.from, it.until)),
                  h("td", { class: "wide" }, it.cluster.length ? it.cluster.map((one) => h("div", {}, one.title.replace(`${it.name}: `, ""), h("span", { class: "soft" }, ` · ${stretch(one.from, one.until)}`))) : h("span", { class: "soft" }, "it acknowledged, as far as is recorded")),
                  h("td", {}, it.cluster.length ? it.cluster.map((one) => h("div", {}, length(one.from, one.until))) : "–"),
                ),
              ),
            ),
          ),
        )
      : h("p", { class: "soft" }, "None: every acknowledgement came within 0.3 s of the one before."),
  );
}
