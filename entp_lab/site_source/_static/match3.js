"use strict";
// Two trained Transformers, decoder and ENTP, run in the page: pre-LN blocks, tanh GELU, head tied to the embedding.

function decode({ shape, data }) { // base64 of little-endian half floats, as rows (a vector is one row)
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const width = shape[shape.length - 1];
  const rows = Array.from({ length: bytes.length / 2 / width }, () => new Float64Array(width));
  for (let i = 0; i < bytes.length / 2; i++) {
    const [h, sign] = [bytes[2 * i] | ((bytes[2 * i + 1] & 127) << 8), bytes[2 * i + 1] & 128 ? -1 : 1];
    const [e, f] = [h >> 10, (h & 1023) / 1024];
    rows[Math.floor(i / width)][i % width] = sign * (e ? 2 ** (e - 15) * (1 + f) : 2 ** -14 * f);
  }
  return rows;
}

const dot = (a, b, from = 0, to = a.length) => {
  let sum = 0;
  for (let i = from; i < to; i++) sum += a[i] * b[i];
  return sum;
};
const add = (a, b) => a.map((v, i) => v + b[i]);
const gelu = (v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3)));
const softmax = (scores) => {
  const raised = scores.map((v) => Math.exp(v - Math.max(...scores)));
  const sum = raised.reduce((a, b) => a + b, 0);
  return raised.map((v) => v / sum);
};

function layers(model) { // what the tensors of one model do to a row
  const w = Object.fromEntries(Object.entries(model.tensors).map(([name, tensor]) => [name, decode(tensor)]));
  const linear = (name, row) => Float64Array.from(w[`${name}.weight`], (r, i) => dot(r, row) + w[`${name}.bias`][0][i]);
  const norm = (name, row) => {
    const mean = row.reduce((a, b) => a + b, 0) / row.length;
    const off = row.map((v) => v - mean);
    const scale = 1 / Math.sqrt(dot(off, off) / row.length + 1e-5);
    return off.map((v, i) => v * scale * w[`${name}.weight`][0][i] + w[`${name}.bias`][0][i]);
  };
  return { w, linear, norm };
}

function attend(heads, qkv, causal) { // one row a position: queries, keys and values side by side
  const D = qkv[0].length / 3;
  const K = D / heads;
  return qkv.map((row, t) => {
    const seen = qkv.slice(0, causal ? t + 1 : undefined);
    const out = new Float64Array(D);
    for (let h = 0; h < heads; h++) {
      const q = row.slice(h * K, (h + 1) * K);
      const weights = softmax(seen.map((r) => dot(q, r.slice(D + h * K, D + (h + 1) * K)) / Math.sqrt(K)));
      seen.forEach((r, s) => { for (let k = 0; k < K; k++) out[h * K + k] += weights[s] * r[2 * D + h * K + k]; });
    }
    return out;
  });
}

function pass(model, net, tokens, causal) { // probabilities of all tokens after every position
  let x = tokens.map((token, t) => add(net.w["embedding.weight"][token], net.w["positions.weight"][t]));
  for (let i = 0; i < model.layers; i++) {
    const name = `blocks.${i}`;
    const seen = attend(model.heads, x.map((row) => net.linear(`${name}.attention.qkv`, net.norm(`${name}.ln_1`, row))), causal);
    x = x.map((row, t) => add(row, net.linear(`${name}.attention.out`, seen[t])));
    x = x.map((row) => add(row, net.linear(`${name}.fc_out`, net.linear(`${name}.fc_in`, net.norm(`${name}.ln_2`, row)).map(gelu))));
  }
  return x.map((row) => softmax(net.w["embedding.weight"].map((e) => dot(e, net.norm("ln_f", row)))));
}

function probabilities(model, tokens) { // a decoder runs once, ENTP once for every prefix, of which the last row counts
  model.net ??= layers(model);
  if (model.architecture === "decoder") return pass(model, model.net, tokens, true);
  return tokens.map((_, t) => pass(model, model.net, tokens.slice(0, t + 1), false)[t]);
}

