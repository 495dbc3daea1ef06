import { h, show } from "./dom.js";
import { count, moment } from "./format.js";
import { failure, field, heading, link, nothing } from "./parts.js";
import { living } from "./living.js";

const when = (at) => (at === null ? null : moment(at));

const facts = (p) => [
  ["State", h("span", { class: `pill ${p.state}` }, p.state)],
  ["Reason", p.reason],
  ["Found on", p.parent ? link(p.parent) : null],
  ["Found", when(p.added_at)],
  ["Depth", count(p.depth)],
  ["Priority", count(p.priority)],
  ["Attempts", count(p.attempts)],
  ["Leases lost", p.losses ? count(p.losses) : null],
  ["Status", p.status || null],
  ["Ended", when(p.finished_at)],
  ["Not before", when(p.not_before)],
  ["Leased by", p.worker],
  ["Until", when(p.deadline)],
  ["First seen", p.visit && when(p.visit[0])],
  ["Last seen", p.visit && when(p.visit[1])],
  ["Last changed", p.visit && when(p.visit[2])],
  ["Host", p.host],
  ["Error", p.error ? h("pre", { tabindex: "0" }, p.error) : null],
];

export const pages = {
  title: "Pages",
  open(context) {
    const { root, params, go } = context;
    const url = params.url ?? "";
    if (!root.querySelector("#pages-body")) {
      const input = h("input", { id: "url", name: "url", type: "text", inputmode: "url", autocomplete: "off", spellcheck: "false", placeholder: "https://…", "aria-label": "URL" });
      root.replaceChildren(heading("Pages"),
        h("form", { class: "card search", role: "search", onsubmit: (event) => { event.preventDefault(); go("pages", { url: input.value.trim(), at: Date.now() }); } },
          input, h("button", { class: "primary" }, "Why?")),
        h("div", { id: "pages-body" }));
    }
    const body = root.querySelector("#pages-body");
    if (document.activeElement?.id !== "url" || !root.querySelector("#url").value) root.querySelector("#url").value = url;
    if (!url) {
      show(body, nothing("What became of a URL, and why: type it above."));
      context.ready();
      return {};
    }
    const draw = (found, error) => {
      if (error) return show(body, failure(error));
      const { record } = found;
      if (!record) return show(body, h("p", { class: "card" }, found.said));
      show(body, h("section", { class: "card", "aria-label": "What is known" }, h("h2", { class: "url" }, link(record.url)),
        h("dl", { class: "record" }, facts(record).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
        h("div", { class: "buttons" },
          record.state === "dead" && h("button", { onclick: () => context.perform({ do: "redrive", url: record.url }) }, "Redrive"),
          ["queued", "overflow"].includes(record.state) && h("button", { onclick: () => prioritize(context, record) }, "Change priority"),
          record.state !== "leased" && h("button", { onclick: () => context.ask("Forget the page", [h("p", {}, "It is fetched again if it is found again. Rows that the frontier keeps of it are removed.")], "Forget",
            () => context.perform({ do: "forget", url: record.url })) }, "Forget"))));
    };
    return living(context, { load: (signal) => context.get("page", { url }, signal), draw });
  },
};

function prioritize(context, record) {
  const input = h("input", { name: "priority", type: "number", min: "0", max: "9", required: true, value: record.priority });
  context.ask("Change priority", [field("Priority", input, "0 to 9; higher runs sooner.")], "Change",
    (data) => context.perform({ do: "prioritize", url: record.url, priority: Number(data.get("priority")) }));
}
