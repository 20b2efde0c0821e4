// Charts: the numbers are in a block of data next to each; uPlot draws them in the page's own colours.
"use strict";
(() => {
  const UNITS = {
    percent: (value) => `${Math.round(value * 100)} %`,
    score: (value) => value.toFixed(2),
    dollars: (value) => `$${value.toFixed(value < 10 ? 4 : 2)}`,
    seconds: (value) => {
      if (value < 1) return value ? `${Number((value * 1000).toPrecision(2))} ms` : "0";
      return value < 60 ? `${value.toFixed(1)} s` : `${(value / 60).toFixed(1)} min`;
    },
    trials: (value) => String(Math.round(value)),
  };
  const drawn = [];

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(name).trim();
    return {ink: named("--ink"), soft: named("--soft"), line: named("--line"), bar: named("--bar")};
  }

  const faded = (colour) => (/^#[0-9a-f]{6}$/i.test(colour) ? `${colour}33` : colour);

  function axes(data, format, tint) {
    const font = "12px system-ui, sans-serif";
    const look = {stroke: tint.soft, font, grid: {stroke: tint.line, width: 1}, ticks: {stroke: tint.line, width: 1}};
    const differ = (start, end) => new Set(data.labels.map((label) => label.slice(start, end))).size;
    const part = differ(0, 10) > 1 ? [5, 10] : differ(11, 16) > data.labels.length / 2 ? [11, 16] : [11, 19];
    const short = (label) => (data.links ? label.slice(...part) : label);
    const below = {
      ...look,
      grid: {show: false},
      splits: (chart, axis, low, high) => {
        const step = Math.max(1, Math.ceil((high - low) / Math.max(2, Math.floor(chart.width / 72))));
        return data.labels.map((_, at) => at).filter((at) => at % step === 0);
      },
      values: (chart, splits) => splits.map((at) => short(data.labels[at] ?? "")),
    };
    const left = {...look, size: 62, values: (chart, splits) => splits.map(format)};
    if (data.unit === "trials") left.incrs = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
    return [below, left];
  }

  function range(data) {
    const known = [...data.values, ...(data.high || [])].filter((value) => value !== null);
    const top = data.unit === "percent" || data.unit === "score" ? 1 : Math.max(...known, 0) * 1.1 || 1;
    return [0, top];
  }

  function line(data, format, tint) {
    const show = (chart, value) => (value === null || value === undefined ? "–" : format(value));
    const series = [{label: "run", value: (chart, at) => (data.labels[at] ?? "").slice(0, 16).replace("T", " ")}];
    series.push({label: "value", stroke: tint.bar, width: 2, points: {show: true, size: 6, fill: tint.bar}, value: show});
    const columns = [data.labels.map((_, at) => at), data.values];
    let bands = [];
    if (data.low) {
      const edge = {stroke: faded(tint.bar), width: 1, dash: [4, 3], points: {show: false}, value: show};
      series.push({label: "low", ...edge}, {label: "high", ...edge});
      columns.push(data.low, data.high);
      bands = [{series: [3, 2], fill: faded(tint.bar)}];
    }
    return {columns, options: {series, bands}};
  }

  function bars(data, format, tint) {
    const paths = uPlot.paths.bars({size: [0.7, 90]});
    const show = (chart, value) => (value === null || value === undefined ? "–" : format(value));
    const series = [
      {label: "calls", value: (chart, at) => data.labels[at] ?? ""},
      {label: data.unit, stroke: tint.bar, fill: tint.bar, paths, points: {show: false}, value: show},
    ];
    return {columns: [data.labels.map((_, at) => at), data.values], options: {series}};
  }

  function draw(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const place = figure.querySelector(".canvas");
    const tint = colours();
    const format = UNITS[data.unit] || String;
    const {columns, options} = (figure.dataset.kind === "bars" ? bars : line)(data, format, tint);
    const edge = figure.dataset.kind === "bars" ? 0.6 : 0.3;
    place.replaceChildren();
    const chart = new uPlot({
      width: Math.max(200, place.clientWidth),
      height: 220,
      cursor: {drag: {x: false, y: false}, y: false},
      scales: {x: {time: false, range: [-edge, data.labels.length - 1 + edge]}, y: {range: range(data)}},
      axes: axes(data, format, tint),
      legend: {live: true},
      ...options,
    }, columns, place);
    if (data.links && !document.body.classList.contains("export")) {
      chart.over.addEventListener("click", () => {
        const link = data.links[chart.cursor.idx];
        if (link?.startsWith("/runs/")) location.href = link;
      });
      chart.over.classList.add("linked");
    }
    return chart;
  }

  function drawAll() {
    drawn.splice(0).forEach((chart) => chart.destroy());
    document.querySelectorAll("figure.chart").forEach((figure) => drawn.push(draw(figure)));
  }

  let waiting = 0;
  function later() {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 100);
  }
  addEventListener("resize", later);
  addEventListener("themechange", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
})();
