// ipywidgets draws a slider's handle with role=slider but without a name, and its value as a position. A screen reader
// then says "slider, 70". The name stands in the number box beside it, and so does the value, once the kernel has
// answered; sliders with stops have a text for each position.

const EVERY_MS = 100;
const TRIES = 100;
const ANSWER_MS = 150;

function nameHandle(row, stops) {
  const handle = row.querySelector(".noUi-handle");
  const name = row.querySelector("label")?.textContent;
  const slider = row.querySelector(".noUi-target")?.noUiSlider;
  if (!handle || !name || !slider) return false;
  handle.setAttribute("aria-label", `${name} slider`);
  // The notebook's own shortcuts take the arrow keys (next cell, previous cell) unless told not to.
  handle.setAttribute("data-lm-suppress-shortcuts", "true");
  const box = row.querySelector("input");
  const say = (text) => handle.setAttribute("aria-valuetext", text);
  slider.on("update", (_texts, _index, [position]) => {
    if (stops[name]) say(stops[name][Math.round(position)]);
    else setTimeout(() => say(box.value), ANSWER_MS);
  });
  row.named = true;
  return true;
}

function render({ model, el }) {
  el.style.display = "none";
  // The neighbours of this widget join the page after it, in no order that could be relied on.
  let left = TRIES;
  const timer = setInterval(() => {
    const rows = [...(el.closest(".lmhead-controls")?.querySelectorAll(".lmhead-slider") ?? [])];
    const named = rows.map((row) => row.named || nameHandle(row, model.get("stops")));
    if ((rows.length > 0 && named.every(Boolean)) || --left === 0) clearInterval(timer);
  }, EVERY_MS);
  return () => clearInterval(timer);
}

export default { render };
