import { h, show } from "./dom.js";
import { failure, field, heading } from "./parts.js";

const LIMITS = [
  ["max_pages", "Pages in all", "1", "Empty: no limit."],
  ["max_pages_per_host", "Pages per host", "1", "Empty: no limit."],
  ["max_depth", "Depth", "0", "Links from a seed. Empty: no limit."],
  ["max_queued", "Queued at most", "1", "What pages find beyond waits in the overflow. Empty: no limit."],
  ["per_host", "At once per host", "1", "Fetches of one host."],
  ["delay_s", "Delay per host", "0", "Seconds between two fetches; robots.txt can raise it."],
  ["host_give_up", "Give up a host after", "0", "Failures in a row. 0: never."],
];
const NEEDED = ["per_host", "delay_s", "host_give_up"];

export const controls = {
  title: "Controls",
  open(context) {
    const { root, perform } = context;
    const running = h("section", { class: "card", "aria-label": "Pause and resume" });
    const limits = h("section", { class: "card", "aria-label": "Limits" }, h("p", { class: "quiet" }, "Loading …"));
    root.replaceChildren(heading("Controls"), running,
      h("div", { class: "columns" }, adding(perform), moving(perform)), limits);
    let ended = false;

    const drawRunning = (stats) => show(running, h("h2", {}, stats?.paused ? "The crawl is paused" : "Pause"),
      h("p", { class: "quiet" }, "While it is paused, workers finish what they fetch and start nothing more."),
      h("div", { class: "buttons" },
        h("button", { class: stats?.paused ? null : "primary", disabled: Boolean(stats?.paused), onclick: () => perform({ do: "pause" }) }, "Pause"),
        h("button", { class: stats?.paused ? "primary" : null, disabled: stats ? !stats.paused : true, onclick: () => perform({ do: "resume" }) }, "Resume")));

    const drawLimits = (found) => {
      const form = h("form", { onsubmit: async (event) => {
          event.preventDefault();
          const data = new FormData(form);
          const given = Object.fromEntries(LIMITS.map(([name]) => [name, data.get(name) === "" ? null : Number(data.get(name))]));
          await perform({ do: "limit", ...given, adapt: data.get("adapt") === "on" });
        } },
        h("h2", {}, "Limits"),
        h("div", { class: "fields" }, LIMITS.map(([name, label, min, hint]) => field(label,
          h("input", { name, type: "number", min, step: name === "delay_s" ? "any" : "1", required: NEEDED.includes(name), value: found.limits[name] ?? "" }), hint))),
        h("label", { class: "check" }, h("input", { name: "adapt", type: "checkbox", checked: found.limits.adapt }), "Ask less of hosts that are slow, busy or failing"),
        h("p", { class: "quiet" }, "They hold for all workers, from their next lease on. A worker that is started sets those of its scraper again."),
        h("div", { class: "buttons" }, h("button", { class: "primary" }, "Set limits")));
      limits.replaceChildren(form);
    };
    const load = async () => {
      try {
        const found = await context.get("settings");
        if (!ended) {
          drawRunning(found);
          drawLimits(found);
        }
      } catch (error) {
        if (!ended) show(limits, failure(error));
      }
      if (!ended) context.ready();
    };
    drawRunning(context.now()?.pulse.stats);
    load();
    return { tick: ({ pulse }) => drawRunning(pulse.stats), close: () => { ended = true; } };
  },
};

function adding(perform) {
  const text = h("textarea", { name: "urls", rows: "5", required: true, spellcheck: "false", placeholder: "https://…" });
  const form = h("form", { class: "card", "aria-label": "Add URLs", onsubmit: async (event) => {
      event.preventDefault();
      const data = new FormData(form);
      if (await perform({ do: "add", urls: data.get("urls").split("\n"), priority: Number(data.get("priority")) })) text.value = "";
    } },
    h("h2", {}, "Add URLs"),
    field("URLs, one a line", text, "Those that the crawl knows are left out."),
    field("Priority", h("input", { name: "priority", type: "number", min: "0", max: "9", required: true, value: "0" }), "0 to 9; higher runs sooner."),
    h("div", { class: "buttons" }, h("button", { class: "primary" }, "Add")));
  return form;
}

function moving(perform) {
  const form = h("form", { class: "card", "aria-label": "Change priority", onsubmit: (event) => {
      event.preventDefault();
      const data = new FormData(form);
      perform({ do: "prioritize", url: data.get("url").trim(), priority: Number(data.get("priority")) });
    } },
    h("h2", {}, "Change priority"),
    field("URL", h("input", { name: "url", type: "text", inputmode: "url", required: true, spellcheck: "false", autocomplete: "off", placeholder: "https://…" })),
    field("Priority", h("input", { name: "priority", type: "number", min: "0", max: "9", required: true, value: "9" }), "0 to 9; higher runs sooner. Only queued URLs have one."),
    h("div", { class: "buttons" }, h("button", {}, "Change")));
  return form;
}
