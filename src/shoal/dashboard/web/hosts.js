import { h, show } from "./dom.js";
import { count, decimal, duration, percent, until } from "./format.js";
import { failure, field, heading, nothing, table } from "./parts.js";
import { living } from "./living.js";

const PAUSES = { "10 minutes": 600, "1 hour": 3600, "6 hours": 21600, "1 day": 86400, "until resumed": 36500 * 86400 };
const ORDERS = { host: "Host", queued: "Queued", leased: "Leased", done: "Done", delay_s: "Delay", latency_s: "Latency", error_rate: "Errors", failures: "Failures", paused_until: "Paused until" };

export const hosts = {
  title: "Hosts",
  open(context) {
    const { root, params, go } = context;
    const by = params.by in ORDERS ? params.by : "queued";
    const ascending = params.up ? params.up === "1" : by === "host";
    const having = params.having ?? "", limit = Number(params.limit) || 100;
    const again = (changes) => go("hosts", { by, up: ascending ? "1" : "0", having, limit: limit === 100 ? null : limit, ...changes });
    let waiting;
    const search = h("input", { id: "host-search", type: "search", placeholder: "part of a name", "aria-label": "Search hosts", value: having,
      oninput: (event) => { clearTimeout(waiting); const text = event.target.value.trim().toLowerCase(); waiting = setTimeout(() => again({ having: text, limit: null }), 300); } });
    const order = h("select", { class: "narrow", id: "host-order", "aria-label": "Order", value: by },
      Object.entries(ORDERS).map(([name, label]) => h("option", { value: name, selected: name === by }, label)));
    const typing = document.activeElement?.id === "host-search";
    const body = h("div");
    const old = root.querySelector("#hosts-body");
    if (!old) root.replaceChildren(heading("Hosts", order, search), Object.assign(body, { id: "hosts-body" }));
    else if (!typing) root.querySelector("#host-search").value = having;
    const target = old ?? body;
    if (old) root.querySelector("#host-search").oninput = search.oninput;
    root.querySelector("#host-order").value = by;
    root.querySelector("#host-order").onchange = (event) => again({ by: event.target.value, up: event.target.value === "host" ? "1" : "0" });

    const sorter = (name) => ({
      sort: by === name ? (ascending ? "ascending" : "descending") : null,
      head: h("button", { class: "sorter", onclick: () => again({ by: name, up: by === name ? (ascending ? "0" : "1") : name === "host" ? "1" : "0" }) },
        ORDERS[name], h("span", { "aria-hidden": "true" }, by === name ? (ascending ? " ↑" : " ↓") : "")),
    });
    const draw = (found, error) => {
      if (error) return show(target, failure(error));
      const { now } = found;
      const columns = [
        { name: "Host", ...sorter("host"), cell: ({ record }) => h("span", { class: "url" }, record.host) },
        { name: "Queued", class: "number", ...sorter("queued"), cell: ({ record }) => count(record.queued) },
        { name: "Leased", class: "number", ...sorter("leased"), cell: ({ record }) => `${count(record.leased)} of ${count(record.at_once)}` },
        { name: "Done", class: "number", ...sorter("done"), cell: ({ record }) => count(record.done) },
        { name: "Delay", class: "number", ...sorter("delay_s"), cell: ({ record }) => [`${decimal(record.delay_s)} s`, record.set_delay_s !== null && h("small", {}, " set")] },
        { name: "Latency", class: "number", ...sorter("latency_s"), cell: ({ record }) => (record.latency_s ? duration(record.latency_s) : "–") },
        { name: "Errors", class: "number", ...sorter("error_rate"), cell: ({ record }) => h("span", { class: record.error_rate >= 0.2 ? "bad" : null }, percent(record.error_rate)) },
        { name: "Failures", class: "number", ...sorter("failures"), cell: ({ record }) => count(record.failures) },
        { name: "Paused until", ...sorter("paused_until"), cell: ({ record, why }) => [
          record.paused_until && h("span", { class: `pill ${record.given_up ? "bad" : "warn"}` }, until(record.paused_until, now)),
          why && h("small", {}, ` ${why}`), !record.paused_until && !why && "–"] },
        { name: "Actions", class: "actions", cell: ({ record }) => [
          record.paused_until || record.given_up
            ? h("button", { "aria-label": `Resume ${record.host}`, onclick: () => context.perform({ do: "rest", host: record.host, seconds: 0 }) }, "Resume")
            : h("button", { "aria-label": `Pause ${record.host}`, onclick: () => pause(context, record) }, "Pause"),
          h("button", { "aria-label": `Set the delay of ${record.host}`, onclick: () => delay(context, record) }, "Delay")] },
      ];
      show(target,
        found.hosts.length ? table("Hosts", columns, found.hosts, ({ record }) => record.host, { class: "stack" })
          : nothing(having ? `No host has “${having}” in its name.` : "There are no hosts yet."),
        h("p", { class: "quiet" }, `${count(found.hosts.length)} of ${count(found.known)} hosts; their order is ${duration(Math.round(found.age_s))} old. `,
          found.hosts.length === limit && limit < 1000 && h("button", { onclick: () => again({ limit: Math.min(1000, limit * 2) }) }, "Show more")));
    };
    const live = living(context, { load: (signal) => context.get("hosts", { by, ascending: ascending ? "true" : "false", having, limit }, signal), draw, every: 3 });
    return { ...live, close: () => { clearTimeout(waiting); live.close(); } };
  },
};

function pause(context, record) {
  const chosen = h("select", { name: "seconds" }, Object.entries(PAUSES).map(([name, seconds]) => h("option", { value: seconds, selected: seconds === 3600 }, name)));
  context.ask(`Pause ${record.host}`, [field("For how long", chosen, "Pages that are being fetched are finished.")], "Pause",
    (data) => context.perform({ do: "rest", host: record.host, seconds: Number(data.get("seconds")) }));
}

function delay(context, record) {
  const input = h("input", { name: "delay", type: "number", min: "0", step: "any", inputmode: "decimal", value: record.set_delay_s ?? "", placeholder: "as the limits say" });
  context.ask(`Delay of ${record.host}`, [field("Seconds between two fetches", input, "Empty: as the limits say. robots.txt can only make it longer.")], "Set",
    (data) => context.perform({ do: "delay", host: record.host, delay_s: data.get("delay") === "" ? null : Number(data.get("delay")) }));
}
