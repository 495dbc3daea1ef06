// Numbers, sizes and times for people.
import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (n) => whole.format(n);
export const rate = (n) => (n >= 100 || Number.isInteger(n) ? whole.format(n) : tenths.format(n));
export const decimal = (n) => short.format(n);
export const percent = (part) => (part === 0 ? "0 %" : part < 0.01 ? "< 1 %" : `${whole.format(part * 100)} %`);

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (bytes >= 1000 && at < units.length - 1) {
    bytes /= 1000;
    at++;
  }
  return `${at && bytes < 100 ? tenths.format(bytes) : whole.format(bytes)} ${units[at]}`;
}

export function duration(s) {
  if (s < 1) return s === 0 ? "0 s" : `${whole.format(s * 1000)} ms`;
  if (s < 10) return `${short.format(s)} s`;
  if (s < 90) return `${whole.format(s)} s`;
  if (s < 5400) return `${whole.format(s / 60)} min`;
  if (s < 129600) return `${tenths.format(s / 3600)} h`;
  if (s < 86400 * 730) return `${tenths.format(s / 86400)} days`;
  return "years";
}

const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clockTime = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });

export const clock = (at) => clockTime.format(at * 1000);
const second = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const isToday = (at) => new Date(at * 1000).toDateString() === new Date().toDateString();
export const moment = (at) =>
  at < 8e12 ? h("time", { datetime: new Date(at * 1000).toISOString(), title: day.format(at * 1000) }, (isToday(at) ? second : day).format(at * 1000)) : "some day";
// Until when, for what lies ahead: the time today, the date otherwise.
export const until = (at, now) => (at - now < 64800 ? clock(at) : at - now > 86400 * 3650 ? "resumed by hand" : moment(at));
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
