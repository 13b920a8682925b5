"use strict";

/** An HTML element with attributes and children; texts are never parsed as markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The same for an SVG element. */
function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A number for a reader: 4.532, 12,346, 3.1 M, 41.2 %. */
function shown(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (unit === "%") return `${(100 * value).toFixed(Math.abs(value) < 0.1 ? 2 : 1)} %`;
  if (unit === "bytes") return `${(value / 2 ** 30).toPrecision(3)} GiB`;
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  if (size < 100) return String(Number(value.toPrecision(4)));
  return Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 1 });
}

/** An integer with separators, for steps. */
function integer(value) {
  return Math.round(value).toLocaleString("en");
}

/** Seconds as 2 d 03 h, 3 h 04 min, 5 min 06 s, 7 s. */
function duration(seconds) {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (seconds >= 86400) return `${Math.floor(seconds / 86400)} d ${two((seconds % 86400) / 3600)} h`;
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)} h ${two((seconds % 3600) / 60)} min`;
  if (seconds >= 60) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Number(seconds.toPrecision(2))} s`;
}

/** A moment, in the reader's own time. */
function moment(seconds) {
  return new Date(seconds * 1000).toLocaleString();
}

/** Round numbers that divide a range into about `count` parts. */
function ticks(least, greatest, count) {
  const raw = (greatest - least) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * ([1, 2, 5, 10].find((n) => n * unit >= raw) ?? 10);
  const found = [];
  for (let i = Math.ceil(least / step); i * step <= greatest + step * 1e-9; i++) found.push(i * step);
  return found;
}

/** The same for a logarithmic range: 1, 2, 5, 10, … or fewer. */
function logTicks(least, greatest) {
  const found = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(greatest); power++) {
    for (const n of [1, 2, 5]) {
      const value = n * 10 ** power;
      if (value >= least && value <= greatest) found.push(value);
    }
  }
  const few = found.filter((v) => Number.isInteger(Math.log10(v)));
  if (found.length > 9) return few;
  return found.length < 2 ? ticks(least, greatest, 4) : found;
}

/** Index of the nearest of ascending numbers. */
function nearest(sorted, value) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  const before = low > 0 && value - sorted[low - 1] <= sorted[low] - value;
  return before ? low - 1 : low;
}

/** Calls `go(step)` or `go(null)` for arrow keys, Home, End and Escape. */
function listenToKeys(target, go) {
  target.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    const steps = { ArrowLeft: -far, ArrowRight: far, Home: -Infinity, End: Infinity, Escape: null };
    if (!(event.key in steps)) return;
    event.preventDefault();
    go(steps[event.key]);
  });
}
