// Dead letters and skipped pages: by reason, by host, and one by one.
import { h, show } from "./dom.js";
import { count, moment, plural } from "./format.js";
import { failure, heading, link, nothing, table } from "./parts.js";
import { living } from "./living.js";

const view = (name, title, words) => ({
  title,
  open(context) {
    const { root, params, go, perform, ask } = context;
    const reason = params.reason ?? null, host = params.host ?? null;
    if (!root.querySelector(`#${name}-body`)) root.replaceChildren(heading(title), h("div", { id: `${name}-body` }));
    const body = root.querySelector(`#${name}-body`), buttons = root.querySelector(".heading .buttons");
    const sure = (what, pages, action) => ask("Redrive dead letters", [h("p", {}, `Queue ${what} again, with fresh attempts: ${plural(pages, "page")}.`)], "Redrive", () => perform({ do: "redrive", ...action }));
    const groups = (caption, head, found, chosen, choose, action) => table(caption, [
      { name: head, cell: (g) => h("button", { class: "group", "aria-pressed": String(g.name === chosen), onclick: () => choose(g.name === chosen ? null : g.name) }, g.name || "(none)") },
      { name: "Pages", class: "number", cell: (g) => count(g.pages) },
      ...(name === "dead" ? [{ name: "Redrive", class: "actions", head: h("span", { class: "hidden" }, "Redrive"), cell: (g) => h("button", { "aria-label": `Redrive ${g.name}`, onclick: () => action(g) }, "Redrive") }] : []),
    ], found, (g) => g.name || "-", { class: "groups" });

    const draw = (found, error) => {
      if (error) return show(body, failure(error));
      show(buttons, name === "dead" && found.total > 0 && h("button", { class: "primary", onclick: () => sure("all dead letters", found.total, { everything: true }) }, "Redrive all"));
      if (!found.total && !found.cut.length) return show(body, nothing(words.none));
      const known = new Map(found.reasons.map((g) => [g.name, g.pages]));
      const beyond = found.cut.filter((g) => g.pages > (known.get(g.name) ?? 0));
      show(body,
        h("div", { class: "columns" },
          h("section", { class: "card", "aria-label": words.by }, h("h2", {}, words.by),
            groups(words.by, words.reason, found.reasons, reason, (value) => go(name, { reason: value }), (g) => sure(`those with “${g.name}”`, g.pages, { reason: g.name })),
            beyond.length > 0 && h("p", { class: "quiet" }, "Links cut in all, most of them not remembered one by one: ",
              beyond.map((g) => `${g.name} ${count(g.pages)}`).join(", "))),
          h("section", { class: "card", "aria-label": "By host" }, h("h2", {}, reason === null ? "By host" : `“${reason}” by host`),
            reason === null ? h("p", { class: "quiet" }, `Choose a ${words.reason.toLowerCase()} to see its hosts.`)
              : groups("By host", "Host", found.hosts, host, (value) => go(name, { reason, host: value }), (g) => sure(`those of ${g.name} with “${reason}”`, g.pages, { reason, host: g.name })))),
        h("section", { class: "card", "aria-label": words.pages }, h("h2", {}, words.pages, (reason !== null || host) && h("small", {}, ` ${[reason, host].filter(Boolean).join(" · ")} `,
          h("button", { onclick: () => go(name) }, "Show all"))),
          found.pages.length ? table(words.pages, columns(context, name), found.pages, (p) => p.url, { class: "stack" }) : h("p", { class: "quiet" }, "None."),
          found.pages.length === 100 && h("p", { class: "quiet" }, "The first hundred; choose a reason and a host for others.")));
    };
    return living(context, { load: (signal) => context.get(name, { reason, host }, signal), draw });
  },
});

const columns = (context, name) => [
  { name: "URL", cell: (p) => [link(p.url), " ", h("a", { class: "why", href: `#pages?${new URLSearchParams({ crawl: context.crawl, url: p.url })}` }, "why")] },
  { name: "Reason", cell: (p) => p.reason },
  ...(name === "dead" ? [
    { name: "Attempts", class: "number", cell: (p) => count(p.attempts) },
    { name: "Last error", cell: (p) => (p.error ? h("details", {}, h("summary", {}, p.error.trim().split("\n").at(-1).slice(0, 120)), h("pre", { tabindex: "0" }, p.error)) : "–") },
  ] : []),
  { name: "When", cell: (p) => (p.finished_at ? moment(p.finished_at) : "–") },
  ...(name === "dead" ? [{ name: "Redrive", class: "actions", head: h("span", { class: "hidden" }, "Redrive"), cell: (p) => h("button", { "aria-label": `Redrive ${p.url}`, onclick: () => context.perform({ do: "redrive", url: p.url }) }, "Redrive") }] : []),
];

export const dead = view("dead", "Dead letters", { none: "No page was given up.", by: "By reason", reason: "Reason", pages: "Letters" });
export const skipped = view("skipped", "Skipped", { none: "No page was skipped.", by: "By rule", reason: "Rule", pages: "Pages" });
