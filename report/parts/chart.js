"use strict";

const MARGIN = { left: 52, right: 10, top: 8, bottom: 22 };

/** Curves over steps or hours, with the values at a cursor, moved by pointer and keys. */
class Chart {
  /**
   * @param {object} data title, unit, lines: run, label, dashed, steps, values, seconds
   * @param {object} state x, log, smooth, hidden: shared by all charts
   * @param {string[]} names of the runs
   */
  constructor(data, state, names) {
    Object.assign(this, { data, state, names, at: null, id: `frame-${Chart.count++}` });
    this.svg = drawn("svg", { "aria-hidden": "true" });
    this.where = element("span", { class: "at quiet" });
    this.legend = element("ul", { class: "legend" });
    this.spoken = element("div", { class: "hidden", "aria-live": "polite" });
    this.figure = element(
      "figure",
      { tabindex: "0", role: "group", "aria-label": `${data.title}, curves` },
      element("figcaption", {}, element("span", {}, data.title), this.where),
      this.svg, this.legend, this.spoken,
    );
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.move(null, false));
    listenToKeys(this.figure, (step) => this.go(step));
    new ResizeObserver(() => this.draw()).observe(this.figure);
  }

  /** The lines of visible runs, with x and y as drawn. */
  visible() {
    const several = new Set(this.data.lines.map((line) => line.run)).size > 1;
    return this.data.lines
      .map((line, index) => ({ ...line, index, color: several ? line.run : index }))
      .filter((line) => !this.state.hidden.has(line.run))
      .map((line) => {
        const hours = this.state.x === "hours";
        const xs = hours ? line.seconds.map((s) => s / 3600) : line.steps;
        const color = line.label === "expected" ? "var(--quiet)" : `var(--c${line.color % 8})`;
        const name = several ? `${this.names[line.run]}, ${line.label}` : line.label;
        const ys = line.values.slice(0, xs.length);
        return { ...line, xs, raw: ys, ys: smoothed(ys, this.state.smooth), color, name };
      })
      .filter((line) => line.xs.length);
  }

  draw() {
    const width = this.figure.clientWidth - 26;
    if (width < 50) return;
    const height = Math.max(170, Math.min(260, width * 0.45));
    this.size = { width, height };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.lines = this.visible();
    this.scale();
    const frame = drawn("clipPath", { id: this.id }, drawn("rect", {
      x: MARGIN.left - 4, y: 0, width: width - MARGIN.left - MARGIN.right + 8, height }));
    const curves = this.lines.flatMap((line) => this.curve(line));
    this.svg.replaceChildren(frame, ...this.axes(), drawn("g", { "clip-path": `url(#${this.id})` }, ...curves));
    this.cursor = drawn("g", {});
    this.svg.append(this.cursor);
    const all = this.lines.flatMap((line) => line.xs);
    this.stops = [...new Set(all)].sort((a, b) => a - b);
    this.move(this.at, false);
  }

  /** Sets the position of values in the drawing. */
  scale() {
    const made = this.lines.filter((line) => line.label !== "expected");
    const reach = made.length ? made : this.lines; // an expected loss does not extend the axis
    const xs = reach.flatMap((line) => [line.xs[0], line.xs[line.xs.length - 1]]);
    const ys = this.lines.flatMap((line) => line.ys.filter((y) => y !== null));
    const range = (values) => values.reduce(
      ([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    let [left, right] = xs.length ? range(xs) : [0, 1];
    let [low, high] = ys.length ? range(ys) : [0, 1];
    this.isLog = this.state.log && low > 0;
    // Values that differ by rounding alone are flat: no ticks fit between them.
    if (high - low < 1e-9 * Math.abs(high)) low = high;
    const spread = this.isLog ? Math.log(high / low) : high - low;
    const flat = this.isLog ? 0.1 : Math.abs(high) * 0.05 || 0.5;
    const pad = spread * 0.05 || flat;
    if (this.isLog) [low, high] = [low / Math.exp(pad), high * Math.exp(pad)];
    else [low, high] = [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
    const only = left === right ? [left] : null; // between steps there is nothing to mark
    if (only) [left, right] = [left - 0.5, right + 0.5];
    this.range = { left, right, low, high, only };
    const { width, height } = this.size;
    const wide = width - MARGIN.left - MARGIN.right;
    const tall = height - MARGIN.top - MARGIN.bottom;
    const bend = this.isLog ? Math.log : (v) => v;
    this.x = (v) => MARGIN.left + ((v - left) / (right - left)) * wide;
    this.y = (v) => MARGIN.top + tall - ((bend(v) - bend(low)) / (bend(high) - bend(low))) * tall;
    this.back = (place) => left + ((place - MARGIN.left) / wide) * (right - left);
  }

  axes() {
    const { left, right, low, high, only } = this.range;
    const { width, height } = this.size;
    const unit = this.data.unit;
    const parts = [];
    for (const value of this.isLog ? logTicks(low, high) : ticks(low, high, 4)) {
      const y = this.y(value);
      parts.push(drawn("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
      const attributes = { class: "axis", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" };
      parts.push(drawn("text", attributes, brief(value, unit)));
    }
    for (const value of only ?? ticks(left, right, Math.max(2, Math.floor(width / 110)))) {
      const attributes = { class: "axis", x: this.x(value), y: height - 5, "text-anchor": "middle" };
      parts.push(drawn("text", attributes, brief(value, "")));
    }
    return parts;
  }

  curve(line) {
    const style = `stroke:${line.color}`;
    const kind = line.dashed ? "curve dashed" : "curve";
    const parts = [];
    if (this.state.smooth > 0) {
      parts.push(drawn("path", { class: "curve raw", style, d: this.path(line.xs, line.raw) }));
    }
    parts.push(drawn("path", { class: kind, style, d: this.path(line.xs, line.ys) }));
    if (line.xs.length <= 40) {
      line.xs.forEach((x, i) => {
        if (line.ys[i] === null) return;
        parts.push(drawn("circle", { cx: this.x(x), cy: this.y(line.ys[i]), r: 2.5, style: `fill:${line.color}` }));
      });
    }
    return parts;
  }

  path(xs, ys) {
    let pen = "M";
    const clamp = (v) => Math.max(-1e4, Math.min(1e4, v));
    const parts = xs.map((x, i) => {
      if (ys[i] === null || (this.isLog && ys[i] <= 0)) { pen = "M"; return ""; }
      const part = `${pen}${this.x(x).toFixed(1)} ${clamp(this.y(ys[i])).toFixed(1)}`;
      pen = "L";
      return part;
    });
    return parts.join("");
  }

  point(event) {
    if (!this.stops?.length) return;
    const box = this.svg.getBoundingClientRect();
    const x = this.back(((event.clientX - box.left) / box.width) * this.size.width);
    this.move(this.stops[nearest(this.stops, x)], false);
  }

  /** Moves the cursor by `step` points; null releases it. */
  go(step) {
    if (step === null || !this.stops?.length) return this.move(null, false);
    const last = this.stops.length - 1;
    const from = this.at === null ? (step < 0 ? last + 1 : -1) : nearest(this.stops, this.at);
    return this.move(this.stops[Math.max(0, Math.min(last, from + step))], true);
  }

  /** Shows the values at x, or the last ones for null. */
  move(at, isSpoken) {
    if (!this.lines) return;
    this.at = at;
    const hours = this.state.x === "hours";
    const place = (v) => (hours ? `${shown(v)} hours` : `step ${integer(v)}`);
    this.where.textContent = at === null ? "last" : `at ${place(at)}`;
    const marks = at === null ? [] : [drawn("line", {
      class: "cursor", x1: this.x(at), x2: this.x(at), y1: MARGIN.top, y2: this.size.height - MARGIN.bottom })];
    const texts = [];
    const items = this.lines.map((line) => {
      const index = at === null ? lastKnown(line.ys) : nearest(line.xs, at);
      const value = line.ys[index] ?? null;
      const outside = at !== null && (at < line.xs[0] || at > line.xs[line.xs.length - 1]);
      const text = outside ? "–" : shown(value, this.data.unit);
      if (at !== null && !outside && value !== null) {
        marks.push(drawn("circle", { cx: this.x(line.xs[index]), cy: this.y(value), r: 4, style: `fill:${line.color}` }));
      }
      texts.push(`${line.name} ${text}`);
      const swatch = element("span", { class: line.dashed ? "swatch dashed" : "swatch", style: `border-color:${line.color}` });
      return element("li", {}, swatch, `${line.name} `, element("output", {}, text));
    });
    this.cursor.replaceChildren(...marks);
    this.legend.replaceChildren(...items);
    if (isSpoken) this.spoken.textContent = `${place(at)}: ${texts.join(", ")}`;
  }
}

Chart.count = 0;

/** An exponential mean of values with weight `share` for the past; gaps stay gaps. */
function smoothed(values, share) {
  if (!share) return values;
  let mean = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = share * mean + (1 - share) * value;
    weight = share * weight + (1 - share);
    return mean / weight;
  });
}

function lastKnown(values) {
  for (let i = values.length - 1; i > 0; i--) if (values[i] !== null) return i;
  return 0;
}

/** A number at an axis. */
function brief(value, unit) {
  if (unit === "%") return `${Number((100 * value).toPrecision(3))} %`;
  if (unit === "bytes") return `${Number((value / 2 ** 30).toPrecision(3))} GiB`;
  const size = Math.abs(value);
  for (const [limit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${Number((value / (letter === "k" ? 1e3 : limit)).toPrecision(3))} ${letter}`;
  }
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}
