// A tree of tokens, all of it buttons. Lines are made anew at each change (a tree has at most 150 tokens), and the
// button that had the keyboard's focus gets it back, by its key.

// One stop of the Tab key for each group; the arrow keys go on from there.
function roam(group) {
  group.addEventListener("keydown", (event) => {
    const buttons = [...group.querySelectorAll("button")];
    const at = buttons.indexOf(group.getRootNode().activeElement);
    const steps = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0 };
    const to = event.key === "End" ? buttons.length - 1 : steps[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    buttons[to]?.focus();
  });
  group.addEventListener("focusin", (event) => stopAt(group, event.target.dataset.key));
}

function stopAt(group, key) {
  const buttons = [...group.querySelectorAll("button")];
  const chosen = buttons.find((button) => button.dataset.key === key) ?? buttons.find((b) => b.dataset.here) ?? buttons[0];
  for (const button of buttons) button.tabIndex = button === chosen ? 0 : -1;
}

function render({ model, el }) {
  const root = make("div", "lmhead-tokens lmhead-tree", el);
  const lines = make("div", "lines", root);
  lines.setAttribute("role", "group");
  lines.setAttribute("aria-label", "tree of tokens; arrow keys move, Enter shows a token's step");
  const asks = make("p", "asks", root, "Take one of these for the next token:");
  const choices = make("div", "choices", root);
  choices.setAttribute("role", "group");
  choices.setAttribute("aria-label", "candidates for this step; Enter takes one");
  roam(lines);
  roam(choices);
  let clicks = 0;

  function ask(what, id) {
    if (model.get("busy")) return;
    clicks += 1;
    model.set("asked", [what, id, clicks]);
    model.save_changes();
  }

  function button(parent, className, key, name, act) {
    const made = ownKeys(make("button", className, parent));
    made.type = "button";
    made.title = name;
    made.setAttribute("aria-label", name);
    made.dataset.key = key;
    made.addEventListener("click", act);
    return made;
  }

  function addItem(line, item) {
    const classes = ["token", item.on_path && "path", item.marked && "marked"].filter(Boolean).join(" ");
    const token = button(line, classes, `node-${item.node}`, item.title, () => ask("look", item.node));
    make("bdi", "label", token, item.label);
    token.setAttribute("aria-pressed", `${item.marked}`);
    if (item.marked) token.dataset.here = "yes";
  }

  function addLine(data, first) {
    const line = make("div", "line", lines);
    line.style.paddingLeft = `${Math.min(data.depth, 8) * 18}px`;
    if (data.depth) make("span", "fork", line, "└ ").setAttribute("aria-hidden", "true");
    if (first) make("bdi", "prompt", line, model.get("text"));
    for (const item of data.items) addItem(line, item);
    if (data.end >= 0) {
      const end = button(line, data.here ? "end here" : "end", `end-${data.end}`, "the step behind this", () =>
        ask("behind", data.end),
      );
      end.textContent = "next ?";
      end.setAttribute("aria-pressed", `${data.here}`);
      if (data.here) end.dataset.here = "yes";
    }
    if (data.joint) make("span", "joint", line, `probability ${data.joint}`);
  }

  function addChoice(choice, index) {
    const state = choice.taken ? ", taken before" : "";
    const name = `take ${choice.label}, ${choice.chance}${state}`;
    const key = `choice-${index}`;
    const made = button(choices, choice.kept ? "choice" : "choice dropped", key, name, () => ask("take", choice.token_id));
    make("bdi", "label", made, choice.label);
    make("span", "chance", made, choice.taken ? `${choice.chance} ✓` : choice.chance);
  }

  function draw() {
    const focused = root.getRootNode().activeElement;
    const key = root.contains(focused) ? focused.dataset.key : null;
    lines.replaceChildren();
    model.get("lines").forEach((line, index) => addLine(line, index === 0));
    choices.replaceChildren();
    model.get("choices").forEach(addChoice);
    asks.hidden = model.get("choices").length === 0;
    stopAt(lines, key);
    stopAt(choices, key);
    root.classList.toggle("busy", model.get("busy"));
    root.setAttribute("aria-busy", `${model.get("busy")}`);
    if (key) (root.querySelector(`[data-key="${key}"]`) ?? lines.querySelector("[data-here]"))?.focus();
    lines.querySelector("[data-here]")?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  }

  // Several traits change in one message: one drawing for all of them.
  let waiting = false;
  function later() {
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      draw();
    });
  }
  model.on("change", later);
  draw();
  return () => model.off("change", later);
}

export default { render };
