// A plane drawn as SVG: arrows from the origin, and one tip that can be dragged or moved with the arrow keys.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 440; // the square, in units of the drawing
const EDGE = { left: 58, right: 12, top: 12, bottom: 48 };
const WIDTH = EDGE.left + SIZE + EDGE.right;
const HEIGHT = EDGE.top + SIZE + EDGE.bottom;
const LINE = 16; // the height of a label

function draw(name, parent, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  parent.append(node);
  return node;
}

// ---- where things are -----------------------------------------------------------------------------------

const across = (x, reach) => EDGE.left + (SIZE * (x + reach)) / (2 * reach);
const down = (y, reach) => EDGE.top + (SIZE * (reach - y)) / (2 * reach);
const inside = (value, reach) => Math.min(Math.max(value, -reach), reach);
const fit = (title) => (title.length > 56 ? `${title.slice(0, 55)}…` : title); // else it would leave the picture
const short = (value) => `${Number(value.toPrecision(3))}`.replace("-", "−");

// A label stands at the tip of its arrow: on the far side of it where it covers no other tip and no other label, else
// at the first free place around. Those that still touch are moved apart up and down.
function placeLabels(labels) {
  labels.forEach((label, index) => {
    const taken = labels.flatMap((other, place) => [
      ...(other === label ? [] : [headOf(other)]),
      ...(place < index ? [boxOf(other)] : []),
    ]);
    const free = PLACES.find((place) => !taken.some((box) => touch(boxOf({ ...label, ...spotOf(label, place) }), box)));
    Object.assign(label, spotOf(label, free ?? PLACES[0]));
  });
  moveApart(labels);
}

// Steps from the tip, outwards being positive: across, and up or down.
const PLACES = [
  [1, 1],
  [1, 0],
  [1, -1],
  [-1, 1],
  [-1, 0],
  [0, 1],
  [-1, -1],
  [0, -1],
];

function spotOf({ cx, cy, sides, width }, [outwards, along]) {
  const [right, below] = [outwards * sides[0], along * sides[1]];
  const left = cx + 9 * right - (width * (1 - right)) / 2;
  const y = cy + 5 + below * (outwards === 0 ? 13 : 8);
  return {
    left: Math.min(Math.max(left, EDGE.left + 2), EDGE.left + SIZE - width),
    y: Math.min(Math.max(y, EDGE.top + LINE), EDGE.top + SIZE - 4),
  };
}

const boxOf = ({ left, width, y }) => ({ left, right: left + width, top: y - LINE + 4, bottom: y + 4 });

// An arrowhead ends at the tip and is a dozen units long.
function headOf({ cx, cy, back }) {
  const [x, y] = [cx + 6 * back[0], cy + 6 * back[1]];
  return { left: x - 6, right: x + 6, top: y - 6, bottom: y + 6 };
}

const touch = (one, other) =>
  one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

function moveApart(labels) {
  labels.sort((one, other) => one.y - other.y);
  for (let round = 0; round < 40; round += 1) {
    let touched = false;
    for (let i = 0; i < labels.length; i += 1) {
      for (let j = i + 1; j < labels.length; j += 1) {
        const [one, other] = [labels[i], labels[j]];
        if (!touch(boxOf(one), boxOf(other))) continue;
        touched = true;
        const gap = other.y - one.y;
        const push = (LINE - Math.abs(gap)) / 2 + 0.5;
        one.y -= gap >= 0 ? push : -push;
        other.y += gap >= 0 ? push : -push;
      }
    }
    for (const label of labels) label.y = Math.min(Math.max(label.y, EDGE.top + LINE), EDGE.top + SIZE - 4);
    if (!touched) return;
  }
}

function labelOf(text, x, y, reach) {
  const [cx, cy] = [across(x, reach), down(y, reach)];
  const length = Math.hypot(x, y) || 1;
  const sides = [x >= 0 ? 1 : -1, y >= 0 ? -1 : 1]; // outwards, on the page: right or left, up or down
  return { text, cx, cy, sides, back: [-x / length, y / length], width: 8.4 * text.length + 4 };
}

// ---- the parts of the picture ---------------------------------------------------------------------------

