// The frame: which crawl, which view, what is going on, and the stream that keeps it alive.
import { h, show } from "./dom.js";
import { act, get, open, post } from "./net.js";
import { overview } from "./overview.js";
import { hosts } from "./hosts.js";
import { dead, skipped } from "./ended.js";
import { pages } from "./pages.js";
import { items } from "./items.js";
import { controls } from "./controls.js";

const VIEWS = { overview, hosts, dead, skipped, pages, items, controls };
const byId = (id) => document.getElementById(id);
const frame = { session: null, crawl: null, name: null, view: null, now: null, stream: null, trouble: "", lost: false };

function parse() {
  const [name, query] = location.hash.slice(1).split("?");
  return { name: name in VIEWS ? name : "overview", params: Object.fromEntries(new URLSearchParams(query)) };
}

// Changes the address: the crawl stays in it, so that a view can be bookmarked.
function go(name, params = {}) {
  const kept = Object.entries({ crawl: frame.crawl, ...params }).filter(([, value]) => value !== null && value !== undefined && value !== "");
  location.hash = `${name}?${new URLSearchParams(kept)}`;
}

function notice(text, kind = "good") {
  const box = h("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : null },
    h("p", {}, text), h("button", { class: "plain", "aria-label": "Dismiss", onclick: () => box.remove() }, "×"));
  byId("notices").append(box);
  while (byId("notices").children.length > 4) byId("notices").firstChild.remove();
  if (kind !== "bad") setTimeout(() => box.remove(), 6000);
}

// Does something and says so; the view is shown anew.
async function perform(action) {
  try {
    notice((await act(frame.crawl, action)).said);
    await frame.view?.refresh?.();
    return true;
  } catch (error) {
    notice(error.message, "bad");
    return false;
  }
}

// Asks in a dialog; fields are nodes with names, `doing` gets their values and tells whether it worked.
function ask(title, fields, label, doing) {
  const dialog = byId("dialog");
  const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        if ((await doing(new FormData(form))) !== false) dialog.close();
      },
    },
    h("h2", { id: "dialog-title" }, title), fields,
    h("div", { class: "buttons" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      h("button", { class: "primary" }, label)));
  dialog.replaceChildren(form);
  dialog.showModal();
}

function showState() {
  const stats = frame.now?.pulse.stats;
  const [word, kind] = frame.lost ? ["connection lost, trying again", "bad"] : frame.trouble ? ["frontier not reachable", "bad"]
    : !stats ? ["…", ""] : stats.finished ? ["finished", "calm"] : stats.paused ? ["paused", "warn"] : ["running", "good"];
  show(byId("state"), h("span", { class: `pill ${kind}`, title: frame.trouble || null }, word));
}

function showFrame() {
  const { session } = frame;
  show(byId("crawl"), session.crawls.length > 1
    ? h("select", { "aria-label": "Crawl", value: frame.crawl, onchange: (event) => go(frame.name, { crawl: event.target.value }) },
        session.crawls.map((name) => h("option", { value: name, selected: name === frame.crawl }, name)))
    : h("span", { class: "name" }, frame.crawl));
  show(byId("tools"), session.login && h("button", { class: "plain", onclick: async () => { await post("/logout"); location.assign("/login"); } }, "Log out"));
  show(byId("nav"), h("ul", {}, Object.entries(VIEWS).map(([name, view]) =>
    h("li", {}, h("a", { href: `#${name}?${new URLSearchParams({ crawl: frame.crawl })}`, "aria-current": name === frame.name ? "page" : null }, view.title)))));
  byId("nav").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

function listen() {
  frame.stream?.close();
  frame.now = null;
  const stream = (frame.stream = new EventSource(`/api/events?${new URLSearchParams({ crawl: frame.crawl })}`));
  stream.addEventListener("overview", (event) => {
    Object.assign(frame, { now: JSON.parse(event.data), trouble: "", lost: false });
    showState();
    frame.view?.tick?.(frame.now);
  });
  stream.addEventListener("trouble", (event) => {
    frame.trouble = JSON.parse(event.data);
    showState();
  });
  stream.onerror = () => {
    frame.lost = true;
    showState();
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => frame.stream === stream && listen(), 2000);
  };
}

async function route() {
  const { name, params } = parse();
  const crawl = frame.session.crawls.includes(params.crawl) ? params.crawl : frame.crawl ?? frame.session.crawls[0];
  const another = crawl !== frame.crawl || !frame.stream;
  const moved = frame.name !== null && (name !== frame.name || another);
  Object.assign(frame, { crawl, name });
  if (another) listen();
  showFrame();
  showState();
  frame.view?.close?.();
  document.title = `${VIEWS[name].title} · ${crawl} · shoal`;
  const root = byId("main");
  if (moved || !root.querySelector("h1")) {
    root.replaceChildren();
    window.scrollTo(0, 0);
  }
  root.setAttribute("aria-busy", "true"); // until the view has something to show
  const context = {
    ready: () => root.removeAttribute("aria-busy"), crawl, params, go, perform, ask, notice, root,
    get: (path, more, signal) => get(path, { crawl, ...more }, signal),
    now: () => frame.now,
  };
  frame.view = VIEWS[name].open(context);
  if (moved) root.focus({ preventScroll: true });
}

async function start() {
  try {
    frame.session = await open();
    if (!frame.session.crawls.length) throw new Error("There is no crawl here yet: `shoal crawl URL` starts one.");
  } catch (error) {
    show(byId("main"), h("h1", {}, "shoal"), h("p", { class: "card bad", role: "alert" }, error.message));
    setTimeout(start, 3000);
    return;
  }
  window.addEventListener("hashchange", route);
  await route();
}

start();
