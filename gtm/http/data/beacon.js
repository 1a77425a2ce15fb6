/*
 * gtm beacon: lets a visitor's browser measure the way to a few regions, and tells the edge that served this script.
 *
 *   <script async src="https://EDGE/v1/beacon.js" data-service="SERVICE" data-rate="0.1"></script>
 *
 * data-service  the service whose regions are measured (required)
 * data-rate     the share of sessions that measure, 0 to 1 (default 0.1)
 *
 * Each region that this visitor may be sent to (at most five, in random order, after the page has loaded) is asked
 * twice for its health check: once to open the connection, once to time a round trip on it. Sent: names of regions and
 * milliseconds. No cookie, no identifier; sessionStorage holds one flag, so that a session measures once. Nothing is
 * measured for those who ask to save data.
 */
(function () {
  "use strict";

  var script = document.currentScript;
  var connection = navigator.connection;
  if (!script || !script.dataset.service || !window.fetch || !navigator.sendBeacon) return;
  if (connection && connection.saveData) return;
  try {
    if (sessionStorage.getItem("gtm-beacon")) return;
    sessionStorage.setItem("gtm-beacon", "1");
  } catch (error) {
    return; // without storage it could not be once in a session
  }
  var rate = script.dataset.rate === undefined ? 0.1 : Number(script.dataset.rate);
  if (!(Math.random() < rate)) return;

  var edge = new URL(script.src).origin;
  var TIMEOUT = 4000;

  function request(url) {
    var stop = new AbortController();
    var timer = setTimeout(function () { stop.abort(); }, TIMEOUT);
    return fetch(url, {
      mode: "no-cors", cache: "no-store", credentials: "omit", redirect: "follow", signal: stop.signal
    }).finally(function () { clearTimeout(timer); });
  }

  // Timings in detail are for regions that send Timing-Allow-Origin; for others the whole request has to do, which on
  // a connection that is open already is a round trip and the server's own time.
  function timed(url, whole) {
    var entry = performance.getEntriesByName(url).pop();
    return entry && entry.requestStart > 0 ? entry.responseStart - entry.requestStart : whole;
  }

  async function measure(target) {
    var join = target.url.indexOf("?") < 0 ? "?" : "&";
    await request(target.url + join + "gtm=" + Math.random().toString(36).slice(2));
    var url = target.url + join + "gtm=" + Math.random().toString(36).slice(2);
    var started = performance.now();
    await request(url);
    var whole = performance.now() - started;
    return { region: target.region, rtt_ms: Math.round(timed(url, whole) * 100) / 100 };
  }

  async function run() {
    var answer = await fetch(edge + "/v1/beacon-targets?service=" + encodeURIComponent(script.dataset.service), {
      credentials: "omit", cache: "no-store"
    });
    if (!answer.ok) return;
    var targets = (await answer.json()).targets;
    var samples = [];
    for (var target of targets) {
      try {
        samples.push(await measure(target)); // one after the other: they would delay each other
      } catch (error) {
        // A region that cannot be reached has no round trip.
      }
    }
    if (samples.length) navigator.sendBeacon(edge + "/v1/beacons", JSON.stringify({ samples: samples }));
  }

  function later() {
    (window.requestIdleCallback || setTimeout)(function () { run().catch(function () {}); });
  }

  if (document.readyState === "complete") later();
  else addEventListener("load", later);
})();