function drawFrame(layer, model) {
  const reach = model.get("reach");
  const [left, right] = [EDGE.left, EDGE.left + SIZE];
  const [top, bottom] = [EDGE.top, EDGE.top + SIZE];
  for (const tick of [-1, -0.5, 0, 0.5, 1].map((share) => share * reach)) {
    const kind = tick === 0 ? "axis" : "grid";
    draw("line", layer, { class: kind, x1: across(tick, reach), x2: across(tick, reach), y1: top, y2: bottom });
    draw("line", layer, { class: kind, x1: left, x2: right, y1: down(tick, reach), y2: down(tick, reach) });
    const numbers = { class: "tick", "text-anchor": "middle" };
    draw("text", layer, { ...numbers, x: across(tick, reach), y: bottom + 16 }, short(tick));
    draw("text", layer, { class: "tick", "text-anchor": "end", x: left - 6, y: down(tick, reach) + 4 }, short(tick));
  }
  const middle = EDGE.left + SIZE / 2;
  draw("text", layer, { class: "title", "text-anchor": "middle", x: middle, y: HEIGHT - 10 }, fit(model.get("x_title")));
  const turned = `translate(16 ${EDGE.top + SIZE / 2}) rotate(-90)`;
  draw("text", layer, { class: "title", "text-anchor": "middle", transform: turned }, fit(model.get("y_title")));
}

function drawWalk(layer, model) {
  const [reach, walk, now] = [model.get("reach"), model.get("walk"), model.get("layer")];
  const spots = walk.map(([x, y]) => [across(inside(x, reach), reach), down(inside(y, reach), reach)]);
  draw("polyline", layer, { class: "walk", points: spots.map((spot) => spot.join(",")).join(" ") });
  spots.forEach(([cx, cy], index) => {
    const away = walk[index].some((value) => Math.abs(value) > reach);
    const dot = draw("circle", layer, { class: "dot", cx, cy, r: index === now ? 5 : 2.5 });
    dot.classList.toggle("now", index === now);
    dot.classList.toggle("away", away);
    draw("title", dot, {}, `layer ${index}${away ? ", outside of the picture" : ""}`);
  });
}

function drawArrows(layer, model, arrowhead) {
  const [reach, arrows] = [model.get("reach"), model.get("arrows")];
  const labels = arrows.map(({ label, x, y }) => {
    draw("line", layer, {
      class: "token",
      x1: across(0, reach),
      y1: down(0, reach),
      x2: across(x, reach),
      y2: down(y, reach),
      "marker-end": `url(#${arrowhead})`,
    });
    return labelOf(label, x, y, reach);
  });
  placeLabels(labels);
  for (const { text, left, y } of labels) draw("text", layer, { class: "name", x: left, y }, text);
}

// ---- the tip --------------------------------------------------------------------------------------------

function buildTip(svg) {
  const shaft = draw("line", svg, { class: "hidden" });
  const tip = draw("circle", svg, { class: "tip", r: 9, tabindex: 0, role: "slider" });
  tip.setAttribute("aria-label", "hidden state in the plane; arrow keys move it");
  ownKeys(tip);
  const name = draw("text", svg, { class: "name hidden-name" }, "hidden state");
  return { shaft, tip, name };
}

function showTip({ shaft, tip, name }, [x, y], reach) {
  const [cx, cy] = [across(inside(x, reach), reach), down(inside(y, reach), reach)];
  const ends = { x1: across(0, reach), y1: down(0, reach), x2: cx, y2: cy };
  for (const [key, value] of Object.entries(ends)) shaft.setAttribute(key, value);
  tip.setAttribute("cx", cx);
  tip.setAttribute("cy", cy);
  tip.classList.toggle("away", Math.abs(x) > reach || Math.abs(y) > reach);
  tip.setAttribute("aria-valuenow", x);
  tip.setAttribute("aria-valuemin", -reach);
  tip.setAttribute("aria-valuemax", reach);
  tip.setAttribute("aria-valuetext", `across ${short(x)}, up ${short(y)}`);
  const flip = cx > EDGE.left + SIZE - 110;
  name.setAttribute("text-anchor", flip ? "end" : "start");
  name.setAttribute("x", cx + (flip ? -14 : 14));
  name.setAttribute("y", Math.min(cy + 20, EDGE.top + SIZE - 4));
}

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const round = (value) => Math.round(value * 1000) / 1000 + 0;

