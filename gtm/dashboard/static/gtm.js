// What all pages do: times in the reader's own zone, ages that grow, and parts that come as a stream.
"use strict";
(() => {
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const lasting = (s) => s >= 172800 ? `${Math.round(s / 86400)} days` : s >= 3600 ? `${Math.round(s / 3600)} h` : s >= 90 ? `${Math.round(s / 60)} min` : `${Math.round(s)} s`;

  function times(root) {
    for (const one of root.querySelectorAll("time[data-local]:not([data-done])")) {
      one.dataset.done = "";
      one.title = `${local.format(new Date(one.dateTime))} here`;
    }
    for (const one of root.querySelectorAll("[data-here]")) one.textContent = `(${local.format(new Date(one.dataset.here))} here)`;
    for (const one of root.querySelectorAll("[data-country]")) named(one);
  }
  // Countries by name, in the language that the page is in: where they stand in the first column or alone, else when pointed at.
  const names = new Intl.DisplayNames(["en"], { type: "region" });
  function named(one) {
    let name = one.dataset.country;
    try { name = names.of(name); } catch { return; }
    if (one.tagName === "OPTION") one.label = name;
    else if (one.closest("th, h1")) one.textContent = name;
    else one.title = name;
  }
  function ages() {
    for (const one of document.querySelectorAll("time[data-ago]")) {
      one.textContent = `${lasting(Math.max(0, (Date.now() - new Date(one.dateTime)) / 1000))} ago`;
    }
  }

  // A stream of parts: each event is one, named by the data-live of where it goes. When none comes, the page says so and how old it is.
  const LATE = 4000;
  const banner = document.getElementById("connection");
  let heard = performance.now(), at = new Date(), source = null, held = false;

  // What somebody has opened stays open.
  const stays = (attribute, node) => !(attribute === "open" && node.tagName === "DETAILS");
  function put(place, data) {
    Idiomorph.morph(place, data, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: { beforeAttributeUpdated: stays } });
    times(place);
    if (window.htmx) htmx.process(place);
  }
  function part(name, data) {
    const place = document.querySelector(`[data-live="${name}"]`);
    if (place) put(place, data);
    document.dispatchEvent(new CustomEvent(`live:${name}`, { detail: data }));
  }
  function listen(url, names) {
    if (held) return;
    source = new EventSource(url);
    for (const name of names) {
      source.addEventListener(name, (event) => {
        heard = performance.now(); at = new Date();
        part(name, event.data);
        standing();
      });
    }
    source.addEventListener("error", () => {
      if (held || source.readyState !== EventSource.CLOSED) return;  // it asks again by itself
      fetch(location.href, { method: "HEAD", redirect: "manual", headers: { Accept: "text/html" } })
        .then((answer) => { if (answer.type === "opaqueredirect") location.reload(); })  // signed out
        .catch(() => {});
      setTimeout(() => listen(url, names), 1000);
    });
  }
  // A part that is dear to make is asked for now and then, while somebody looks; when no answer comes, it stays as it was.
  function again(place) {
    setInterval(async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch(place.dataset.again, { headers: { "HX-Request": "true" } });
        if (answer.ok) put(place, await answer.text());
      } catch { /* control does not answer: the banner says so */ }
    }, 1000 * place.dataset.every);
  }
  // A page that shows another time than now stands still, and takes its parts when they are asked for.
  document.addEventListener("live:hold", () => { if (source) source.close(); held = true; standing(); });
  document.addEventListener("live:parts", (event) => { for (const [name, data] of Object.entries(event.detail)) part(name, data); });
  function standing() {
    const past = performance.now() - heard, late = !held && past > LATE;
    document.body.classList.toggle("stale", late);
    banner.hidden = !late;
    if (late) banner.textContent = `Control has not answered for ${lasting(past / 1000)}. What you see is as of ${at.toLocaleTimeString()}; this page goes on by itself.`;
  }

  document.addEventListener("DOMContentLoaded", () => {
    times(document);
    setInterval(ages, 1000);
    for (const place of document.querySelectorAll("[data-again]")) again(place);
    const streaming = document.querySelector("[data-stream]");
    if (streaming) {
      const names = [...document.querySelectorAll("[data-live]")].map((one) => one.dataset.live);
      listen(streaming.dataset.stream, [...new Set([...names, "scene"])]);
      setInterval(standing, 500);
    }
    for (const form of document.querySelectorAll("form.filters")) {
      form.addEventListener("change", () => form.requestSubmit());
      form.addEventListener("submit", () => { for (const one of form.elements) if (one.name && !one.value) one.disabled = true; });
    }
  });
  document.addEventListener("htmx:afterSwap", (event) => times(event.target));
})();
