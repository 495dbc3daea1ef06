// What several views are made of.
import { h } from "./dom.js";

export const heading = (title, ...more) => h("div", { class: "heading" }, h("h1", {}, title), h("div", { class: "buttons" }, more));

export const failure = (error) => h("p", { class: "card bad", role: "alert" }, error.message);

export const nothing = (text) => h("p", { class: "card empty" }, text);

// columns: [{name, class, head, cell(row)}]; rows have keys.
export function table(caption, columns, rows, keyOf, props = {}) {
  return h("div", { class: `scroll ${props.class ?? ""}`, tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.class, "aria-sort": c.sort }, c.head ?? c.name)))),
      h("tbody", {}, rows.map((row) => h("tr", { key: keyOf(row), class: props.rowClass?.(row) }, columns.map((c, i) =>
        h(i ? "td" : "th", { scope: i ? null : "row", class: c.class, "data-name": c.name }, c.cell(row))))))));
}

export const link = (url) =>
  /^https?:/i.test(url)
    ? h("a", { class: "url", href: url, rel: "noopener noreferrer nofollow", target: "_blank", title: "Open the page itself" }, url)
    : h("span", { class: "url" }, url);

export const field = (label, input, hint) => h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
