// Text goes in by textContent only: a label can be any string, and none is markup.

const QUIET_MS = 400; // a screen reader is told once the words have stopped changing

function make(tag, className, parent) {
  const node = document.createElement(tag);
  node.className = className;
  parent.append(node);
  return node;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function showReadouts(list, pairs) {
  while (list.children.length > pairs.length) list.lastChild.remove();
  while (list.children.length < pairs.length) {
    const pair = make("div", "", list);
    make("dt", "", pair);
    make("dd", "", pair);
  }
  pairs.forEach(([name, figure], index) => {
    setText(list.children[index].firstChild, name);
    setText(list.children[index].lastChild, figure);
  });
}

function render({ model, el }) {
  const root = make("div", "lmhead-tokens", el);
  const error = make("p", "error", root);
  error.setAttribute("role", "alert");
  const status = make("p", "status", root);
  const sentence = make("p", "sentence", root);
  sentence.setAttribute("aria-live", "polite");
  const readouts = make("dl", "readouts", root);
  let settled;

  function draw() {
    setText(error, model.get("error"));
    error.hidden = !model.get("error");
    setText(status, model.get("status"));
    status.hidden = !model.get("status");
    showReadouts(readouts, model.get("readouts"));
    // A live region that is busy is read when it no longer is.
    sentence.setAttribute("aria-busy", "true");
    setText(sentence, model.get("sentence"));
    clearTimeout(settled);
    settled = setTimeout(() => sentence.setAttribute("aria-busy", `${model.get("busy")}`), QUIET_MS);
  }

  model.on("change", draw);
  draw();
  return () => {
    clearTimeout(settled);
    model.off("change", draw);
  };
}

export default { render };
