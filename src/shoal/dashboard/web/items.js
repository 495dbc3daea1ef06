import { h, show } from "./dom.js";
import { failure, heading, link, nothing, table } from "./parts.js";
import { living } from "./living.js";

const MOST_COLUMNS = 12, LONG = 160;
const words = (value) => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

function cell(value) {
  const text = words(value);
  if (/^https?:\/\/\S+$/.test(text) && text.length <= LONG) return link(text);
  return text.length > LONG ? h("details", {}, h("summary", {}, text.slice(0, LONG) + "…"), h("pre", { tabindex: "0" }, text)) : text;
}

export const items = {
  title: "Items",
  open(context) {
    const { root } = context;
    if (!root.querySelector("#items-body")) root.replaceChildren(heading("Items"), h("div", { id: "items-body" }));
    const body = root.querySelector("#items-body");
    const draw = (found, error) => {
      if (error) return show(body, failure(error));
      if (!found.rows.length) return show(body, nothing(found.said || "There are no rows yet."));
      const names = [...new Set(found.rows.flatMap(Object.keys))];
      const columns = names.slice(0, MOST_COLUMNS).map((name) => ({ name, class: found.rows.every((row) => typeof (row[name] ?? 0) === "number") ? "number" : "text", cell: (row) => cell(row[name]) }));
      show(body,
        h("section", { class: "card", "aria-label": "Rows" }, h("h2", {}, "The latest rows"), table("The latest rows", columns, found.rows, () => "")),
        names.length > MOST_COLUMNS && h("p", { class: "quiet" }, `${names.length - MOST_COLUMNS} more columns: ${names.slice(MOST_COLUMNS).join(", ")}`));
    };
    return living(context, { load: (signal) => context.get("items", {}, signal), draw });
  },
};
