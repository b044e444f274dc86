// Draws the tokens of two orders as an HTML table.

const COLUMNS = ["mark", "rank", "token", "raw", "here", "there"];

function buildTable(root) {
  const table = make("table", "", root);
  const caption = make("caption", "", table);
  const columns = make("colgroup", "", table);
  for (const name of COLUMNS) make("col", name, columns);
  const line = make("tr", "", make("thead", "", table));
  const heads = COLUMNS.map((name) => make("th", name, line));
  heads.forEach((head) => (head.scope = "col"));
  return { caption, heads, body: make("tbody", "", table), rows: [] };
}

function buildRow(body) {
  const line = make("tr", "", body);
  const [mark, rank, token, ...figures] = COLUMNS.map((name) => make(name === "token" ? "th" : "td", name, line));
  token.scope = "row";
  const sign = make("span", "", mark);
  sign.setAttribute("aria-hidden", "true"); // said in words instead
  // bdi: a right-to-left token must not turn its neighbours around.
  const label = make("bdi", "label", token);
  return { line, mark, sign, words: make("span", "unseen", mark), rank, token, label, figures };
}

function showRow(row, data) {
  const gone = data.here.startsWith("✕") && data.there.startsWith("✕");
  row.line.className = data.fate ? "changed" : gone ? "dropped" : "kept";
  setText(row.sign, data.fate ? "≠" : "");
  setText(row.words, data.fate);
  setText(row.rank, `${data.rank}`);
  setText(row.label, data.label);
  [data.raw_text, data.here, data.there].forEach((text, i) => setText(row.figures[i], text));
}

function render({ model, el }) {
  const root = make("div", "lmhead-tokens lmhead-fates", el);
  const table = buildTable(root);

  function draw() {
    root.classList.toggle("stale", model.get("stale"));
    setText(table.caption, model.get("caption"));
    const titles = ["≠", "rank", "token", "model", "your order", model.get("other")];
    titles.forEach((title, i) => setText(table.heads[i], title));
    showEach(table.rows, model.get("rows"), () => buildRow(table.body), showRow);
  }

  model.on("change", draw);
  draw();
  return () => model.off("change", draw);
}

export default { render };
