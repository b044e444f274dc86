// ipywidgets draws a slider's handle with role=slider but without a name, and its value as a position. A screen reader
// then says "slider, 70". The name stands in the number box beside it, and so does the value, once the kernel has
// answered; sliders with stops have a text for each position.

const EVERY_MS = 100;
const TRIES = 100;
const ANSWER_MS = 150;

function nameHandle(row, stops, tell) {
  const handle = row.querySelector(".noUi-handle");
  const name = row.querySelector("label")?.textContent;
  const slider = row.querySelector(".noUi-target")?.noUiSlider;
  if (!handle || !name || !slider) return false;
  ownKeys(handle).setAttribute("aria-label", `${name} slider`);
  const box = row.querySelector("input");
  const say = (text) => handle.setAttribute("aria-valuetext", text);
  slider.on("update", (_texts, _index, [position]) => {
    if (stops[name]) say(stops[name][Math.round(position)]);
    else setTimeout(() => say(box.value), ANSWER_MS);
  });
  // ipywidgets puts a number beyond the ends of a box back to the end, and says nothing. It has to be heard before that.
  row.addEventListener("change", () => tell(beyond(name, box)), { capture: true });
  row.named = true;
  return true;
}

// ipywidgets' folded parts open by the mouse alone: their titles become buttons, for the keyboard too.
function makeButton(title) {
  if (title.role === "button") return;
  Object.assign(ownKeys(title), { role: "button", tabIndex: 0 });
  const tell = () => (title.ariaExpanded = `${title.parentElement.classList.contains("jupyter-widget-Collapse-open")}`);
  title.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    title.click();
  });
  new MutationObserver(tell).observe(title.parentElement, { attributeFilter: ["class"] });
  tell();
}

function render({ model, el }) {
  const note = make("p", "lmhead-note", el);
  note.setAttribute("role", "status");
  const tell = (text) => setText(note, text);
  // The neighbours of this widget join the page after it, in no order that could be relied on.
  let left = TRIES;
  const timer = setInterval(() => {
    const panel = el.closest(".lmhead-controls");
    const rows = [...(panel?.querySelectorAll(".lmhead-slider") ?? [])];
    const named = rows.map((row) => row.named || nameHandle(row, model.get("stops"), tell));
    if ((rows.length > 0 && named.every(Boolean)) || --left === 0) clearInterval(timer);
    panel?.querySelectorAll(".jupyter-widget-Collapse-header").forEach(makeButton);
  }, EVERY_MS);
  return () => clearInterval(timer);
}

export default { render };
