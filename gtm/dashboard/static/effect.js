// The effect of a change on the map (map.js): regions that gain or lose, ways from the one to the other, and what is refused. Colours never stand alone: signs,
// arrows and dashes say the same, and the tables below all of it.
"use strict";
(() => {
  const STUB = 30;

  function draw(figure) {
    if (figure.dataset.drawn) return;
    figure.dataset.drawn = "yes";
    const scene = JSON.parse(figure.dataset.scene);
    let ways = null;

    function arrows(map) {
      const defs = map.element("defs", "", map.ground);
      for (const kind of ["moved", "served"]) {
        const head = map.element("marker", `head ${kind}`, defs);
        for (const [name, value] of Object.entries({ id: `head-${kind}`, viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 11, markerHeight: 11, markerUnits: "userSpaceOnUse", orient: "auto" })) head.setAttribute(name, value);
        map.element("path", "", head).setAttribute("d", "M0 0L10 5L0 10z");
      }
    }
    function sized(map) {
      if (!ways) { arrows(map); ways = map.element("g", "", map.ground); }
      ways.replaceChildren();
      const scale = map.width < 500 ? 0.5 : 1;
      const most = Math.max(1e-9, ...scene.moves.map((one) => one.rate)), dots = Math.max(1e-9, ...scene.places.map((one) => one[2]));
      for (const [lat, lon, rate, kind] of scene.places) {
        const [x, y] = map.projection([lon, lat]), dot = map.element("circle", `client-place ${kind}`, ways);
        for (const [name, value] of Object.entries({ cx: x, cy: y, r: (2 + 6 * Math.sqrt(rate / dots)) * scale })) dot.setAttribute(name, value);
      }
      const where = new Map(scene.regions.map((one) => [one.name, map.projection([one.lon, one.lat])]));
      for (const one of scene.moves) move(map, one, where.get(one.from), where.get(one.to), (1.5 + 5 * Math.sqrt(one.rate / most)) * scale);
      map.drawRegions(scene.regions.map((one) => ({ ...one, href: figure.dataset.plain ? "#places" : `/regions/${encodeURIComponent(one.name)}` })));
    }
    function move(map, one, from, to, width) {
      const kind = !to ? "refused" : from ? "moved" : "served";
      if (!from && !to) return;
      const way = map.element("path", `way ${kind}`, ways);
      way.setAttribute("stroke-width", width);
      if (kind === "moved") {
        const dx = to[0] - from[0], dy = to[1] - from[1], far = Math.hypot(dx, dy) || 1, end = [to[0] - dx / far * 13, to[1] - dy / far * 13];
        way.setAttribute("d", `M${from} Q${(from[0] + to[0]) / 2 + dy * 0.18},${(from[1] + to[1]) / 2 - dx * 0.18} ${end}`);
        way.setAttribute("marker-end", "url(#head-moved)");
        return;
      }
      const at = from || to, away = at[1] + STUB + 24 > map.height ? -1 : 1, said = map.element("text", `way-label ${kind}`, ways);
      const [start, end] = kind === "refused" ? [10, STUB] : [STUB, 14];
      way.setAttribute("d", `M${at[0]} ${at[1] + away * start}V${at[1] + away * end}`);
      if (kind === "served") way.setAttribute("marker-end", "url(#head-served)");
      said.textContent = kind === "refused" ? `✕ ${one.label}` : `○ ${one.label}`;
      for (const [name, value] of Object.entries({ x: at[0], y: at[1] + away * (STUB + 8) + 5, "text-anchor": "middle" })) said.setAttribute(name, value);
    }
    worldMap(figure, { label: "What regions gain and lose, on a map of the world; the tables below say the same", sized });
  }

  const all = () => document.querySelectorAll("figure.effect").forEach(draw);
  document.addEventListener("DOMContentLoaded", all);
  document.addEventListener("htmx:afterSettle", all);
})();
