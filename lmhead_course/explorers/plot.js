// Draws plotly figures with one copy of plotly.js a page, whatever the number of plots, and below each its numbers as a
// table, for everybody who cannot see the picture or has no mouse to hover over it.

const MOST_LINES = 2000;

async function unpack(bytes) {
  const packed = new Blob([bytes]).stream();
  const source = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).blob();
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    await import(/* webpackIgnore: true */ url);
  } finally {
    URL.revokeObjectURL(url);
  }
  return globalThis.Plotly;
}

async function load(model) {
  const id = model.get("library").replace("IPY_MODEL_", "");
  const library = await model.widget_manager.get_model(id);
  return unpack(library.get("source"));
}

function plotly(model) {
  globalThis.lmheadPlotly ??= load(model);
  globalThis.lmheadPlotly.catch(() => (globalThis.lmheadPlotly = undefined)); // the next plot tries again
  return globalThis.lmheadPlotly;
}

// ---- the numbers as a table -------------------------------------------------------------------------------

// Labels are written for plotly, which reads a small HTML (escaping.py); here they are text again.
const NAMED = { amp: "&", lt: "<", gt: ">" };
const letter = (all, code, name) => (code ? String.fromCodePoint(code) : (NAMED[name] ?? all));
const plain = (text) => `${text ?? ""}`.replace(/<[^>]*>/g, "").replace(/&(?:#(\d+)|(\w+));/g, letter);

function textOf(axis, value) {
  const place = axis.ticktext ? [...axis.tickvals].indexOf(value) : -1;
  if (place >= 0) return plain(axis.ticktext[place]);
  return typeof value === "number" ? `${Number(value.toPrecision(4))}`.replace("-", "−") : plain(value);
}

function linesOfCells(trace, { xaxis, yaxis }) {
  return [...trace.z].flatMap((line, row) =>
    [...line].map((_, column) => [
      textOf(xaxis, trace.x?.[column] ?? column),
      textOf(yaxis, trace.y?.[row] ?? row),
      plain(trace.hovertext?.[row]?.[column] ?? trace.text?.[row]?.[column]),
    ]),
  );
}

function linesOfPoints(trace, { xaxis, yaxis }) {
  const spread = (index) => (trace.error_y?.visible ? ` ± ${textOf({}, trace.error_y.array[index])}` : "");
  return [...trace.x]
    .map((x, index) => [x, trace.y[index], index])
    .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y))
    .map(([x, y, index]) => [plain(trace.name), textOf(xaxis, x), textOf(yaxis, y) + spread(index)])
    .map(([name, x, y]) => (trace.orientation === "h" ? [name, y, x] : [name, x, y]));
}

function numbersOf({ _fullData: traces, _fullLayout: layout }) {
  const titles = [layout.xaxis, layout.yaxis].map((axis) => plain(axis.title?.text) || "token");
  if (traces[0]?.orientation === "h") titles.reverse();
  if (traces[0]?.type === "heatmap") return [[...titles, "what is there"], linesOfCells(traces[0], layout)];
  const drawn = traces.filter((trace) => trace.x && trace.y);
  return [["what", ...titles], drawn.flatMap((trace) => linesOfPoints(trace, layout))];
}

function buildNumbers(el) {
  const details = make("details", "lmhead-tokens lmhead-numbers", el);
  const summary = make("summary", "", details);
  const room = make("div", "room", details);
  const table = make("table", "", room);
  // What scrolls has to be reached by the keyboard.
  Object.assign(room, { role: "region", tabIndex: 0 });
  [summary, room].forEach(ownKeys);
  return { details, summary, room, table };
}

function showNumbers({ details, summary, room, table }, plot, title) {
  setText(summary, `the numbers of “${title}”`);
  room.ariaLabel = summary.textContent;
  if (!details.open) return; // it costs, and nobody sees it
  const [header, lines] = numbersOf(plot);
  table.replaceChildren();
  const head = make("tr", "", make("thead", "", table));
  header.forEach((title) => (make("th", "", head, title).scope = "col"));
  const body = make("tbody", "", table);
  for (const cells of lines.slice(0, MOST_LINES)) {
    const line = make("tr", "", body);
    cells.forEach((text) => make("td", "", line, text));
  }
  const missing = lines.length - MOST_LINES;
  if (missing > 0) make("td", "", make("tr", "", body), `… and ${missing} more`).colSpan = header.length;
}

// ---- the picture ------------------------------------------------------------------------------------------

async function render({ model, el }) {
  const read = () => JSON.parse(model.get("figure"));
  const box = make("div", "lmhead-plot", el);
  box.setAttribute("role", "img");
  box.style.height = `${read().layout.height ?? 360}px`; // its place is kept while plotly.js is on its way
  const numbers = buildNumbers(el);
  const Plotly = await plotly(model);

  function draw() {
    const { data, layout } = read();
    const title = plain(layout.title?.text);
    box.setAttribute("aria-label", title);
    Plotly.react(box, data, { ...layout, autosize: true }, { displayModeBar: false });
    showNumbers(numbers, box, title);
  }

  draw();
  model.on("change:figure", draw);
  numbers.details.addEventListener("toggle", () => showNumbers(numbers, box, box.ariaLabel));
  const watcher = new ResizeObserver(() => box.offsetWidth && Plotly.Plots.resize(box));
  watcher.observe(el);
  return () => {
    model.off("change:figure", draw);
    watcher.disconnect();
    Plotly.purge(box);
  };
}

export default { render };
