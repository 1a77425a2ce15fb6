// Curves over time (uPlot). Each has a colour of Okabe and Ito's set and a dash of its own: colours never stand alone. Tables say the same.
"use strict";
(() => {
  const LIGHT = ["#0072b2", "#c25400", "#00795a", "#a2488a", "#8a6d00", "#3b7fa8", "#000000", "#7a4b1f"];
  const DARK = ["#56b4e9", "#f0a04b", "#4fd1a5", "#e39acb", "#f0e442", "#9ad0f0", "#ffffff", "#d0a070"];
  const DASHES = [[], [9, 4], [2, 3], [12, 4, 2, 4], [5, 5], [1, 5], [14, 6], [6, 2, 2, 2, 2, 2]];
  const SIZE = 15, ROWS = 3;  // of a mark's number, and how many stand above each other
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value) => value === null || value === undefined ? "–" : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
  const height = (figure) => figure.classList.contains("low") ? 190 : innerWidth < 640 ? 220 : 300;

  const shade = (mark) => colour(mark.kind === "bad" ? "--bad" : mark.kind === "good" ? "--good" : "--dim");

  // Values with a gap on either side: no line leads to them, so they are points.
  const alone = (row) => row.flatMap((value, n) => value !== null && (row[n - 1] ?? null) === null && (row[n + 1] ?? null) === null ? [n] : []);

  // What happened, as numbered lines; the list below the charts says what each is.
  function marked(chart, marks) {
    const { ctx, bbox } = chart, ratio = devicePixelRatio || 1, size = SIZE * ratio;
    const ends = Array(ROWS).fill(-Infinity);
    ctx.save();
    ctx.font = `600 ${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    for (const mark of marks) {
      const x = chart.valToPos(mark.at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = shade(mark);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    for (const mark of marks) {
      const x = chart.valToPos(mark.at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = shade(mark);
      const row = ends.findIndex((end) => x - size / 2 > end);
      if (row < 0) continue;
      ends[row] = x + size / 2;
      const y = bbox.top + size * (row + 0.5);
      ctx.fillStyle = colour("--card");
      ctx.fillRect(x - size / 2, y - size / 2, size, size);
      ctx.strokeRect(x - size / 2, y - size / 2, size, size);
      ctx.fillStyle = shade(mark);
      ctx.fillText(mark.number, x, y);
    }
    ctx.restore();
  }

  function draw(figure) {
    const told = JSON.parse(figure.dataset.chart), colours = dark.matches ? DARK : LIGHT;
    // A gap where nothing was recorded.
    const times = [], rows = told.series.map(() => []);
    told.times.forEach((at, n) => {
      if (n && at - told.times[n - 1] > 1.5 * told.step) { times.push(at - told.step); rows.forEach((row) => row.push(null)); }
      times.push(at); rows.forEach((row, s) => row.push(told.series[s].values[n]));
    });
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const options = {
      width: figure.clientWidth, height: height(figure), cursor: { y: false, sync: { key: told.sync || null } },
      scales: { x: { range: () => [told.since, told.until] }, y: { range: (_, __, most) => [0, Math.max(most * 1.05, told.unit === "%" ? 10 : 1)] } },
      axes: [{ ...axis }, { ...axis, size: 64, values: (_, ticks) => ticks.map((value) => `${short(value).replace(/\.0+$/, "")}${told.unit === "/s" ? "/s" : ` ${told.unit}`}`) }],
      series: [{}, ...told.series.map((one, n) => ({
        label: one.name, stroke: colours[n % colours.length], dash: DASHES[n % DASHES.length], width: 2,
        points: { show: times.length < 3, filter: (_, s, show) => show ? null : alone(rows[s - 1]) },
        value: (_, value) => `${short(value)} ${told.unit}`,
      }))],
      hooks: { draw: [(chart) => marked(chart, told.marks || [])] },
    };
    figure.querySelector(".uplot")?.remove();
    figure.chart = new uPlot(options, [times, ...rows], figure);
  }
  function all() {
    for (const figure of document.querySelectorAll("figure.chart[data-chart]")) {
      if (drawn.has(figure)) continue;
      drawn.add(figure);
      draw(figure);
      new ResizeObserver(() => { if (figure.clientWidth) figure.chart.setSize({ width: figure.clientWidth, height: height(figure) }); }).observe(figure);
    }
  }
  dark.addEventListener("change", () => { for (const figure of drawn) if (figure.isConnected) draw(figure); });
  document.addEventListener("DOMContentLoaded", all);
  document.addEventListener("htmx:afterSettle", all);
})();
