// The stages of the pipeline as a list of cards. A card is moved by dragging its title, by its two buttons, or from
// Python. While one moves, its neighbours change places around it: the card itself stays in the page, and so keeps the
// keyboard's focus.

function makeControl(tag, parent, type, name) {
  const control = ownKeys(make(tag, "", parent));
  control.type = type;
  control.setAttribute("aria-label", name);
  return control;
}

function makeButton(parent, sign, name) {
  const button = makeControl("button", parent, "button", name);
  button.textContent = sign;
  button.title = name;
  return button;
}

// ---- where a slider stands for a value, and back --------------------------------------------------------

function scaleOf(spec) {
  if (!spec.stops) {
    const [low, high] = spec.ends;
    const round = (value) => Math.round(value * 1e6) / 1e6; // 0.7000000000000001 would show in the box
    return { low, high, step: spec.step, place: (value) => Math.min(Math.max(value, low), high), value: round };
  }
  const stops = spec.off_at_end ? [...spec.stops, 0] : spec.stops;
  const distance = (value) => (stop) => Math.abs(stop - value);
  const nearest = (value) => {
    const from = stops.map(distance(value));
    return from.indexOf(Math.min(...from));
  };
  const place = (value) => (spec.off_at_end && value === 0 ? stops.length - 1 : nearest(value));
  return { low: 0, high: stops.length - 1, step: 1, place, value: (index) => stops[index] };
}

// ---- one card -------------------------------------------------------------------------------------------

function buildSetting(card, spec, onValue, tell) {
  const row = make("div", "setting", card);
  if (!spec.limits) {
    setText(row, spec.note);
    return () => {};
  }
  const scale = scaleOf(spec);
  const [low, high] = spec.limits;
  const box = makeControl("input", row, "number", spec.title);
  Object.assign(box, { min: low, max: high, step: spec.step });
  const slider = makeControl("input", row, "range", `${spec.title} slider`);
  Object.assign(slider, { min: scale.low, max: scale.high, step: scale.step });
  let shown;

  function show(value) {
    shown = value;
    if (Number(box.value) !== value || box.value === "") box.value = value;
    slider.value = scale.place(value);
    slider.setAttribute("aria-valuetext", `${value}`);
  }

  slider.addEventListener("input", () => onValue(scale.value(Number(slider.value))));
  box.addEventListener("input", () => {
    const value = box.valueAsNumber;
    const whole = spec.step !== 1 || Number.isInteger(value);
    if (!(value >= low && value <= high && whole)) return;
    tell("");
    onValue(value);
  });
  // What could not be used is replaced by what is in use, and that is said.
  box.addEventListener("change", () => {
    const outside = beyond(spec.title, box).split(":")[0];
    const broken = spec.step === 1 && !Number.isInteger(box.valueAsNumber) && `${spec.title} takes whole numbers`;
    const why = outside || broken;
    if (box.value !== "") tell(why ? `${why}; ${box.value} is not used.` : "");
    box.value = shown;
  });
  return show;
}

function buildCard(spec, onValue) {
  const card = document.createElement("li");
  const head = make("div", "head", card);
  const handle = make("span", "handle", head);
  handle.title = "drag to another place";
  make("span", "grip", handle, "⠿").setAttribute("aria-hidden", "true");
  const place = make("span", "place", handle);
  make("span", "title", handle, spec.title);
  const earlier = makeButton(head, "▲", `move ${spec.title} earlier`);
  const later = makeButton(head, "▼", `move ${spec.title} later`);
  const note = make("p", "lmhead-note");
  note.setAttribute("role", "status");
  const showValue = buildSetting(card, spec, onValue, (text) => setText(note, text));
  card.append(note);
  const track = make("span", "track", card);
  track.setAttribute("aria-hidden", "true"); // the text says the same
  const bar = make("span", "bar", track);
  return { card, handle, place, earlier, later, showValue, bar, text: make("p", "text", card) };
}

function showCard(entry, data) {
  entry.card.classList.toggle("off", data.off);
  entry.bar.style.transform = `scaleX(${data.share})`;
  setText(entry.text, data.text);
}

// ---- dragging -------------------------------------------------------------------------------------------

function middle(node) {
  const { top, height } = node.getBoundingClientRect();
  return top + height / 2;
}

