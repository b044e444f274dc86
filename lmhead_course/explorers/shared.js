// What our widgets have in common, put before each one's own script (words.py). Text goes in by textContent only: a
// token can be any string, and none is markup. There is no innerHTML in any of these files.

const QUIET_MS = 400; // a screen reader is told once the words have stopped changing

function make(tag, className, parent, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  parent?.append(node);
  return node;
}

// Touching the page costs, comparing does not.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Keep as many entries in a list as there are data, and show each datum in its entry.
function showEach(entries, data, add, show) {
  while (entries.length > data.length) entries.pop().line.remove();
  while (entries.length < data.length) entries.push(add(entries.length));
  data.forEach((datum, index) => show(entries[index], datum, index));
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

// The eye sees new words at once. A live region that is busy is read when it no longer is.
function announcer(node) {
  node.setAttribute("aria-live", "polite");
  let settled;
  const announce = (text, busy = false) => {
    node.setAttribute("aria-busy", "true");
    setText(node, text);
    clearTimeout(settled);
    settled = setTimeout(() => node.setAttribute("aria-busy", `${busy}`), QUIET_MS);
  };
  return { announce, stop: () => clearTimeout(settled) };
}

// The notebook's own shortcuts take Enter and the arrow keys unless told not to, by the element that has the focus.
function ownKeys(node) {
  node.setAttribute("data-lm-suppress-shortcuts", "true");
  return node;
}

// What to say of a number that was typed beyond the ends of its box; nothing for one within.
function beyond(name, box) {
  const typed = box.valueAsNumber;
  const end = Math.min(Math.max(typed, Number(box.min)), Number(box.max));
  if (Number.isNaN(typed) || typed === end) return "";
  return `${name} goes from ${box.min} to ${box.max}: ${typed} became ${end}.`;
}
