import { h, show, svg } from "./dom.js";
import { Chart } from "./chart.js";
import { count, duration, moment, plural, rate, size } from "./format.js";
import { failure, table } from "./parts.js";

const RANGES = { "10 min": 1 / 6, "1 h": 1, "6 h": 6, "24 h": 24, "3 days": 72 };
const BUCKET_S = { "10 min": 5, "1 h": 60, "6 h": 300, "24 h": 900, "3 days": 3600 };
const HISTORY_S = 20;

const STATES = [
  ["done", "done", (s) => s.done],
  ["leased", "leased", (s) => s.leased],
  ["ready", "ready", (s) => s.queued - s.delayed],
  ["delayed", "delayed", (s) => s.delayed],
  ["overflow", "overflow", (s) => s.overflow],
  ["skipped", "skipped", (s) => s.skipped],
  ["dead", "dead", (s) => s.dead],
];

// Rates per bucket, from minutes or from samples of the counters.
function points(history, range) {
  const step = BUCKET_S[range], to = history.now, from = to - RANGES[range] * 3600;
  const buckets = new Map();
  const put = (at, pages, errors, seconds) => {
    const slot = Math.floor(at / step) * step;
    const sum = buckets.get(slot) ?? { pages: 0, errors: 0, seconds: 0 };
    buckets.set(slot, { pages: sum.pages + pages, errors: sum.errors + errors, seconds: sum.seconds + seconds });
  };
  if (range === "10 min") {
    history.samples.forEach((sample, i) => {
      const before = history.samples[i - 1];
      if (before && sample.at > from) put(sample.at, sample.fetches - before.fetches, Math.max(0, sample.errors - before.errors), sample.at - before.at);
    });
    const sampled = history.samples[0]?.at ?? to; // what was before is known by the minute
    for (const { at, fetches, retries, dead } of history.minutes) {
      if (at >= from && at + 60 <= sampled) put(at + 30, fetches, retries + dead, 60);
    }
    const found = [...buckets].map(([slot, sum]) => ({ at: Math.min(to, slot + step / 2), pages: sum.pages / sum.seconds, errors: sum.errors / sum.seconds }));
    return { points: found.sort((a, b) => a.at - b.at), from, to };
  }
  for (const minute of history.minutes) if (minute.at >= from - step) put(minute.at, minute.fetches, minute.retries + minute.dead, 0);
  const found = [];
  for (let slot = Math.ceil(from / step) * step; slot <= to; slot += step) {
    const sum = buckets.get(slot) ?? { pages: 0, errors: 0 };
    const seconds = Math.min(step, to - slot);
    if (seconds > step / 6) found.push({ at: slot + seconds / 2, pages: sum.pages / seconds, errors: sum.errors / seconds });
  }
  return { points: found, from, to };
}

const tile = (name, value, note, href, kind) =>
  h(href ? "a" : "div", { class: `tile ${kind ?? ""}`, href }, h("span", { class: "label" }, name), h("strong", {}, value), h("small", {}, note ?? "\u00a0"));

const WORKERS = (now, beat_s) => [
  { name: "Worker", cell: (w) => [h("span", { class: `dot ${w.alive ? "good" : "bad"}`, "aria-hidden": "true" }), w.name] },
  { name: "Heard of", class: "number", cell: (w) => (w.alive && w.until ? `${duration(Math.max(0, Math.round(now - w.until + beat_s)))} ago` : h("span", { class: "bad" }, "not lately")) },
  { name: "Pages/s", class: "number", cell: (w) => rate(w.pages_per_s) },
  { name: "Leases", class: "number", cell: (w) => `${count(w.leases)}${w.concurrency ? ` of ${count(w.concurrency)}` : ""}` },
  { name: "In flight", class: "number", cell: (w) => size(w.bytes_in_flight) },
  { name: "Loop late", class: "number", cell: (w) => duration(w.lag_s) },
  { name: "To store", class: "number", cell: (w) => duration(w.settle_s) },
  { name: "Since", cell: (w) => (w.since ? moment(w.since) : "–") },
];

