"use strict";
// The pieces to play with. Each fills one element of its page and uses nothing but the page's own data.
const NS = "http://www.w3.org/2000/svg";
const COLOURS = { decoder: "#0072B2", prefix_decoder: "#E69F00", entp: "#D55E00", constructed: "#009E73" };
const NAMES = { decoder: "decoder", prefix_decoder: "prefix decoder", entp: "ENTP", constructed: "constructed" };

function make(parent, name, attributes = {}, text) {
  const svg = ["svg", "rect", "text", "line", "path", "circle", "g"].includes(name);
  const node = svg ? document.createElementNS(NS, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function control(parent, words, name, attributes) {
  const label = make(parent, "label", {}, words + " ");
  return make(label, name, attributes);
}

function scrolling(parent, words) {
  return make(parent, "div", { class: "scroll", tabindex: 0, role: "group", "aria-label": words });
}

// ---- Count3
function count3(x) {
  const n = x.length;
  const pairs = [];
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) if ((x[i] + x[j] + x[n - 1]) % n === 0) pairs.push([i + 1, j + 1]);
  return { pairs, answer: pairs.length % n };
}

function playCount3(box, data) {
  const bar = make(box, "div", { class: "controls" });
  const input = control(bar, "sequence", "input", { type: "text", value: "3 1 4 1", size: 30, inputmode: "numeric" });
  const other = make(bar, "button", { type: "button" }, "another seed");
  const out = make(box, "div", { "aria-live": "polite" });
  other.addEventListener("click", () => {
    input.value = Array.from({ length: data.seed_length }, () => Math.floor(Math.random() * data.symbols)).join(" ");
    show();
  });
  input.addEventListener("input", show);
  function show() {
    out.replaceChildren();
    const parts = input.value.trim().split(/[\s,]+/).filter(Boolean);
    const wrong = parts.find((part) => !/^\d{1,6}$/.test(part));
    if (wrong !== undefined) return void make(out, "p", {}, `${wrong} is no whole number of at most six digits.`);
    if (!parts.length || parts.length > 64) return void make(out, "p", {}, "Type 1 to 64 numbers.");
    const x = parts.map(Number);
    const { pairs, answer } = count3(x);
    make(out, "p", { id: "count3-answer" }, `n = ${x.length}: ${pairs.length} pairs, Count3 = ${pairs.length} mod ${x.length} = ${answer}`);
    grid(out, x, pairs);
    if (pairs.length && pairs.length <= 40) make(out, "p", {}, "Pairs (i, j): " + pairs.map((p) => `(${p})`).join(" "));
    models(out, x);
  }
  function grid(parent, x, pairs) {
    const [cell, edge] = [Math.max(8, Math.min(26, 420 / x.length)), 34];
    const size = edge + cell * x.length + 2;
    const svg = make(scrolling(parent, "Which pairs count"), "svg", { viewBox: `0 0 ${size} ${size}`, width: size, height: size, role: "img", "aria-label": `${pairs.length} of ${x.length ** 2} pairs count` });
    const hit = new Set(pairs.map(([i, j]) => i * 1000 + j));
    x.forEach((v, i) => {
      if (cell >= 14) {
        make(svg, "text", { x: edge - 6, y: edge + i * cell + cell * 0.68, "text-anchor": "end", "font-size": 12 }, v);
        make(svg, "text", { x: edge + i * cell + cell / 2, y: edge - 8, "text-anchor": "middle", "font-size": 12 }, v);
      }
      x.forEach((_, j) => make(svg, "rect", { x: edge + j * cell, y: edge + i * cell, width: cell - 1, height: cell - 1, fill: hit.has((i + 1) * 1000 + j + 1) ? "#D55E00" : "#8884" }));
    });
  }
  function models(parent, x) {
    const seed = x.slice(0, data.seed_length);
    if (seed.length < data.seed_length || seed.some((v) => v >= data.symbols)) {
      return void make(parent, "p", {}, `The trained models know sequences that begin with ${data.seed_length} digits below ${data.symbols}.`);
    }
    const whole = [...seed];
    while (whole.length < data.length) whole.push(count3(whole).answer);
    if (x.some((v, i) => v !== whole[i])) {
      return void make(parent, "p", {}, `The trained models only saw prompts that Count3 continues; this prompt goes on ${whole.slice(data.seed_length).join(" ")}.`);
    }
    const index = seed.reduce((all, v) => all * data.symbols + v, 0);
    make(parent, "p", {}, `The prompt goes on by Count3: ${whole.join(" ")}. It was ${data.held_out[index] === "1" ? "kept from training" : "among the training prompts"}.`);
    const table = make(scrolling(parent, "What the models answer"), "table", { id: "count3-models" });
    const head = make(make(table, "thead"), "tr");
    for (const words of ["after", "Count3", ...data.models.map((m) => NAMES[m.architecture])]) make(head, "th", { scope: "col" }, words);
    const body = make(table, "tbody");
    for (let n = data.first_scored; n <= data.length; n++) {
      const right = count3(whole.slice(0, n)).answer;
      const row = make(body, "tr");
      make(row, "td", {}, whole.slice(0, n).join(" "));
      make(row, "td", {}, right);
      for (const m of data.models) {
        const said = Number(m.answers[n][index]);
        make(row, "td", {}, said === right ? `${said} ✓` : `${said} ✗`);
      }
    }
    make(parent, "p", {}, "Records: " + data.models.map((m) => `${NAMES[m.architecture]} ${m.run} (tier ${m.tier}, ${(100 * m.token_accuracy).toFixed(1)} % of tokens right)`).join("; "));
  }
  show();
}

// ---- attention
function playAttention(box, data) {
  const bar = make(box, "div", { class: "controls" });
  const prefix = control(bar, "prefix", "input", { type: "range", min: 1, max: data.tokens.length, value: data.tokens.length - 3, id: "attention-prefix" });
  const said = make(box, "p", { "aria-live": "polite", id: "attention-said" });
  const sides = make(box, "div", { class: "controls" });
  const panels = [1, 0].map((first, k) => {
    const panel = make(sides, "div", { class: "panel" });
    const row = make(panel, "div", { class: "controls" });
    const model = control(row, "model", "select");
    data.models.forEach((m, i) => make(model, "option", { value: i }, NAMES[m.name]));
    model.value = k ? data.models.findIndex((m) => m.name === "entp") : data.models.findIndex((m) => m.name === "decoder");
    const layer = control(row, "layer", "select");
    const head = control(row, "head", "select");
    const place = make(panel, "div");
    const refill = () => {
      const maps = data.models[model.value].maps[0];
      layer.replaceChildren();
      maps.forEach((_, i) => make(layer, "option", { value: i }, i + 1));
      layer.value = maps.length - 1;
      head.replaceChildren();
      make(head, "option", { value: -1 }, "mean");
      maps[0].forEach((_, i) => make(head, "option", { value: i }, i + 1));
      show();
    };
    model.addEventListener("change", refill);
    for (const c of [layer, head]) c.addEventListener("change", show);
    return { model, layer, head, place, refill };
  });
  prefix.addEventListener("input", show);
  panels.forEach((p) => p.refill());
  function show() {
    const n = Number(prefix.value);
    const x = data.tokens.slice(0, n);
    said.textContent = `Prefix of ${n}: ${x.join(" ")}; Count3 of it is ${count3(x).answer}.`;
    for (const p of panels) {
      if (!p || p.layer.value === "") continue;
      const m = data.models[p.model.value];
      const heads = m.maps[n - 1][p.layer.value];
      const cell = 26;
      const size = 30 + cell * data.tokens.length;
      p.place.replaceChildren();
      const svg = make(p.place, "svg", { viewBox: `0 0 ${size} ${size}`, width: size, height: size, role: "img", "aria-label": `${NAMES[m.name]}, layer ${Number(p.layer.value) + 1}: who looks at whom in a prefix of ${n}` });
      x.forEach((v, i) => {
        make(svg, "text", { x: 20, y: 30 + i * cell + 17, "text-anchor": "end", "font-size": 12 }, v);
        make(svg, "text", { x: 30 + i * cell + cell / 2, y: 22, "text-anchor": "middle", "font-size": 12 }, v);
        x.forEach((_, j) => {
          const one = (h) => heads[h][i][j];
          const h = Number(p.head.value);
          const value = h >= 0 ? one(h) : heads.reduce((sum, _, k) => sum + one(k), 0) / heads.length;
          const square = make(svg, "rect", { x: 30 + j * cell, y: 30 + i * cell, width: cell - 1, height: cell - 1, fill: COLOURS[m.name], "fill-opacity": 0.04 + (0.96 * value) / 100 });
          square.append(Object.assign(document.createElementNS(NS, "title"), { textContent: `position ${i + 1} looks at ${j + 1}: ${value.toFixed(0)} %` }));
        });
      });
      make(p.place, "p", {}, `from ${m.run}`);
    }
  }
}

// ---- costs
function cost(kind, n, D, L) { // one next token after n tokens
  return kind === "entp" ? L * (12 * n * D * D + 2 * n * n * D) : L * (12 * D * D + 2 * n * D);
}

function sequence(kind, n, D, L) { // all n next tokens: the sums over 1 to n, in closed form
  const [ones, squares] = [(n * (n + 1)) / 2, (n * (n + 1) * (2 * n + 1)) / 6];
  return kind === "entp" ? L * (12 * ones * D * D + 2 * squares * D) : L * (12 * n * D * D + 2 * ones * D);
}

function playCosts(box) {
  const bar = make(box, "div", { class: "controls" });
  const slider = (words, id, min, max, value) => {
    const input = control(bar, words, "input", { type: "range", min, max, step: 1, value, id });
    const shown = make(input.parentElement, "output", { for: id });
    input.addEventListener("input", show);
    return { input, shown };
  };
  const sizes = { n: slider("tokens n", "costs-n", 3, 14, 10), D: slider("width D", "costs-D", 4, 13, 9), L: slider("layers L", "costs-L", 1, 48, 6) };
  const said = make(box, "p", { class: "said", "aria-live": "polite", id: "costs-said" });
  const place = scrolling(box, "Work of a sequence against its length");
  const short = (v) => v.toExponential(2).replace("e+", " · 10^");
  function show() {
    const [n, D, L] = [2 ** sizes.n.input.value, 2 ** sizes.D.input.value, Number(sizes.L.input.value)];
    sizes.n.shown.textContent = n;
    sizes.D.shown.textContent = D;
    sizes.L.shown.textContent = L;
    const ratio = sequence("entp", n, D, L) / sequence("decoder", n, D, L);
    said.textContent = `One token after ${n}: decoder ${short(cost("decoder", n, D, L))}, ENTP ${short(cost("entp", n, D, L))} multiply-adds. ` +
      `A sequence of ${n}: decoder ${short(sequence("decoder", n, D, L))}, ENTP ${short(sequence("entp", n, D, L))}, ${ratio.toFixed(1)} times as much. ` +
      `Attention outweighs the linear maps from n = ${6 * D} on (for one token of a decoder).`;
    const [width, height, left, bottom] = [640, 320, 70, 40];
    const lengths = Array.from({ length: 12 }, (_, k) => 2 ** (k + 3));
    const values = lengths.flatMap((m) => ["decoder", "entp"].map((k) => Math.log10(sequence(k, m, D, L))));
    const [low, high] = [Math.floor(Math.min(...values)), Math.ceil(Math.max(...values))];
    const X = (m) => left + ((Math.log2(m) - 3) / 11) * (width - left - 90);
    const Y = (v) => 10 + ((high - v) / (high - low)) * (height - bottom - 10);
    place.replaceChildren();
    const svg = make(place, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Multiply-adds of a sequence against its length, decoder and ENTP; the sentence above has the numbers" });
    for (let v = low; v <= high; v += Math.max(1, Math.round((high - low) / 6))) {
      make(svg, "line", { x1: left, x2: width - 90, y1: Y(v), y2: Y(v), stroke: "#8886" });
      make(svg, "text", { x: left - 8, y: Y(v) + 4, "text-anchor": "end", "font-size": 12 }, `10^${v}`);
    }
    for (const m of lengths.filter((_, k) => k % 2 === 0)) make(svg, "text", { x: X(m), y: height - 20, "text-anchor": "middle", "font-size": 12 }, m);
    make(svg, "text", { x: (left + width - 90) / 2, y: height - 3, "text-anchor": "middle", "font-size": 12 }, "tokens of the sequence");
    make(svg, "line", { x1: X(n), x2: X(n), y1: 10, y2: height - bottom, stroke: "#888", "stroke-dasharray": "4 3" });
    for (const kind of ["decoder", "entp"]) {
      const points = lengths.map((m) => `${X(m)},${Y(Math.log10(sequence(kind, m, D, L)))}`);
      make(svg, "path", { d: "M" + points.join("L"), fill: "none", stroke: COLOURS[kind], "stroke-width": 2.5 });
      make(svg, "text", { x: width - 84, y: Y(Math.log10(sequence(kind, lengths[11], D, L))) + 5, "font-size": 13 }, NAMES[kind]);
    }
  }
  show();
}

function start(name, play) { // where the page has a place for it
  const box = document.getElementById(`play-${name}`);
  if (box) play(box, window[`${name}Data`]);
}

for (const [name, play] of Object.entries({ count3: playCount3, attention: playAttention, costs: playCosts })) start(name, play);
