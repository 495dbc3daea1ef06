// A chart of rates over time: throughput as an area, errors as a line on the same scale.
import { h, svg, show } from "./dom.js";
import { clock, rate } from "./format.js";

const HEIGHT = 220, LEFT = 44, RIGHT = 12, TOP = 12, BOTTOM = 26;

function nice(most) {
  const power = 10 ** Math.floor(Math.log10(most || 1));
  const step = [1, 2, 2.5, 5, 10].find((each) => each * power * 4 >= most) ?? 10;
  return step * power;
}

const STEPS_S = [60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];

// points: [{at, pages, errors}], rates per second, in order; from and to in seconds.
export class Chart {
  constructor(root) {
    this.root = root;
    this.cursor = null;
    this.data = { points: [], from: 0, to: 1 };
    new ResizeObserver(() => this.draw()).observe(root);
  }

  set(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    const { points, from, to } = this.data;
    const width = Math.max(280, this.root.clientWidth);
    const most = Math.max(0, ...points.map((p) => Math.max(p.pages, p.errors)));
    const step = nice(most || 1), top = Math.max(step, Math.ceil(most / step) * step);
    const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const line = (name) => points.map((p, i) => `${i ? "L" : "M"}${x(p.at).toFixed(1)} ${y(p[name]).toFixed(1)}`).join("");
    const last = points.at(-1);
    const area = points.length ? `${line("pages")}L${x(last.at).toFixed(1)} ${y(0)}L${x(points[0].at).toFixed(1)} ${y(0)}Z` : "";
    const shown = this.cursor === null ? null : points[Math.min(this.cursor, points.length - 1)];
    show(
      this.root,
      svg(
        "svg",
        {
          class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", tabindex: "0",
          "aria-label": this.summary(most), onpointermove: (e) => this.point(e, x), onpointerleave: () => this.move(null),
          onkeydown: (e) => this.key(e),
        },
        Array.from({ length: Math.round(top / step) + 1 }, (_, i) => i * step).map((value) => [
          svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
          svg("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, rate(value)),
        ]),
        this.times(from, to, width).map((at) =>
          svg("text", { class: "tick", x: x(at), y: HEIGHT - 6, "text-anchor": "middle" }, to - from > 172800 ? day(at) : clock(at)),
        ),
        svg("path", { class: "area", d: area }),
        svg("path", { class: "line", d: line("pages") }),
        svg("path", { class: "errors", d: line("errors") }),
        shown && [
          svg("line", { class: "cursor", x1: x(shown.at), x2: x(shown.at), y1: TOP, y2: HEIGHT - BOTTOM }),
          svg("circle", { class: "dot", cx: x(shown.at), cy: y(shown.pages), r: 4 }),
          svg("circle", { class: "dot bad", cx: x(shown.at), cy: y(shown.errors), r: 4 }),
        ],
      ),
      h(
        "div", { class: "legend" },
        h("span", { class: "swatch pages" }, "pages per second"),
        h("span", { class: "swatch errors" }, "failed attempts per second"),
        h("span", { class: "readout", "aria-live": "polite" },
          shown ? `${clock(shown.at)} · ${rate(shown.pages)} pages/s · ${rate(shown.errors)} failed/s` : ""),
      ),
    );
  }

  times(from, to, width) {
    const step = STEPS_S.find((each) => (to - from) / each <= width / 90) ?? 86400;
    const zone = new Date(to * 1000).getTimezoneOffset() * 60;
    const first = Math.ceil((from - zone) / step) * step + zone;
    const found = [];
    for (let at = first; at <= to; at += step) found.push(at);
    return found.filter((at) => (at - from) / (to - from) < 0.97 && (at - from) / (to - from) > 0.02);
  }

  summary(most) {
    const last = this.data.points.at(-1);
    return last
      ? `Throughput from ${clock(this.data.from)} to ${clock(this.data.to)}: ${rate(last.pages)} pages per second at the end, ${rate(most)} at most, ${rate(last.errors)} failed attempts per second. Arrow keys read the points.`
      : "Throughput: nothing was fetched in this time.";
  }

  point(event, x) {
    const box = event.currentTarget.getBoundingClientRect();
    const at = event.clientX - box.left;
    let best = 0;
    this.data.points.forEach((p, i) => {
      if (Math.abs(x(p.at) - at) < Math.abs(x(this.data.points[best].at) - at)) best = i;
    });
    this.move(this.data.points.length ? best : null);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.data.points.length) return;
    event.preventDefault();
    const end = this.data.points.length - 1;
    this.move(Math.max(0, Math.min(end, (this.cursor ?? end + 1) + step)));
  }

  move(cursor) {
    if (cursor !== this.cursor) {
      this.cursor = cursor;
      this.draw();
    }
  }
}

const day = (at) => new Date(at * 1000).toLocaleDateString(undefined, { month: "short", day: "numeric" });
