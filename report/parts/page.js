"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const state = { x: "step", log: false, smooth: 0, look: "auto", hidden: new Set() };
  const storageKey = `report ${data.runs.map((run) => run.path).join(" ")}`;

  // Choices survive a reload, if the browser allows storage.
  try {
    const kept = JSON.parse(sessionStorage.getItem(storageKey));
    if (kept) Object.assign(state, kept, { hidden: new Set(kept.hidden) });
  } catch { /* nothing stored */ }
  const remember = () => {
    try {
      sessionStorage.setItem(storageKey, JSON.stringify({ ...state, hidden: [...state.hidden] }));
    } catch { /* storage is blocked */ }
  };

  const names = data.runs.map((run) => run.name);
  const charts = data.charts.map((chart) => new Chart(chart, state, names));
  const redraw = () => {
    remember();
    charts.forEach((chart) => { chart.at = null; chart.draw(); });
  };
  const look = () => { document.documentElement.dataset.look = state.look; };

  for (const [id, key, property] of [["x", "x", "value"], ["log", "log", "checked"], ["smooth", "smooth", "value"], ["look", "look", "value"]]) {
    const control = byId(id);
    control[property] = state[key];
    control.addEventListener("input", () => {
      state[key] = key === "smooth" ? Number(control.value) : control[property];
      look();
      redraw();
    });
  }
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  look();

  document.title = names.length ? `${names.join(", ")}: training report` : "Training report";
  byId("made").textContent = `made ${moment(data.made)}${data.reload ? ", reloads with the run" : ""}`;
  byId("runs").append(...data.runs.map((run, index) => card(run, index, state, redraw)));

  const figures = (isMain) => charts.filter((chart) => chart.data.main === isMain).map((chart) => chart.figure);
  const rest = figures(false);
  const main = byId("main");
  main.append(element("div", { class: "charts" }, ...figures(true)));
  main.append(...timelines(data.runs), ...infills(data.runs), ...metrics(data.runs), ...corpora(data.runs));
  main.append(...configurations(data.runs), ...notes(data.runs));
  if (rest.length) {
    main.append(element("details", {}, element("summary", {}, `${rest.length} more metrics`),
      element("div", { class: "charts" }, ...rest)));
  }
  if (!data.charts.length) {
    main.prepend(element("p", { id: "empty" }, "No metric has been written yet."));
  }
  if (data.reload) setTimeout(() => location.reload(), data.reload * 1000);
  document.documentElement.dataset.ready = "true";
})();