// Let the neighbours step aside as soon as the pointer has passed the middle of one.
function stepAside(card, y) {
  while (card.previousSibling && y < middle(card.previousSibling)) card.after(card.previousSibling);
  while (card.nextSibling && y > middle(card.nextSibling)) card.before(card.nextSibling);
}

function drag(card, start, done) {
  const grabbed = start.clientY - card.getBoundingClientRect().top;
  const stop = new AbortController();
  card.classList.add("dragged");

  function follow(event) {
    stepAside(card, event.clientY);
    card.style.transform = "";
    const offset = event.clientY - grabbed - card.getBoundingClientRect().top;
    card.style.transform = `translateY(${offset}px)`;
  }

  function end(kept) {
    stop.abort();
    card.classList.remove("dragged");
    card.style.transform = "";
    done(kept);
  }

  const listen = (name, act) => window.addEventListener(name, act, { signal: stop.signal });
  listen("pointermove", follow);
  listen("pointerup", () => end(true));
  listen("pointercancel", () => end(false));
  listen("keydown", (event) => event.key === "Escape" && end(false));
}

// ---- the list -------------------------------------------------------------------------------------------

// Put the cards in this order without moving the one that has the focus: a moved element would lose it.
function arrange(list, entries, order) {
  const cards = order.map((name) => entries.get(name).card);
  if (cards.every((card, index) => list.children[index] === card)) return;
  const focused = list.getRootNode().activeElement;
  const fixed = cards.findIndex((card) => card.contains(focused));
  cards.slice(0, Math.max(fixed, 0)).forEach((card) => cards[fixed].before(card));
  cards.slice(fixed + 1).forEach((card) => list.append(card));
}

function render({ model, el }) {
  const root = make("div", "lmhead-tokens lmhead-stages", el);
  const start = make("p", "end", root);
  const list = make("ol", "", root);
  list.setAttribute("role", "list"); // a list without bullets is none to some screen readers
  list.setAttribute("aria-label", "stages, the first one on top");
  const end = make("p", "end", root);
  const news = make("p", "unseen", root);
  news.setAttribute("aria-live", "polite");
  const entries = new Map();

  function save(name, value) {
    model.set(name, value);
    model.save_changes();
  }

  function reorder(name, order) {
    arrange(list, entries, order);
    const title = model.get("cards")[name].title;
    setText(news, `${title} is now stage ${order.indexOf(name) + 1} of ${order.length}`);
    save("order", order);
  }

  function move(name, by) {
    const order = [...model.get("order")];
    const from = order.indexOf(name);
    if (from + by < 0 || from + by >= order.length) return;
    order.splice(from + by, 0, ...order.splice(from, 1));
    reorder(name, order);
  }

  function grab(name, event) {
    if (event.button !== 0) return;
    event.preventDefault();
    drag(entries.get(name).card, event, (kept) => {
      const names = [...list.children].map((card) => [...entries.keys()].find((key) => entries.get(key).card === card));
      if (!kept) arrange(list, entries, model.get("order"));
      else if (names.join() !== model.get("order").join()) reorder(name, names);
    });
  }

  function add(name, spec) {
    const entry = buildCard(spec, (value) => save("values", { ...model.get("values"), [name]: value }));
    entry.earlier.addEventListener("click", () => move(name, -1));
    entry.later.addEventListener("click", () => move(name, 1));
    entry.handle.addEventListener("pointerdown", (event) => grab(name, event));
    entries.set(name, entry);
  }

  function draw() {
    const order = model.get("order");
    arrange(list, entries, order);
    order.forEach((name, index) => {
      const entry = entries.get(name);
      setText(entry.place, `${index + 1}`);
      // Not "disabled": a disabled button drops the focus.
      entry.earlier.setAttribute("aria-disabled", `${index === 0}`);
      entry.later.setAttribute("aria-disabled", `${index === order.length - 1}`);
      if (name in model.get("values")) entry.showValue(model.get("values")[name]);
      if (name in model.get("shown")) showCard(entry, model.get("shown")[name]);
    });
    setText(start, model.get("start"));
    setText(end, model.get("end"));
    root.classList.toggle("stale", model.get("stale"));
  }

  for (const [name, spec] of Object.entries(model.get("cards"))) add(name, spec);
  model.on("change", draw);
  draw();
  return () => model.off("change", draw);
}

export default { render };