export const overview = {
  title: "Overview",
  open(context) {
    const { root, crawl } = context;
    let range = null, history = null, loadedAt = 0, ended = false;
    const chartBox = h("div", { class: "plot" });
    const ranges = h("div", { class: "choice", role: "group", "aria-label": "Time shown" });
    const headline = h("p", { class: "headline" });
    const body = h("div");
    root.replaceChildren(
      h("div", { class: "heading" }, h("h1", {}, "Overview")),
      h("section", { class: "card", "aria-label": "Throughput" }, h("div", { class: "heading" }, headline, ranges), chartBox),
      body);
    const chart = new Chart(chartBox);

    const draw = () => {
      if (history && range) chart.set(points(history, range));
      show(ranges, Object.keys(RANGES).map((name) =>
        h("button", { "aria-pressed": String(name === range), onclick: () => { range = name; load(); } }, name)));
    };
    const load = async () => {
      loadedAt = Date.now();
      try {
        const found = await context.get("history", { minutes: range ? Math.round(RANGES[range] * 60) : 60 });
        if (ended) return;
        history = found;
        range ??= found.minutes.some((m) => m.at < found.now - 600) ? "1 h" : "10 min";
        draw();
      } catch (error) {
        if (!ended) show(body, failure(error));
      }
    };
    const tick = ({ pulse, left_s, beat_s }) => {
      const { stats, workers } = pulse;
      if (history && pulse.at > (history.samples.at(-1)?.at ?? 0)) {
        history.samples.push({ at: pulse.at, fetches: stats.fetches, errors: stats.retries + stats.dead });
        history.now = pulse.at;
        draw();
      }
      if (Date.now() - loadedAt > HISTORY_S * 1000) load();
      show(headline, h("strong", {}, rate(pulse.pages_per_s)), h("span", { class: "unit" }, "pages/s"),
        pulse.errors_per_s > 0 && h("span", { class: "bad" }, `${rate(pulse.errors_per_s)} failed/s`));
      show(body, facts(stats, left_s, pulse.at, crawl), shares(stats), h("div", { class: "columns" }, priorities(stats), details(stats)), crew(workers, pulse.at, beat_s));
      context.ready();
    };
    load();
    if (context.now()) tick(context.now());
    return { tick, refresh: load, close: () => { ended = true; } };
  },
};

const facts = (stats, left_s, now, crawl) =>
  h("section", { class: "tiles", "aria-label": "Counters" },
    tile("Queued", count(stats.queued), `${count(stats.delayed)} delayed`),
    tile("Leased", count(stats.leased), "being fetched"),
    tile("Done", count(stats.done), plural(stats.items, "row")),
    tile("Dead", count(stats.dead), `${count(stats.retrying)} retrying`, `#dead?${new URLSearchParams({ crawl })}`, stats.dead ? "bad" : ""),
    tile("Skipped", count(stats.skipped), "by rule", `#skipped?${new URLSearchParams({ crawl })}`),
    tile("Ready hosts", count(stats.ready_hosts), `of ${count(stats.hosts)}`, `#hosts?${new URLSearchParams({ crawl })}`),
    tile("Oldest", stats.queued ? duration(stats.oldest_s) : "–", "in the queue"),
    tile("Estimated end", left_s === null ? "–" : `in ${duration(left_s)}`, left_s === null ? (stats.finished ? "finished" : "no pace to tell it by") : "if nothing new is found"));

function shares(stats) {
  const parts = STATES.map(([name, kind, value]) => [name, kind, value(stats)]);
  const sum = parts.reduce((total, [, , n]) => total + n, 0);
  return h("section", { class: "card", "aria-label": "URLs by state" },
    h("h2", {}, `${count(sum)} URLs known`),
    h("div", { class: "bar-of-states", "aria-hidden": "true" }, svgBar(parts, sum)),
    h("ul", { class: "keys" }, parts.map(([name, kind, n]) => h("li", { class: `key ${kind}` }, h("span", {}, name), h("b", {}, count(n))))));
}

function svgBar(parts, sum) {
  let at = 0;
  return svg("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", width: "100%", height: 14 },
    parts.map(([, kind, n]) => {
      const width = sum ? (n / sum) * 1000 : 0;
      at += width;
      return svg("rect", { class: `part ${kind}`, x: at - width, y: 0, width, height: 14 });
    }));
}

function priorities(stats) {
  const most = Math.max(1, ...stats.by_priority);
  return h("section", { class: "card", "aria-label": "Queued by priority" },
    h("h2", {}, "Queued by priority"),
    h("table", { class: "bars" },
      h("caption", { class: "hidden" }, "Queued URLs by priority; higher runs sooner"),
      h("tbody", {}, stats.by_priority.map((n, priority) => [priority, n]).reverse().map(([priority, n]) =>
        h("tr", {}, h("th", { scope: "row" }, priority),
          h("td", { class: "wide", "aria-hidden": "true" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", width: "100%", height: 10 },
            svg("rect", { class: "track", width: 100, height: 10 }), svg("rect", { class: "part ready", width: (n / most) * 100, height: 10 }))),
          h("td", { class: "number" }, count(n)))))));
}

const details = (stats) =>
  h("section", { class: "card", "aria-label": "More" },
    h("h2", {}, "In all"),
    h("dl", { class: "facts" },
      [["Fetched", size(stats.size_bytes)], ["Attempts", count(stats.fetches)], ["Tried again", count(stats.retries)], ["Leases lost", count(stats.losses)],
        ["Rows", count(stats.items)], ["Overflow", count(stats.overflow)], ["Hosts", count(stats.hosts)], ["Producers", count(stats.producers)]]
        .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));

const crew = (workers, now, beat_s) =>
  h("section", { class: "card", "aria-label": "Workers" },
    h("h2", {}, workers.length ? `Workers (${workers.length})` : "Workers"),
    workers.length ? table("Workers", WORKERS(now, beat_s), workers, (w) => w.name, { class: "stack" })
      : h("p", { class: "quiet" }, "No worker was heard of lately."));
