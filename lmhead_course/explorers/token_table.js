// Draws the candidates of one step as an HTML table. Speed matters: a slider moves it 30 times a second, so rows are made
// once and afterwards only texts and bar lengths change.

const HOLD_MS = 700; // how long a drawn row stays in view before the next step's rows replace it

function buildHead(table) {
  const columns = make("colgroup", "", table);
  const line = make("tr", "", make("thead", "", table));
  for (const [name, title] of [
    ["rank", "rank"],
    ["token", "token"],
    ["raw", "model's probability"],
    ["final", "after the settings"],
  ]) {
    make("col", name, columns);
    make("th", name, line, title).scope = "col";
  }
}

function buildPage(el) {
  const root = make("div", "lmhead-tokens", el);
  const words = make("div", "words", root);
  const error = make("p", "error", words);
  error.setAttribute("role", "alert");
  const sentence = make("p", "sentence", words);
  const draw = make("p", "draw", words);
  const figures = make("div", "figures", root);
  const readouts = make("dl", "readouts", figures);
  const status = make("p", "status", figures);
  const table = make("table", "", make("div", "rows", root));
  const caption = make("caption", "", table);
  buildHead(table);
  const page = { root, error, status, draw, sentence, readouts, table, caption };
  return { ...page, body: make("tbody", "", table), rows: [] };
}

function buildShare(line, kind) {
  const cell = make("td", kind, line);
  const flex = make("div", "share", cell);
  const track = make("span", "track", flex);
  track.setAttribute("aria-hidden", "true"); // the figure says the same
  const bar = make("span", "bar", track);
  return { bar, figure: make("span", "figure", flex) };
}

function buildRow(body) {
  const line = make("tr", "", body);
  const rank = make("td", "rank", line);
  const token = make("th", "token", line);
  token.scope = "row";
  // bdi: a right-to-left token must not turn its neighbours around.
  const label = make("bdi", "label", token);
  return { line, rank, token, label, raw: buildShare(line, "raw"), final: buildShare(line, "final") };
}

function showShare(share, probability, text, scale) {
  const length = `scaleX(${Math.min(probability / scale, 1)})`;
  if (share.bar.style.transform !== length) share.bar.style.transform = length;
  setText(share.figure, text);
}

function showRow(scale, row, data) {
  const state = (data.kept ? "kept" : "dropped") + (data.drawn ? " drawn" : "");
  if (row.line.className !== state) row.line.className = state;
  setText(row.rank, data.drawn ? `▶ ${data.rank}` : `${data.rank}`);
  setText(row.label, data.label);
  showShare(row.raw, data.raw, data.raw_text, scale);
  showShare(row.final, data.final, data.final_text, scale);
}

function render({ model, el }) {
  const page = buildPage(el);
  const { announce, stop } = announcer(page.sentence);
  let heldUntil = 0;
  let later;

  function draw() {
    const rows = model.get("rows");
    if (rows.some((row) => row.drawn)) heldUntil = performance.now() + HOLD_MS;
    for (const name of ["error", "status", "draw", "caption"]) setText(page[name], model.get(name));
    page.error.hidden = !model.get("error");
    for (const state of ["busy", "stale"]) page.root.classList.toggle(state, model.get(state));
    page.table.setAttribute("aria-busy", `${model.get("busy")}`);
    showEach(page.rows, rows, () => buildRow(page.body), showRow.bind(null, model.get("scale")));
    showReadouts(page.readouts, model.get("readouts"));
    announce(model.get("sentence"));
  }

  // Where the drawn token fell is worth a look, so the rows of the next step wait a moment. Everything is read from
  // the model when the wait is over, hence the last change wins.
  function update() {
    clearTimeout(later);
    const wait = model.get("rows").some((row) => row.drawn) ? 0 : heldUntil - performance.now();
    if (wait > 0) later = setTimeout(draw, wait);
    else draw();
  }

  model.on("change", update);
  draw();
  return () => {
    clearTimeout(later);
    stop();
    model.off("change", update);
  };
}

export default { render };
