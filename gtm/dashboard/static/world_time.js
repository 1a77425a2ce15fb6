// The line of time: a slider over what was recorded. Each place of it is asked for as it is reached, one at a time, and the address says which it is.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector("form.when"), slider = form.querySelector("input[type=range]");
  if (!slider) return;
  const play = form.querySelector(".play"), field = form.elements.at, back = form.querySelector(".back");
  const since = Number(form.dataset.since), step = Number(form.dataset.step), BETWEEN = 500;
  let asking = false, wanted = null, playing = null;
  slider.hidden = play.hidden = false;

  const when = () => new Date((since + step * slider.valueAsNumber) * 1000).toISOString().slice(0, 16);
  const say = () => slider.setAttribute("aria-valuetext", `${when().replace("T", " ")} UTC`);
  say();

  function address(at) {
    const query = new URLSearchParams(location.search);
    query.set("at", at); query.set("span", form.elements.span.value);
    return query;
  }
  async function show() {
    wanted = when();
    if (asking) return;
    asking = true;
    document.dispatchEvent(new Event("live:hold"));
    try {
      while (wanted !== null) {
        const at = wanted, query = address(at);
        wanted = null;
        const answer = await fetch(`/live/then?${query}`);
        if (answer.redirected) return location.reload();  // signed out
        if (!answer.ok) throw new Error(`${answer.status}`);
        document.dispatchEvent(new CustomEvent("live:parts", { detail: await answer.json() }));
        history.replaceState(null, "", `/?${query}`);
        filters(at);
      }
    } catch (error) {
      stop();
      form.querySelector("[data-live=when]").textContent = `What was recorded could not be read (${error.message}): move the slider to try again.`;
    } finally { asking = false; }
  }
  // Narrowing down keeps the time.
  function filters(at) {
    field.value = at; back.hidden = false;
    const others = document.querySelector("form.filters");
    for (const [name, value] of [["at", at], ["span", form.elements.span.value]]) {
      const known = others.querySelector(`input[name=${name}]`) || others.appendChild(Object.assign(document.createElement("input"), { type: "hidden", name }));
      known.value = value;
    }
  }
  function stop() {
    clearTimeout(playing); playing = null;
    play.setAttribute("aria-label", "Play what was recorded"); play.firstElementChild.textContent = "▶";
  }
  async function on() {
    if (slider.valueAsNumber >= Number(slider.max)) return stop();
    slider.valueAsNumber += 1; say();
    await show();
    if (playing !== null) playing = setTimeout(on, BETWEEN);
  }
  play.addEventListener("click", () => {
    if (playing !== null) return stop();
    if (slider.valueAsNumber >= Number(slider.max)) slider.value = 0;
    play.setAttribute("aria-label", "Pause"); play.firstElementChild.textContent = "⏸";
    playing = 0;
    on();
  });
  slider.addEventListener("input", () => { stop(); say(); show(); });
});
