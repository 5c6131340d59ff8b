// Draws the charts of the report, lets the timeline be moved, queries be copied, evidence be found.
// Without it the page shows the same charts as pictures.
(() => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(byId(id).textContent);
  const themes = read("chart-themes");
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const views = {};
  const system = matchMedia("(prefers-color-scheme: dark)");

  const theme = () => document.documentElement.dataset.theme || (system.matches ? "dark" : "light");

  async function draw(figure) {
    const name = figure.dataset.chart;
    const live = figure.querySelector(".live");
    if (views[name]) views[name].finalize();
    const options = {
      mode: "vega-lite", ast: true, actions: false, config: themes[theme()],
      renderer: name === "timeline" ? "canvas" : "svg", tooltip: { theme: theme() },
    };
    const result = await vegaEmbed(live, read(`chart-${name}`), options);
    views[name] = result.view;
    figure.classList.add("drawn");
    if (name === "timeline") steer(figure, result.view);
  }

  async function drawAll() {
    for (const figure of figures) {
      try { await draw(figure); } catch (problem) { console.error(figure.dataset.chart, problem); }
    }
    document.documentElement.dataset.charts = "drawn";
  }

  // The timeline: the domain of all panels is one signal, moved by buttons, keys and the mouse.
  let whole = null;
  function range(view) { return view.signal("zoom_at") || whole; }
  function move(view, from, to) { view.signal("zoom_at", [from, to]).runAsync(); }
  function zoom(view, factor) {
    const [a, b] = range(view).map(Number);
    const middle = (a + b) / 2, half = ((b - a) / 2) * factor;
    move(view, middle - half, middle + half);
  }
  function shift(view, share) {
    const [a, b] = range(view).map(Number);
    move(view, a + share * (b - a), b + share * (b - a));
  }
  const acts = {
    "zoom-in": (v) => zoom(v, 0.5), "zoom-out": (v) => zoom(v, 2),
    earlier: (v) => shift(v, -0.25), later: (v) => shift(v, 0.25),
    all: (v) => move(v, ...whole),
  };
  const keys = { "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", ArrowLeft: "earlier", ArrowRight: "later", 0: "all" };

  function steer(figure, view) {
    whole = read("chart-timeline-range");
    view.addEventListener("click", (_, item) => {
      if (item && item.datum && item.datum.trace) show(figure, item.datum);
    });
  }
  function act(name) { if (views.timeline) acts[name](views.timeline); }

  function show(figure, datum) {
    const list = figure.querySelector(".picked dl");
    list.replaceChildren();
    for (const [label, key] of [["arrival (UTC)", "time"], ["end to end", "e2e"], ["first token", "ttft"],
      ["queue", "queue"], ["status", "status"], ["tenant", "tenant"], ["replica", "replica"], ["trace", "trace"]]) {
      const term = document.createElement("dt"), value = document.createElement("dd");
      term.textContent = label;
      value.textContent = datum[key];
      list.append(term, value);
    }
    const sql = `SELECT service, name, start_ns, dur_ns FROM span WHERE trace_id = '${datum.trace.replaceAll("'", "''")}' ORDER BY start_ns`;
    figure.querySelector(".picked pre").textContent = sql;
    figure.querySelector(".picked").hidden = false;
  }

  async function copy(button) {
    const text = button.closest("[data-query]").querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // pages opened from a file may not write the clipboard: select the text instead
      const selection = getSelection(), all = document.createRange();
      all.selectNodeContents(button.closest("[data-query]").querySelector("pre"));
      selection.removeAllRanges();
      selection.addRange(all);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  function find(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    let n = 0;
    for (const row of document.querySelectorAll("#evidence-table tbody tr")) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      n += row.hidden ? 0 : 1;
    }
    byId("found").textContent = `${n} shown`;
  }

  for (const hidden of document.querySelectorAll("[data-needs-script]")) hidden.hidden = false;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.act) act(button.dataset.act);
    if (button.classList.contains("copy")) copy(button);
    if (button.id === "theme") {
      document.documentElement.dataset.theme = theme() === "dark" ? "light" : "dark";
      drawAll();
    }
  });
  const timeline = document.querySelector('figure[data-chart="timeline"]');
  if (timeline) timeline.addEventListener("keydown", (event) => {
    const name = keys[event.key];
    if (!name || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("pre, dl")) return;
    event.preventDefault();
    act(name);
  });
  const search = byId("find");
  if (search) search.addEventListener("input", () => find(search.value));
  system.addEventListener("change", drawAll);
  addEventListener("hashchange", () => {
    const details = location.hash && byId(location.hash.slice(1))?.querySelector("details");
    if (details) details.open = true;
  });
  window.report = { views, drawn: drawAll() };
})();
