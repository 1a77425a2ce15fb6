// The editor: line numbers beside the text, marks where problems are, a way from a problem to its line, and a word before unsaved text is lost.
"use strict";
(() => {
  const text = document.getElementById("text"), gutter = document.getElementById("gutter"), problems = document.getElementById("problems");
  if (!text) return;
  const began = text.value;
  let leaving = false;

  function number() {
    const lines = text.value.split("\n").length;
    const wrong = new Set([...problems.querySelectorAll("[data-line]")].map((one) => Number(one.dataset.line)));
    const made = document.createDocumentFragment();
    for (let line = 1; line <= lines; line += 1) {
      if (wrong.has(line)) {
        const mark = document.createElement("span");
        mark.className = "bad";
        mark.textContent = `! ${line}`;
        made.append(mark, "\n");
      } else made.append(`${line}\n`);
    }
    gutter.replaceChildren(made);
    gutter.style.height = `${text.offsetHeight}px`;
    gutter.scrollTop = text.scrollTop;
  }
  text.addEventListener("input", number);
  text.addEventListener("scroll", () => { gutter.scrollTop = text.scrollTop; });
  new ResizeObserver(number).observe(text);
  document.addEventListener("htmx:afterSwap", (event) => { if (event.target === problems) number(); });
  problems.addEventListener("click", (event) => {
    const line = Number(event.target.dataset?.go);
    if (!line) return;
    event.preventDefault();
    const lines = text.value.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    text.focus();
    text.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
    const height = parseFloat(getComputedStyle(text).lineHeight);
    text.scrollTop = Math.max(0, (line - 4) * height);
  });
  text.form.addEventListener("submit", () => { leaving = true; });
  addEventListener("beforeunload", (event) => { if (!leaving && text.value !== began) event.preventDefault(); });
  number();
})();