// Calls move(point) for every move of the pointer or a key; move() tells where the tip is. Returns whether it is held.
function listen(svg, tip, model, move) {
  let held = null;
  const spot = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = WIDTH / box.width;
    const reach = model.get("reach");
    const x = ((event.clientX - box.left) * scale - EDGE.left) / SIZE;
    const y = ((event.clientY - box.top) * scale - EDGE.top) / SIZE;
    return [round(inside((2 * x - 1) * reach, reach)), round(inside((1 - 2 * y) * reach, reach))];
  };
  tip.addEventListener("pointerdown", (event) => {
    held = event.pointerId;
    tip.setPointerCapture(held);
    tip.focus();
    event.preventDefault();
  });
  tip.addEventListener("pointermove", (event) => held === event.pointerId && move(spot(event)));
  for (const end of ["pointerup", "pointercancel"]) tip.addEventListener(end, () => (held = null));
  tip.addEventListener("keydown", (event) => {
    const by = KEYS[event.key];
    if (!by) return;
    const reach = model.get("reach");
    const step = reach / (event.shiftKey ? 10 : 100);
    const [x, y] = move();
    move([round(inside(x + by[0] * step, reach)), round(inside(y + by[1] * step, reach))]);
    event.preventDefault();
    event.stopPropagation();
  });
  return () => held !== null;
}

// ---- the table ------------------------------------------------------------------------------------------

function showTable(table, model) {
  const lines = model.get("rows");
  const [head] = table.tHead.rows;
  model.get("header").forEach((title, index) => {
    if (!head.cells[index]) make("th", "", head).scope = "col";
    setText(head.cells[index], title);
  });
  const [body] = table.tBodies;
  while (body.rows.length > lines.length) body.lastChild.remove();
  while (body.rows.length < lines.length) {
    const line = make("tr", "", body);
    model.get("header").forEach((_, index) => {
      const cell = make(index === 0 ? "th" : "td", "", line);
      if (index === 0) {
        cell.scope = "row";
        make("bdi", "label", cell);
      }
    });
  }
  lines.forEach((texts, row) => {
    const cells = body.rows[row].cells;
    texts.forEach((text, index) => setText(index === 0 ? cells[0].firstChild : cells[index], text));
  });
}

// ---- all of it ------------------------------------------------------------------------------------------

let pictures = 0; // each has an arrowhead of its own: one in a hidden output would not be drawn in another

function buildPage(el) {
  const arrowhead = `lmhead-arrow-${(pictures += 1)}`;
  const root = make("div", "lmhead-tokens lmhead-plane", el);
  const picture = make("div", "picture", root);
  const svg = draw("svg", picture, { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group" });
  svg.setAttribute("aria-label", "token rows as arrows in a plane, and a hidden state that can be moved");
  const marker = draw("marker", draw("defs", svg), {
    id: arrowhead,
    viewBox: "0 0 10 10",
    refX: 9,
    refY: 5,
    markerWidth: 6,
    markerHeight: 6,
    orient: "auto",
  });
  draw("path", marker, { d: "M0 0 L10 5 L0 10 z", class: "arrowhead" });
  const layers = ["frame", "walks", "tokens"].map((name) => draw("g", svg, { class: name }));
  const tip = buildTip(svg);
  const note = make("p", "status", picture);
  const table = make("table", "", make("div", "rows", root));
  table.createTHead().insertRow();
  table.createTBody();
  return { root, svg, layers, tip, note, table, arrowhead };
}

function render({ model, el }) {
  const page = buildPage(el);
  let tip = model.get("point");
  const isHeld = listen(page.svg, page.tip.tip, model, move);

  function move(point) {
    if (!point) return tip;
    tip = point;
    showTip(page.tip, tip, model.get("reach"));
    model.set("point", point);
    model.save_changes();
    return tip;
  }

  function redraw() {
    [drawFrame, drawWalk, drawArrows].forEach((part, index) => {
      page.layers[index].replaceChildren();
      part(page.layers[index], model, page.arrowhead);
    });
    showRest();
  }

  function showRest() {
    // A hand that holds the tip knows better than a kernel that is still busy with where it was.
    if (!isHeld()) tip = model.get("point");
    showTip(page.tip, tip, model.get("reach"));
    setText(page.note, model.get("note"));
    showTable(page.table, model);
    page.root.classList.toggle("stale", model.get("stale"));
  }

  const picture = "change:arrows change:walk change:layer change:reach change:x_title change:y_title";
  const words = "change:point change:rows change:note change:stale";
  model.on(picture, redraw);
  model.on(words, showRest);
  redraw();
  return () => {
    model.off(picture, redraw);
    model.off(words, showRest);
  };
}

export default { render };
