// A sentence, figures with names, and what went wrong.

function render({ model, el }) {
  const root = make("div", "lmhead-tokens", el);
  const error = make("p", "error", root);
  error.setAttribute("role", "alert");
  const status = make("p", "status", root);
  const sentence = make("p", "sentence", root);
  const readouts = make("dl", "readouts", root);
  const { announce, stop } = announcer(sentence);

  function draw() {
    setText(error, model.get("error"));
    error.hidden = !model.get("error");
    setText(status, model.get("status"));
    status.hidden = !model.get("status");
    showReadouts(readouts, model.get("readouts"));
    announce(model.get("sentence"), model.get("busy"));
  }

  model.on("change", draw);
  draw();
  return () => {
    stop();
    model.off("change", draw);
  };
}

export default { render };
