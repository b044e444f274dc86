// Draws plotly figures with one copy of plotly.js a page, whatever the number of plots.

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

async function render({ model, el }) {
  const box = document.createElement("div");
  box.setAttribute("role", "img");
  el.append(box);
  const read = () => JSON.parse(model.get("figure"));
  box.style.height = `${read().layout.height ?? 360}px`; // its place is kept while plotly.js is on its way
  const Plotly = await plotly(model);

  function draw() {
    const { data, layout } = read();
    box.setAttribute("aria-label", layout.title?.text ?? "");
    Plotly.react(box, data, { ...layout, autosize: true }, { displayModeBar: false });
  }

  draw();
  model.on("change:figure", draw);
  const watcher = new ResizeObserver(() => box.offsetWidth && Plotly.Plots.resize(box));
  watcher.observe(el);
  return () => {
    model.off("change:figure", draw);
    watcher.disconnect();
    Plotly.purge(box);
  };
}

export default { render };
