// The fence on the map: countries with regions inside it are filled, those with regions outside hatched; ways from the client by their odds.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  // An address without what was left empty is one to share.
  document.querySelector("form.asking").addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) if (!value) event.formData.delete(name);
  });
  const figure = document.getElementById("map"), told = document.getElementById("scene");
  if (!figure) return;
  const scene = JSON.parse(told.textContent);
  let fences = null, ways = null, shaded = null;

  function hatch(map) {
    const pattern = map.element("pattern", "", map.element("defs", "", map.ground));
    for (const [name, value] of Object.entries({ id: "hatched", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" })) pattern.setAttribute(name, value);
    const line = map.element("line", "hatch", pattern);
    for (const [name, value] of Object.entries({ x1: 0, y1: 0, x2: 0, y2: 6 })) line.setAttribute(name, value);
  }
  // Which countries to shade: by the regions that stand in them; where some are inside, the country counts as inside.
  function countries(map) {
    const found = new Map();
    for (const one of scene.regions) {
      if (one.kind === "other") continue;
      const country = map.countries.find((shape) => d3.geoContains(shape, [one.lon, one.lat]));
      if (country && found.get(country) !== "in") found.set(country, one.kind === "outside" ? "out" : "in");
    }
    return found;
  }
  function sized(map) {
    if (!fences) { hatch(map); fences = map.element("g", "", map.ground); ways = map.element("g", "", map.ground); }
    if (!shaded && map.countries.length) shaded = countries(map);
    fences.replaceChildren(); ways.replaceChildren();
    for (const [country, side] of shaded || []) {
      const shape = map.element("path", `fenced ${side}`, fences);
      shape.setAttribute("d", map.path(country));
      if (side === "out") shape.setAttribute("fill", "url(#hatched)");
    }
    if (scene.client) client(map, map.projection([scene.client[1], scene.client[0]]));
    map.drawRegions(scene.regions.map((one) => ({
      ...one, use: one.share, said: `${one.name}: ${one.words}`, href: one.kind === "other" ? `/regions/${encodeURIComponent(one.name)}` : `#region-${one.name}`,
    })));
  }
  function client(map, at) {
    for (const one of scene.regions) {
      if (!one.share) continue;
      const to = map.projection([one.lon, one.lat]), dx = to[0] - at[0], dy = to[1] - at[1];
      const way = map.element("path", "way", ways);
      way.setAttribute("d", `M${at} Q${(at[0] + to[0]) / 2 + dy * 0.12},${(at[1] + to[1]) / 2 - dx * 0.12} ${to}`);
      way.setAttribute("stroke-width", 1.5 + 4 * Math.sqrt(one.share));
    }
    const pin = map.element("rect", "client", ways);
    for (const [name, value] of Object.entries({ x: -6, y: -6, width: 12, height: 12, transform: `translate(${at}) rotate(45)` })) pin.setAttribute(name, value);
  }
  worldMap(figure, { label: "Regions on a map of the world, inside or outside the fence; the table below says the same", sized });
});
