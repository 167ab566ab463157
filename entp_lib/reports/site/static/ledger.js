"use strict";
// The ledger: heads sort, drop-downs filter. The interval plot: a row a claim, told where one points at it.
document.addEventListener("DOMContentLoaded", () => {
  table();
  intervals();
});

function table() {
  const ledger = document.getElementById("ledger");
  const body = ledger.tBodies[0];
  const rows = [...body.rows];
  const filters = [...document.querySelectorAll("#ledger-filters [data-filter]")];
  const words = document.querySelector("#ledger-filters [data-words]");
  const count = document.getElementById("ledger-count");
  const asked = new URLSearchParams(location.hash.slice(1));
  function show() {
    const needle = words.value.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = filters.every((f) => !f.value || row.dataset[f.dataset.filter] === f.value);
      row.hidden = !(fits && row.textContent.toLowerCase().includes(needle));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  }
  for (const f of filters) {
    if (asked.has(f.dataset.filter)) f.value = asked.get(f.dataset.filter);
    f.addEventListener("change", show);
  }
  words.addEventListener("input", show);
  [...ledger.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of ledger.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].textContent.trim();
      const numeric = (text) => (/^[±+-]?\d/.test(text) ? parseFloat(text.replace("±", "")) : NaN);
      rows.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (!x || !y) return !x - !y; // empty cells last, whichever way
        const [p, q] = [numeric(x), numeric(y)];
        const order = Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y) : p - q;
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
  show();
}

function intervals() {
  const box = document.getElementById("intervals");
  const data = JSON.parse(document.getElementById("intervals-data").textContent);
  if (!data.length) return;
  const [width, left, right, line] = [760, 150, 20, 22];
  const height = data.length * line + 40;
  const values = data.flatMap((d) => [d.low, d.high, d.ours, d.paper, 0]).filter((v) => v !== null);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (v) => left + ((v - low) / (high - low || 1)) * (width - left - right);
  const ns = "http://www.w3.org/2000/svg";
  const add = (parent, name, attributes, text) => {
    const node = document.createElementNS(ns, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const said = document.createElement("p");
  said.className = "said";
  said.setAttribute("aria-live", "polite");
  said.textContent = "Point at a row.";
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", "Interval plot; arrow keys move through its rows");
  const svg = add(scroll, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": "Our interval and the paper's value for each measured claim; the table below has the numbers" });
  const zero = x(0);
  add(svg, "line", { x1: zero, x2: zero, y1: 0, y2: height - 26, stroke: "#888" });
  const marks = add(svg, "g", { "font-size": 12 });
  const bars = data.map((d, i) => {
    const y = i * line + line / 2 + 2;
    const back = add(svg, "rect", { x: 0, y: i * line + 2, width, height: line, fill: "#888", opacity: 0 });
    add(svg, "text", { x: 4, y: y + 4, "font-size": 12 }, d.id);
    if (d.low !== null) add(svg, "line", { x1: x(d.low), x2: x(d.high), y1: y, y2: y, stroke: d.colour, "stroke-width": 3 });
    add(svg, "circle", { cx: x(d.ours), cy: y, r: 4.5, fill: d.colour });
    if (d.paper !== null) add(svg, "text", { x: x(d.paper), y: y + 5, "text-anchor": "middle", "font-size": 15 }, "×");
    const cover = add(svg, "rect", { x: 0, y: i * line + 2, width, height: line, fill: "transparent" });
    cover.addEventListener("pointerenter", () => tell(i));
    return back;
  });
  const step = [0.05, 0.1, 0.2, 0.25, 0.5, 1, 2].find((s) => (high - low) / s <= 8) || 5;
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) {
    add(marks, "text", { x: x(v), y: height - 8, "text-anchor": "middle" }, Math.abs(v) < 1e-9 ? "0" : v.toFixed(2));
  }
  const number = (v) => (v === null ? "none" : (v > 0 ? "+" : "") + v.toFixed(4).replace(/0{1,2}$/, ""));
  let at = -1;
  function tell(i) {
    at = i;
    bars.forEach((bar, k) => bar.setAttribute("opacity", k === i ? 0.25 : 0));
    const d = data[i];
    const range = d.low === null ? "no interval" : `${number(d.low)} to ${number(d.high)}`;
    said.textContent = `${d.id}: ${d.says}. Ours ${number(d.ours)} (${range}) ${d.unit}; the paper's: ${number(d.paper)}. ` +
      `${d.verdict}; ${d.seeds} pairs, tier ${d.tier}.`;
  }
  scroll.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    tell(Math.min(data.length - 1, Math.max(0, at + move)));
  });
  box.append(scroll, said);
}
