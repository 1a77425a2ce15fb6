// The map (map.js) with places of clients, flows and arcs. What stands still until the next scene is painted once, on one canvas; on another dots run along
// each line, sixty times a second: to paint every line anew for each frame would take four times as long.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const figure = document.getElementById("map");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const SIGNS = { up: "", down: "✕", draining: "◐", disabled: "■", unknown: "?" };
  const layer = () => document.createElement("canvas").getContext("2d");
  const resting = layer(), moving = layer();
  let map = null, scene = null, lines = [], dots = [];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let colours = {};
  function paint() { colours = Object.fromEntries(["--flow", "--arc", "--place", "--refused"].map((name) => [name, colour(name)])); }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint(); if (map && scene) rest(); });

  function sized(drawn) {
    const ratio = window.devicePixelRatio || 1;
    map = drawn;
    for (const pen of [resting, moving]) {
      if (!pen.canvas.isConnected) map.svg.before(pen.canvas);
      pen.canvas.width = map.width * ratio; pen.canvas.height = map.height * ratio;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    layout();
  }

  // A line between two places, bent to the left of its way, so that both ways of a pair are seen; and points along it, for dots to run on.
  const POINTS = 48, GAP = 26, PER_MS = 0.03;
  function bent(from, to, bend) {
    const dx = to[0] - from[0], dy = to[1] - from[1];
    const by = [(from[0] + to[0]) / 2 + dy * bend, (from[1] + to[1]) / 2 - dx * bend];
    const path = new Path2D(), along = new Float32Array(2 * POINTS + 2);
    path.moveTo(from[0], from[1]);
    path.quadraticCurveTo(by[0], by[1], to[0], to[1]);
    for (let n = 0; n <= POINTS; n++) {
      const t = n / POINTS, u = 1 - t;
      along[2 * n] = u * u * from[0] + 2 * u * t * by[0] + t * t * to[0];
      along[2 * n + 1] = u * u * from[1] + 2 * u * t * by[1] + t * t * to[1];
    }
    return { path, along, length: Math.max(1, Math.hypot(dx, dy) * (1 + bend * bend)) };
  }

  function layout() {
    if (!scene || !map) return;
    const projection = map.projection, where = new Map(scene.regions.map((one) => [one.name, projection([one.lon, one.lat])]));
    const most = Math.max(1e-9, ...scene.flows.map((one) => one[3])), total = Math.max(1e-9, ...scene.places.map((one) => one[2]));
    lines = scene.flows.filter((one) => where.get(one[2])).map(([lat, lon, region, rate]) => ({
      ...bent(projection([lon, lat]), where.get(region), 0.12), width: 0.8 + 3.2 * Math.sqrt(rate / most), kind: "--flow", rate,
    }));
    const spill = Math.max(1e-9, ...scene.arcs.map((one) => one[2]));
    for (const [from, to, rate] of scene.arcs) {
      if (where.get(from) && where.get(to) && rate > 0) {
        lines.push({ ...bent(where.get(from), where.get(to), -0.25), width: 2 + 4 * Math.sqrt(rate / spill), kind: "--arc", rate });
      }
    }
    dots = scene.places.map(([lat, lon, rate, refused]) => ({ at: projection([lon, lat]), radius: 2 + 9 * Math.sqrt(rate / total), refused: refused > 0 }));
    map.drawRegions(scene.regions.map((one) => ({ ...one, kind: one.state, sign: SIGNS[one.state] ?? "?", said: said(one), href: `/regions/${encodeURIComponent(one.name)}` })));
    figure.dataset.flows = JSON.stringify(scene.flows.reduce((sums, one) => ({ ...sums, [one[2]]: (sums[one[2]] || 0) + one[3] }), {}));
    rest();
  }

  function said(one) {
    const percent = one.use === null ? "use unknown" : `${Math.round(100 * one.use)} % used`;
    return `${one.name}: ${one.state}, ${percent}, ${one.served} requests per second`;
  }

  function rest() {
    const pen = resting;
    pen.clearRect(0, 0, map.width, map.height);
    pen.fillStyle = colours["--place"]; pen.globalAlpha = 0.35;
    for (const dot of dots) { pen.beginPath(); pen.arc(dot.at[0], dot.at[1], dot.radius, 0, 7); pen.fill(); }
    pen.globalAlpha = 1; pen.strokeStyle = colours["--refused"]; pen.lineWidth = 2; pen.setLineDash([]);
    for (const dot of dots) if (dot.refused) { pen.beginPath(); pen.arc(dot.at[0], dot.at[1], dot.radius + 2, 0, 7); pen.stroke(); }
    for (const line of lines) {
      const arc = line.kind === "--arc";
      pen.strokeStyle = colours[line.kind]; pen.lineWidth = line.width;
      pen.globalAlpha = arc ? 0.9 : 0.4;
      pen.setLineDash(arc ? [9, 6] : []);
      pen.stroke(line.path);
    }
    pen.globalAlpha = 1;
  }
  function run(time) {
    const pen = moving;
    pen.clearRect(0, 0, map.width, map.height);
    for (const kind of ["--flow", "--arc"]) {
      pen.fillStyle = colours[kind];
      for (const line of lines) {
        if (line.kind !== kind) continue;
        const size = 1.5 + 0.6 * line.width, half = size / 2, gap = GAP / line.length;
        for (let t = (time * PER_MS / line.length) % gap; t < 1; t += gap) {
          const n = 2 * Math.round(t * POINTS);
          pen.fillRect(line.along[n] - half, line.along[n + 1] - half, size, size);
        }
      }
    }
  }
  function frame(time) {
    if (still.matches) { moving.clearRect(0, 0, moving.canvas.width, moving.canvas.height); return; }
    if (map && !document.hidden) run(time);
    requestAnimationFrame(frame);
  }
  still.addEventListener("change", () => requestAnimationFrame(frame));

  function take(text) { scene = JSON.parse(text); layout(); }
  document.addEventListener("live:scene", (event) => take(event.detail));
  paint(); take(document.getElementById("scene").textContent);
  worldMap(figure, { label: "Regions on a map of the world; the table beside it says the same", sized });
  requestAnimationFrame(frame);
});
