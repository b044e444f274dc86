// Logits as bars to drag. Each bar is the browser's own range input: it brings mouse, touch, keyboard and a role for
// screen readers along.

const LIMIT = 2000;
const COLUMNS = [
  ["token", "token"],
  ["logit", "logit: drag or type"],
  ["said", "said"],
  ["exponent", "into exp"],
  ["stable", "probability, stable form"],
  ["naive", "naive form"],
];

function buildHead(table) {
  const columns = make("colgroup", "", table);
  const line = make("tr", "", make("thead", "", table));
  const cells = {};
  for (const [name, title] of COLUMNS) {
    make("col", name, columns);
    cells[name] = make("th", name, line);
    make("span", "", cells[name], title);
    cells[name].scope = "col";
  }
  const ticks = make("span", "ticks", cells.stable);
  ticks.setAttribute("aria-hidden", "true");
  return [0, 1].map(() => make("span", "", ticks));
}

function buildShare(cell, name) {
  const flex = make("div", "share", cell);
  const track = make("span", "track", flex);
  track.setAttribute("aria-hidden", "true"); // the figure says the same
  const share = { bar: make("span", "bar", track), figure: make("span", "figure", flex) };
  if (name === "stable") share.mark = make("span", "mark", track);
  return share;
}

function buildRow(body, index, change, tell) {
  const line = make("tr", "", body);
  const token = make("th", "token", line);
  token.scope = "row";
  const label = make("bdi", "label", token);
  const logit = make("div", "logit", make("td", "logit", line));
  const range = make("input", "range", logit);
  range.type = "range";
  range.step = "0.05";
  const box = make("input", "box", logit);
  box.type = "number";
  box.step = "0.1";
  const said = make("input", "", make("td", "said", line));
  said.type = "checkbox";
  const exponent = make("td", "exponent", line);
  const stable = buildShare(make("td", "stable", line), "stable");
  const naive = make("td", "naive", line);
  [range, box, said].forEach(ownKeys);
  range.addEventListener("input", () => change(index, "values", Number(range.value)));
  box.addEventListener("input", () => {
    const typed = box.valueAsNumber;
    if (Number.isFinite(typed)) change(index, "values", Math.max(-LIMIT, Math.min(LIMIT, typed)));
  });
  box.min = -LIMIT;
  box.max = LIMIT;
  box.addEventListener("change", () => {
    tell(beyond(`the logit of ${label.textContent}`, box));
    if (box.value !== "") box.value = Math.max(-LIMIT, Math.min(LIMIT, box.valueAsNumber));
  });
  said.addEventListener("change", () => change(index, "said", said.checked));
  return { line, token, label, range, box, said, exponent, stable, naive };
}

// The bar starts at zero, so zero must be visible: the penalty depends on where it is.
function paint(range, low, high, value) {
  const place = (x) => (100 * (Math.max(low, Math.min(high, x)) - low)) / (high - low);
  const [from, to] = [place(0), place(value)].sort((a, b) => a - b);
  range.style.setProperty("--from", `${from}%`);
  range.style.setProperty("--to", `${to}%`);
  range.style.setProperty("--zero", `${place(0)}%`);
}

function showInputs(row, label, value, said, low, high) {
  row.range.min = low;
  row.range.max = high;
  const active = row.range.getRootNode().activeElement;
  if (Number(row.range.value) !== value) row.range.value = value;
  // What is being typed is left alone: "1." would turn into "1".
  if (active !== row.box) row.box.value = Number(value.toFixed(3));
  row.said.checked = said;
  paint(row.range, low, high, value);
  row.range.setAttribute("aria-label", `logit of ${label}`);
  row.range.setAttribute("aria-valuetext", `${Number(value.toFixed(3))}`);
  row.box.setAttribute("aria-label", `logit of ${label}, number`);
  row.said.setAttribute("aria-label", `${label} has been said`);
}

function showResults(row, data) {
  setText(row.label, data.label);
  setText(row.exponent, data.exponent);
  row.stable.bar.style.transform = `scaleX(${data.stable})`;
  row.stable.mark.style.left = `${100 * data.mark}%`;
  setText(row.stable.figure, data.stable_text);
  setText(row.naive, data.naive_text);
  row.naive.classList.toggle("broken", !data.naive_ok);
}

function render({ model, el }) {
  const root = make("div", "lmhead-tokens lmhead-softmax", el);
  const table = make("table", "", root);
  const caption = make("caption", "", table);
  const ticks = buildHead(table);
  const body = make("tbody", "", table);
  const note = make("p", "lmhead-note", root);
  note.setAttribute("role", "status");
  const tell = (text) => setText(note, text);
  const rows = [];

  function change(index, name, value) {
    const list = [...model.get(name)];
    list[index] = value;
    model.set(name, list);
    model.save_changes();
    draw();
  }

  function draw() {
    const [data, values, said] = ["rows", "values", "said"].map((name) => model.get(name));
    const [low, high] = [model.get("low"), model.get("high")];
    setText(caption, model.get("caption"));
    model.get("ticks").forEach((text, index) => setText(ticks[index], text));
    const add = (index) => buildRow(body, index, change, tell);
    showEach(rows, data, add, (row, entry, index) => {
      showResults(row, entry);
      showInputs(row, entry.label, values[index] ?? 0, said[index] ?? false, low, high);
    });
  }

  model.on("change", draw);
  draw();
  return () => model.off("change", draw);
}

export default { render };
