"use strict";

const KINDS = {
  __proto__: null, // so that an event may have any name, "constructor" too
  running: "training", compile: "compiling", evaluate: "evaluation", infer: "decoding",
  infill: "filling in", save: "saving", stall: "stall", saved: "checkpoint complete",
  interrupted: "interrupted", failed: "failed", end: "end",
};
const MOMENTS = new Set(["saved", "interrupted", "failed", "end"]);

/** The timeline of a run: a band of spans, and the same as a table. */
class Timeline {
  constructor(run) {
    this.run = run;
    this.spans = run.spans;
    this.at = null;
    this.svg = drawn("svg", { "aria-hidden": "true" });
    this.readout = element("p", { class: "quiet", "aria-live": "polite" });
    const kinds = Object.keys(KINDS).filter((kind) => this.spans.some((span) => span[0] === kind));
    const legend = element("ul", { class: "legend" }, ...kinds.filter((k) => !MOMENTS.has(k)).map((kind) =>
      element("li", {}, element("span", { class: "swatch box", style: `background:var(--${kind})` }), KINDS[kind])));
    const label = `Timeline of ${run.name}`;
    this.figure = element("figure", { tabindex: "0", role: "group", "aria-label": label },
      element("figcaption", {}, element("span", {}, run.name)), this.svg, legend, this.readout);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    listenToKeys(this.figure, (step) => this.go(step));
    new ResizeObserver(() => this.draw()).observe(this.figure);
    this.select(null);
  }

  draw() {
    const width = this.figure.clientWidth - 26;
    if (width < 50 || !this.spans.length) return;
    const height = 74;
    this.width = width;
    this.end = Math.max(...this.spans.map(([, begin, seconds]) => begin + seconds), 1);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.x = (seconds) => (seconds / this.end) * width;
    const rows = { __proto__: null, running: [14, 26], saved: [42, 8], interrupted: [4, 46], failed: [4, 46], end: [4, 46] };
    const parts = this.spans.map(([kind, begin, seconds]) => {
      const [y, tall] = rows[kind] ?? (kind === "save" ? [42, 8] : [14, 26]);
      const wide = Math.max(this.x(seconds), MOMENTS.has(kind) ? 1.5 : 1);
      const color = kind === "saved" ? "save" : MOMENTS.has(kind) ? (kind === "failed" ? "stall" : "mark") : kind;
      const box = { x: this.x(begin), y, width: wide, height: tall, style: `fill:var(--${color})` };
      return drawn("rect", box, drawn("title", {}, this.describe([kind, begin, seconds])));
    });
    const unit = this.end > 172800 ? [86400, "d"] : this.end > 7200 ? [3600, "h"] : this.end > 120 ? [60, "min"] : [1, "s"];
    for (const value of ticks(0, this.end / unit[0], Math.max(4, Math.floor(width / 110)))) {
      const anchor = value === 0 ? "start" : this.x(value * unit[0]) > width - 20 ? "end" : "middle";
      const attributes = { class: "axis", x: this.x(value * unit[0]), y: 68, "text-anchor": anchor };
      parts.push(drawn("text", attributes, `${Number(value.toPrecision(4))} ${unit[1]}`));
    }
    this.cursor = drawn("line", { class: "cursor", y1: 0, y2: 54, visibility: "hidden" });
    this.svg.replaceChildren(...parts, this.cursor);
  }

  /** A span in words. */
  describe([kind, begin, seconds, step, detail]) {
    const parts = [KINDS[kind] ?? kind];
    if (detail) parts.push(detail);
    if (step !== null && step !== undefined) parts.push(`at step ${integer(step)}`);
    if (!MOMENTS.has(kind)) parts.push(duration(seconds));
    return `${parts.join(", ")}; ${duration(begin)} after the start`;
  }

  point(event) {
    if (!this.x) return;
    const box = this.svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.end;
    const near = (6 / this.width) * this.end;
    let best = null;
    this.spans.forEach(([kind, begin, seconds], index) => {
      const away = Math.max(begin - at, at - begin - seconds, 0);
      const cost = away > near ? Infinity : away + (kind === "running" ? near * 2 : 0) + seconds * 1e-6;
      if (cost < (best?.cost ?? Infinity)) best = { index, cost };
    });
    this.select(best && best.cost < Infinity ? best.index : null);
  }

  go(step) {
    if (step === null || !this.spans.length) return this.select(null);
    const last = this.spans.length - 1;
    const from = this.at === null ? (step < 0 ? last + 1 : -1) : this.at;
    return this.select(Math.max(0, Math.min(last, from + step)));
  }

  select(index) {
    this.at = index;
    const span = index === null ? null : this.spans[index];
    const count = this.run.restarts === 1 ? "1 restart" : `${this.run.restarts} restarts`;
    const stalls = this.spans.filter(([kind]) => kind === "stall");
    const lost = stalls.reduce((sum, [, , seconds]) => sum + seconds, 0);
    const stalled = stalls.length === 1 ? "1 stall" : `${stalls.length} stalls`;
    const summary = stalls.length ? `${count}, ${stalled}, ${duration(lost)} in all` : `${count}, no stall`;
    this.readout.textContent = span ? this.describe(span) : summary;
    if (this.cursor) {
      const x = span ? this.x(span[1]) : 0;
      this.cursor.setAttribute("x1", x);
      this.cursor.setAttribute("x2", x);
      this.cursor.setAttribute("visibility", span ? "visible" : "hidden");
    }
  }
}
