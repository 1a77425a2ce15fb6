// A map of the world that pages draw on: the land once, regions as links in SVG. What is made of it besides is the page's own.
"use strict";
(() => {
  const NS = "http://www.w3.org/2000/svg";
  // Where people are: without Antarctica and the ice of the north.
  const SEEN = { type: "MultiPoint", coordinates: [[-157, 20], [-168, 66], [11, 76], [180, 66], [-170, -47], [179, -47], [11, -56]] };
  const ROUND = 2 * Math.PI * 11;

  function element(tag, kind, into) {
    const made = document.createElementNS(NS, tag);
    if (kind) made.setAttribute("class", kind);
    if (into) into.append(made);
    return made;
  }

  // figure: with data-land; label: what the map is, for screen readers; sized: called when the map has another size or the land has come.
  function worldMap(figure, { label, sized }) {
    const ground = element("svg"), svg = element("svg"), land = element("path", "land", ground);
    const regions = element("g", "", svg);
    ground.setAttribute("aria-hidden", "true");
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-label", label);
    figure.prepend(ground, svg);
    const map = { ground, svg, regions, projection: d3.geoNaturalEarth1(), countries: [], width: 0, height: 0, element, drawRegions, path };

    function path(shape) { return d3.geoPath(map.projection)(shape) || ""; }
    function size() {
      map.width = figure.clientWidth; map.height = figure.clientHeight;
      map.projection = d3.geoNaturalEarth1().rotate([-11, 0]).fitExtent([[4, 4], [map.width - 4, map.height - 4]], SEEN);
      if (map.countries.length) land.setAttribute("d", path({ type: "FeatureCollection", features: map.countries }));
      sized(map);
    }
    // list: regions with name, lat, lon, kind (classes), sign, use (0 to 1, or null), said (in words), href; label: written beside it, if not its name.
    function drawRegions(list) {
      const places = list.map((one) => map.projection([one.lon, one.lat]));
      const known = new Map([...regions.children].map((one) => [one.dataset.region, one]));
      list.forEach((one, number) => {
        region(known.get(one.name) || made(one.name), one, places[number], places);
        known.delete(one.name);
      });
      for (const gone of known.values()) gone.remove();
    }
    function made(name) {
      const link = element("a", "", regions);
      link.dataset.region = name;
      for (const [tag, kind] of [["circle", "ring"], ["circle", "use"], ["circle", "core"], ["text", "mark"], ["text", "name"]]) element(tag, kind, link);
      return link;
    }
    // A name stands to the right of its region, unless another region stands there, or the map ends.
    function leftwards(name, at, places) {
      const end = at[0] + 20 + 7 * name.length;
      return end > map.width || places.some((one) => one[0] > at[0] && one[0] < end && Math.abs(one[1] - at[1]) < 18);
    }
    function region(link, one, at, places) {
      const [ring, use, core, mark, name] = link.children, left = leftwards(one.label ?? one.name, at, places);
      link.setAttribute("class", `region ${one.kind}`);
      link.setAttribute("transform", `translate(${at[0]} ${at[1]})`);
      link.setAttribute("aria-label", one.said);
      link.setAttribute("href", one.href);
      ring.setAttribute("r", 11); use.setAttribute("r", 11); core.setAttribute("r", 7);
      use.setAttribute("stroke-dasharray", `${ROUND * Math.min(1, one.use || 0)} ${ROUND}`);
      use.setAttribute("transform", "rotate(-90)");
      mark.textContent = one.sign; mark.setAttribute("y", 3.5);
      name.textContent = one.label ?? one.name; name.setAttribute("x", left ? -16 : 16); name.setAttribute("y", 4);
      name.setAttribute("text-anchor", left ? "end" : "start");
    }

    new ResizeObserver(size).observe(figure);
    size();
    const known = document.getElementById("land");  // a file that stands alone holds it
    (known ? Promise.resolve(JSON.parse(known.textContent)) : fetch(figure.dataset.land).then((answer) => answer.json())).then((found) => {
      map.countries = topojson.feature(found, found.objects.countries).features;
      size();
    });
    return map;
  }

  window.worldMap = worldMap;
})();
