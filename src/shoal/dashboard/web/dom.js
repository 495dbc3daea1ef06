// Elements without markup: everything that was crawled goes in as text, and only here.

const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown", "onpointermove", "onpointerleave", "ontoggle"];
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// Control characters, and those that turn the direction of text, are written out.
export const plain = (text) =>
  String(text).replace(CONTROL, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

function make(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (HANDLERS.includes(name)) element[name] = value;
    else if (name === "value" || name === "checked") continue;
    else if (name === "key") element.dataset.key = plain(value);
    else element.setAttribute(name, value === true ? "" : plain(value));
  }
  add(element, children);
  if (props?.value !== undefined && props.value !== null) element.value = props.value;
  if (props?.checked) element.checked = true;
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(document.createTextNode(plain(child)));
  }
}

export const h = (tag, props, ...children) => make(document.createElement(tag), props, children);

export const svg = (tag, props, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

// Make `root` hold these nodes, changing what differs only: focus, open details and what was typed stay.
export function show(root, ...nodes) {
  const active = document.activeElement;
  const holder = document.createElement("div");
  add(holder, nodes);
  morphChildren(root, [...holder.childNodes]);
  if (active && active !== document.activeElement && root.contains(active)) active.focus({ preventScroll: true });
}

const keyOf = (node) => node.dataset?.key;

function morphChildren(root, fresh) {
  const keyed = new Map();
  for (const child of root.children) if (keyOf(child)) keyed.set(keyOf(child), child);
  let at = root.firstChild;
  for (const node of fresh) {
    const key = keyOf(node);
    let match = key ? keyed.get(key) : at && !keyOf(at) ? at : null;
    if (match && match.nodeName !== node.nodeName) match = null;
    if (!match) root.insertBefore(node, at);
    else {
      if (match === at) at = at.nextSibling;
      else root.insertBefore(match, at);
      morph(match, node);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if (old.nodeName !== "TEXTAREA") morphChildren(old, [...fresh.childNodes]);
}
