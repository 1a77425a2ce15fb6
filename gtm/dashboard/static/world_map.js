// The map (map.js) of the World page: demand as heat, flows, arcs, and countries to click on. What stands still until the next scene is painted once, on one
// canvas; on another dots run along each line, sixty times a second. There are never more dots than MOST, however many lines there are: their number is what a frame costs.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const figure = document.getElementById("map"), told = figure.querySelector(".told");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const SIGNS = { up: "", down: "✕", draining: "◐", disabled: "■", unknown: "?", then: "" };
  const HALF = 2.5;  // degrees of half a cell
  const layer = () => document.createElement("canvas").getContext("2d");
  const resting = layer(), moving = layer();
  let map = null, scene = null, lines = [], cells = [], hover = null, around = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let colours = {};
  function paint() { colours = Object.fromEntries(["--flow", "--arc", "--refused", "--card", "--heat-edge", "--heat1", "--heat2", "--heat3", "--heat4", "--heat5"].map((name) => [name, colour(name)])); }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { paint(); if (map && scene) rest(); });

  function sized(drawn) {
    const ratio = window.devicePixelRatio || 1;
    map = drawn;
    if (!around) {
      around = map.element("a", "country"); hover = map.element("path", "", around);
      around.setAttribute("tabindex", "-1"); around.setAttribute("aria-hidden", "true");
      map.svg.prepend(around);
    }
    around.style.display = "none";
    for (const pen of [resting, moving]) {
      if (!pen.canvas.isConnected) map.svg.before(pen.canvas);
      pen.canvas.width = map.width * ratio; pen.canvas.height = map.height * ratio;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    layout();
  }

  // A line between two places, bent to the left of its way, so that both ways of a pair are seen; and points along it, for dots to run on.
  const POINTS = 48, GAP = 26, PER_MS = 0.03, MOST = 1200;
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

  // Heat is graded from the largest cell down, in steps of about three; where the grades begin stays while the largest does about.
  const GRADES = [0.03, 0.1, 0.3, 1];
  let top = 0;
  function grades() {
    const most = Math.max(1e-3, ...scene.cells.map((one) => one[2]));
    if (most < top / 2 || most >= 3 * top) {
      const power = 10 ** Math.floor(Math.log10(most)), times = most / power;
      top = power * (times >= 5 ? 5 : times >= 2 ? 2 : 1);
    }
    GRADES.forEach((part, n) => { document.querySelector(`[data-from="${n + 2}"]`).textContent = `from ${Number((part * top).toPrecision(2))}`; });
    document.querySelector("[data-from='1']").textContent = `below ${Number((GRADES[0] * top).toPrecision(2))}`;
  }
  // A cell as it lies on the map: the more is asked for, the darker and the larger, so that neither stands alone.
  function cell([lat, lon, rate, refused]) {
    const grade = 1 + GRADES.filter((part) => rate >= part * top).length, half = HALF * (0.45 + 0.11 * grade), path = new Path2D();
    const corner = (x, y) => map.projection([Math.max(-180, Math.min(180, lon + x * half)), Math.max(-90, Math.min(90, lat + y * half))]);
    for (const [x, y] of [[-1, 1], [1, 1], [1, -1], [-1, -1]]) path.lineTo(...corner(x, y));
    path.closePath();
    return { path, grade, at: map.projection([lon, lat]), refused: refused > 0 };
  }

  function layout() {
    if (!scene || !map) return;
    const projection = map.projection, where = new Map(scene.regions.map((one) => [one.name, projection([one.lon, one.lat])]));
    const most = Math.max(1e-9, ...scene.flows.map((one) => one[3]));
    lines = scene.flows.filter((one) => where.get(one[2])).map(([lat, lon, region, rate]) => ({
      ...bent(projection([lon, lat]), where.get(region), 0.12), width: 0.8 + 3.2 * Math.sqrt(rate / most), kind: "--flow", rate,
    }));
    const spill = Math.max(1e-9, ...scene.arcs.map((one) => one[2]));
    for (const [from, to, rate] of scene.arcs) {
      if (where.get(from) && where.get(to) && rate > 0) {
        lines.push({ ...bent(where.get(from), where.get(to), -0.25), width: 2 + 4 * Math.sqrt(rate / spill), kind: "--arc", rate });
      }
    }
    spread();
    grades();
    cells = scene.cells.map(cell);
    map.drawRegions(scene.regions.map((one) => ({ ...one, kind: one.state, sign: SIGNS[one.state] ?? "?", said: said(one), href: `/regions/${encodeURIComponent(one.name)}` })));
    figure.dataset.flows = JSON.stringify(scene.flows.reduce((sums, one) => ({ ...sums, [one[2]]: (sums[one[2]] || 0) + one[3] }), {}));
    rest();
  }
  // How many dots run on each line, and how large: as many as its length has room for, fewer if all together would be too many.
  function spread() {
    const wanted = lines.reduce((sum, line) => sum + line.length / GAP, 0), gap = GAP * Math.max(1, wanted / MOST);
    for (const line of lines) {
      line.gap = Math.min(1, gap / line.length);
      line.size = Math.round(1.5 + 0.6 * line.width);
    }
  }

  function said(one) {
    const percent = one.use === null ? "use unknown" : `${Math.round(100 * one.use)} % used`, price = one.price ? `, price ${one.price} ms` : "";
    if (one.state === "then") return `${one.name} then: ${percent}${price}, ${one.served} requests per second`;
    return `${one.name}: ${one.state}, ${percent}${price}, ${one.served} requests per second`;
  }

  function rest() {
    const pen = resting;
    pen.clearRect(0, 0, map.width, map.height);
    for (const line of lines) {
      const arc = line.kind === "--arc";
      pen.strokeStyle = colours[line.kind]; pen.lineWidth = line.width;
      pen.globalAlpha = arc ? 0.9 : 0.4;
      pen.setLineDash(arc ? [9, 6] : []);
      pen.stroke(line.path);
    }
    pen.globalAlpha = 1;
    pen.setLineDash([]); pen.lineWidth = 0.75; pen.strokeStyle = colours["--heat-edge"];
    for (const one of cells) { pen.fillStyle = colours[`--heat${one.grade}`]; pen.fill(one.path); pen.stroke(one.path); }
    for (const one of cells) if (one.refused) cross(pen, one.at);
  }
  function cross(pen, [x, y]) {
    for (const [ink, width] of [[colours["--card"], 5], [colours["--refused"], 2.5]]) {
      pen.strokeStyle = ink; pen.lineWidth = width; pen.beginPath();
      pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4); pen.moveTo(x + 4, y - 4); pen.lineTo(x - 4, y + 4);
      pen.stroke();
    }
  }
  function run(time) {
    const pen = moving;
    pen.clearRect(0, 0, map.width, map.height);
    for (const kind of ["--flow", "--arc"]) {
      pen.fillStyle = colours[kind];
      for (const { along, gap, size, length, kind: mine } of lines) {
        if (mine !== kind) continue;
        const half = size / 2;
        for (let t = (time * PER_MS / length) % gap; t < 1; t += gap) {
          const n = 2 * Math.round(t * POINTS);
          pen.fillRect(along[n] - half, along[n + 1] - half, size, size);
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

  // The country below the pointer becomes a link. Those who use the keyboard have links in the table, and all countries on a page.
  const place = (event) => { const box = figure.getBoundingClientRect(); return map.projection.invert([event.clientX - box.left, event.clientY - box.top]); };
  function code(shape) {
    try { return shape.id ? new Intl.Locale(`und-${shape.id}`).region : shape.properties.name === "Kosovo" ? "XK" : null; } catch { return null; }
  }
  function point(event) {
    const on = event.target.closest?.("a.region"), at = !on && map?.projection.invert ? place(event) : null;
    const shape = at && map.countries.find((one) => d3.geoContains(one, at)), letters = shape && code(shape);
    around.style.display = letters ? "" : "none";
    const [lat, lon] = at ? [at[1], at[0]].map((one) => (Math.floor(one / 5) + 0.5) * 5) : [];
    const warm = at && scene.cells.find((one) => one[0] === lat && one[1] === lon);
    told.textContent = on ? on.getAttribute("aria-label") : [letters && country(letters, shape), warm && `this cell: ${warm[2]}/s${warm[3] ? `, ${warm[3]}/s refused` : ""}`].filter(Boolean).join("; ");
    if (!letters || around.dataset.code === letters + map.width) return;
    around.dataset.code = letters + map.width;
    around.setAttribute("href", `/countries/${letters}`);
    hover.setAttribute("d", map.path(shape));
  }
  function country(letters, shape) {
    const known = scene.countries.find((one) => one[0] === letters), name = shape.properties.name;
    return known ? `${name}: ${known[1]}/s from there${known[2] ? `, ${known[2]}/s refused` : ""}` : `${name}: nothing asked from there`;
  }
  figure.addEventListener("pointermove", point);
  figure.addEventListener("pointerdown", point);
  figure.addEventListener("pointerleave", () => { told.textContent = ""; if (around) around.style.display = "none"; });
  figure.addEventListener("click", (event) => { if (!event.target.closest("a") && around.style.display !== "none") location.assign(around.getAttribute("href")); });

  function take(text) { scene = JSON.parse(text); layout(); }
  document.addEventListener("live:scene", (event) => take(event.detail));
  paint(); take(document.getElementById("scene").textContent);
  worldMap(figure, { label: "Regions on a map of the world; the table beside it says the same", sized });
  requestAnimationFrame(frame);
});