function match3(x, modulus) { // the right answer after every prefix
  return x.map((_, t) => {
    const seen = x.slice(0, t + 1);
    return Number(seen.some((a) => seen.some((b) => (x[0] + a + b) % modulus === 0)));
  });
}

function playMatch3(box, data) {
  const { length, modulus, symbols } = data.task;
  const models = [...data.models].sort((a, b) => a.architecture.localeCompare(b.architecture));
  const bar = make(box, "div", { class: "controls" });
  const input = control(bar, "sequence", "input", { type: "text", value: "8 3 9 0 3 8 1 3", size: 24, inputmode: "numeric" });
  const differ = make(bar, "button", { type: "button" }, "another on which they differ");
  const many = make(bar, "button", { type: "button", id: "match3-many" }, "100 random sequences");
  const counted = make(box, "p", { "aria-live": "polite", id: "match3-counted" });
  const out = make(box, "div", { "aria-live": "polite" });
  const draw = () => Array.from({ length }, () => Math.floor(Math.random() * symbols));
  const answer = (m, x) => probabilities(m, x).map((p) => p.indexOf(Math.max(...p)) - symbols);
  const isRight = (m, x) => String(answer(m, x)) === String(match3(x, modulus));
  differ.addEventListener("click", () => {
    let x = draw();
    while (isRight(models[0], x) === isRight(models[1], x)) x = draw();
    input.value = x.join(" ");
    show();
  });
  many.addEventListener("click", () => {
    const drawn = Array.from({ length: 100 }, draw);
    const said = models.map((m) => `${NAMES[m.architecture]} ${drawn.filter((x) => isRight(m, x)).length}`);
    counted.textContent = `Right after every prefix, of 100 random sequences: ${said.join(", ")}.`;
  });
  input.addEventListener("input", show);
  function show() {
    out.replaceChildren();
    const parts = input.value.trim().split(/[\s,]+/).filter(Boolean);
    const wrong = parts.find((part) => !/^\d+$/.test(part) || Number(part) >= symbols);
    if (wrong !== undefined) return void make(out, "p", {}, `${wrong}: these models read the numbers 0 to ${symbols - 1}.`);
    if (!parts.length || parts.length > length) return void make(out, "p", {}, `Type 1 to ${length} numbers, not ${parts.length}.`);
    const x = parts.map(Number);
    const right = match3(x, modulus);
    const table = make(scrolling(out, "What both models answer after each prefix"), "table", { id: "match3-models" });
    const head = make(make(table, "thead"), "tr");
    for (const words of ["after", "right", ...models.map((m) => NAMES[m.architecture])]) make(head, "th", { scope: "col" }, words);
    const body = make(table, "tbody");
    const found = models.map((m) => probabilities(m, x));
    x.forEach((_, t) => {
      const row = make(body, "tr");
      make(row, "td", {}, x.slice(0, t + 1).join(" "));
      make(row, "td", {}, right[t]);
      models.forEach((m, k) => {
        const p = found[k][t];
        const said = p.indexOf(Math.max(...p)) - symbols;
        const cell = make(row, "td", {}, `${said} ${said === right[t] ? "✓" : "✗"}`);
        const share = p[symbols + right[t]];
        const svg = make(cell, "svg", { viewBox: "0 0 100 10", width: 70, height: 10, preserveAspectRatio: "none", role: "img", "aria-label": `probability of the right answer ${share.toFixed(2)}` });
        make(svg, "rect", { x: 0, y: 0, width: 100, height: 10, fill: "#8883" });
        make(svg, "rect", { x: 0, y: 0, width: 100 * share, height: 10, fill: COLOURS[m.architecture] });
      });
    });
    make(out, "p", {}, "Bars: the probability that a model gives to the right answer. Records: " +
      models.map((m) => `${NAMES[m.architecture]} ${m.run} (${(100 * m.sequence_accuracy).toFixed(0)} % of sequences right)`).join(", ") + ".");
  }
  show();
}

start("match3", playMatch3);
