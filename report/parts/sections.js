"use strict";

const STATES = {
  ended: "ended", running: "running", interrupted: "interrupted", failed: "failed",
  silent: "no output for a while", unknown: "",
};

/** A table; numbers are aligned to the right. */
function table(heads, rows, caption) {
  const isNumber = heads.map((_, i) => rows.some((row) => typeof row[i] === "number"));
  const cell = (name, i, content) =>
    element(name, isNumber[i] ? { class: "number" } : {}, content instanceof Node ? content : String(content ?? "–"));
  const text = (value) => (typeof value === "number" ? shown(value) : value);
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {},
      element("thead", {}, element("tr", {}, ...heads.map((head, i) => cell("th", i, head)))),
      element("tbody", {}, ...rows.map((row) =>
        element("tr", {}, ...row.map((value, i) => cell("td", i, text(value))))))));
}

/** A section of the page, or nothing if it would be empty. */
function part(title, ...children) {
  const kept = children.flat().filter(Boolean);
  if (!kept.length) return [];
  const name = title.toLowerCase().replaceAll(/[^a-z]+/g, "-");
  return [element("section", { class: "part", id: name, "aria-label": title }, element("h2", {}, title), ...kept)];
}

/** A part for each run, under its name if there are several runs. */
function perRun(runs, make) {
  return runs.flatMap((run) => {
    const made = [make(run)].flat().filter(Boolean);
    return made.length && runs.length > 1 ? [element("h3", {}, run.name), ...made] : made;
  });
}

/** The card of a run: its state, and whether its curves are shown. */
function card(run, index, state, redraw) {
  const box = element("input", { type: "checkbox" });
  box.checked = !state.hidden.has(index);
  box.addEventListener("change", () => {
    if (box.checked) state.hidden.delete(index);
    else state.hidden.add(index);
    redraw();
  });
  const swatch = element("span", { class: "swatch", style: `border-color:var(--c${index % 8})` });
  const total = run.total ? ` of ${integer(run.total)} (${Math.round((100 * run.step) / run.total)} %)` : "";
  const left = run.total && run.rate && run.state === "running" ? (run.total - run.step) / run.rate : 0;
  const rows = {
    step: `${integer(run.step)}${total}`,
    state: STATES[run.state],
    left: left > 0 ? duration(left) : "",
    devices: run.device,
    restarts: run.spans.length ? integer(run.restarts) : "",
    "last output": run.seen ? moment(run.seen) : "",
    folder: run.path,
  };
  const list = Object.entries(rows).filter(([, value]) => value)
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  return element("div", { class: "card" }, element("label", {}, box, " ", swatch, run.name), element("dl", {}, ...list));
}

/** A filled sentence, its fillings marked. */
function filled(text) {
  const pieces = text.split(/\[([^\]]*)\]/);
  return element("span", { class: "infill", lang: "" },
    ...pieces.map((piece, i) => (i % 2 ? element("b", {}, piece || "\u00a0") : piece)));
}

function infills(runs) {
  return part("Sentences filled in", perRun(runs, (run) =>
    Object.entries(run.infills).map(([sentence, rows]) =>
      element("div", {}, element("h3", {}, sentence.replaceAll(/<extra_id_\d+>|\[MASK\]/g, "…")),
        table(["step", "filled in"], rows.map(([step, text]) => [step, filled(text)]), sentence)))));
}

function corpora(runs) {
  return part("Data seen", perRun(runs, (run) => {
    if (!run.corpora.length) return [];
    const heads = [...new Set(run.corpora.flatMap(Object.keys))];
    return table(heads.map((h) => h.replaceAll("_", " ")), run.corpora.map((row) => heads.map((h) => row[h] ?? null)), "Data seen");
  }));
}

function metrics(runs) {
  return part("Metrics of tasks", perRun(runs, (run) => run.tables.map(({ task, columns, rows }) =>
    element("div", {}, element("h3", {}, task), table(columns, rows, task)))));
}

function configurations(runs) {
  return part("Configuration", perRun(runs, (run) => {
    const changes = run.changes.map(({ step, time, rows }) => element("div", {},
      element("h3", {}, `Changed at step ${integer(step)}, ${moment(time)}`),
      table(["name", "before", "after"], rows.map(([name, before, after]) =>
        [element("code", {}, name), element("del", {}, before ?? "–"), element("ins", {}, after ?? "–")]), "Changes")));
    const text = run.config && element("details", {}, element("summary", {}, "config.gin"),
      element("pre", { tabindex: "0" }, run.config));
    const none = run.restarts && !changes.length && element("p", { class: "quiet" }, "No changes between restarts.");
    return [...changes, none, text];
  }));
}

function notes(runs) {
  return part("Could not be read", perRun(runs, (run) =>
    run.notes.map((note) => element("p", {}, note))));
}

/** The timelines, and the same as tables. */
function timelines(runs) {
  const made = runs.filter((run) => run.spans.length).map((run) => new Timeline(run));
  if (!made.length) return [];
  const rows = (timeline) => timeline.spans.map(([kind, begin, seconds, step, detail]) =>
    [KINDS[kind] ?? kind, duration(begin), MOMENTS.has(kind) ? "" : duration(seconds), step, detail || ""]);
  const tables = made.map((timeline) => element("details", {},
    element("summary", {}, `${timeline.run.name} as a table`),
    table(["what", "after the start", "took", "step", "detail"], rows(timeline), "Timeline")));
  return part("Timeline", element("div", { class: "charts wide" }, ...made.map((t) => t.figure)), ...tables);
}
