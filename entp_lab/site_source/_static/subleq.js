"use strict";
// SUBLEQ, edited and run: the language of entp_papers.looped.assembler, and its plain interpreter.

function assemble(text) {
  let [bits, line] = [16, 0];
  const memory = [0, -1];
  const [cells, labels] = [new Map([["ZERO", 0], ["MINUS_ONE", 1]]), new Map()];
  const written = []; // source line, a, b and c as written
  const check = (right, words) => { if (!right) throw new Error(`line ${line}: ${words}`); };
  const number = (word) => {
    check(/^[-+]?\d+$/.test(word), `'${word}' is no number`);
    return Number(word);
  };
  const newCell = (name, value) => {
    const half = 2 ** (bits - 1);
    check(value >= -half && value < half, `${name} = ${value}: does not fit into a word of ${bits} bits, which holds ${-half} to ${half - 1}`);
    cells.set(name, memory.length);
    return memory.push(value) - 1;
  };
  const declare = (words) => {
    let m;
    if ((m = /^cell\s+([A-Za-z_]\w*)(?:\[(\w+)\])?(?:\s*=\s*(.+))?$/.exec(words))) {
      const count = m[2] ? number(m[2]) : 1;
      const given = m[3] ? m[3].split(/[\s,]+/).map(number) : [];
      check(count >= 1, `${m[1]}[${count}]: must have at least one cell`);
      check([0, count].includes(given.length), `${m[1]} has ${count} cells and ${given.length} values: give all of them or none`);
      for (let i = 0; i < count; i++) {
        const name = m[2] ? `${m[1]}[${i}]` : m[1];
        check(!cells.has(name), `'${name}' exists already`);
        newCell(name, given[i] ?? 0);
      }
    } else if ((m = /^bits\s+(\S+)$/.exec(words))) {
      bits = number(m[1]);
      check(bits >= 2 && bits <= 20, `bits ${bits}: must be from 2 to 20`);
      check(memory.length === 2, "bits must come before the first cell");
    } else check(false, `'${words}' is not understood: cell name = value, or bits N`);
  };
  const operands = { subleq: [2, 3], goto: [1], halt: [0], clear: [1] };
  const read = (words) => {
    let m;
    while ((m = /^([A-Za-z_]\w*)\s*:\s*/.exec(words))) {
      check(!["next", "halt"].includes(m[1]), `label '${m[1]}': that name is a target of its own`);
      check(!labels.has(m[1]), `label '${m[1]}' exists already`);
      labels.set(m[1], written.length);
      words = words.slice(m[0].length);
    }
    if (!words) return;
    const [command, ...given] = words.split(/\s+/);
    const takes = operands[command];
    check(takes, `command = '${command}': must be one of subleq, goto, halt, clear`);
    check(takes.includes(given.length), `${command} takes ${takes.join(" or ")} operands, ${given.length} are given`);
    if (command === "subleq") written.push([line, given[0], given[1], given[2] ?? "next"]);
    else if (command === "clear") written.push([line, given[0], given[0], "next"]);
    else written.push([line, "ZERO", "MINUS_ONE", given[0] ?? "halt"]);
  };
  const cell = (name) => {
    if (name.startsWith("#")) {
      const value = number(name.slice(1));
      return cells.get(`#${value}`) ?? newCell(`#${value}`, value);
    }
    const m = /^(\w+)\[(\w+)\]$/.exec(name);
    const place = m ? `${m[1]}[${number(m[2])}]` : name;
    const size = m ? [...cells.keys()].filter((c) => c.startsWith(`${m[1]}[`)).length : 0;
    check(cells.has(place) || !size, `${place} is out of range, ${m?.[1]} has ${size} cells, 0 to ${size - 1}`);
    check(cells.has(place), `cell = '${place}': must be one of ${[...cells.keys()].join(", ")}`);
    return cells.get(place);
  };
  const statements = [];
  text.split("\n").forEach((raw, i) => {
    const words = raw.trimEnd().replace(/(^|\s)#(\s.*)?$/, "").trim();
    if (!words) return;
    line = i + 1;
    if (/^(cell|bits)(\s|$)/.test(words)) declare(words);
    else statements.push([line, words]);
  });
  for (const [at, words] of statements) {
    line = at;
    read(words);
  }
  const last = written.length;
  const code = written.map(([at, a, b, c], i) => {
    line = at;
    check(!b.startsWith("#"), `${b} is a constant and cannot be written to: name a cell`);
    const target = c === "next" ? i + 1 : c === "halt" ? last : labels.get(c);
    check(target !== undefined, `label = '${c}': must be one of ${[...labels.keys(), "next", "halt"].join(", ")}`);
    const [from, to] = [cell(a), cell(b)];
    check(to > 1 || from === 0, `writes to ${b}, which must stay ${memory[to]}`);
    return [from, to, target];
  });
  return { bits, memory, code: [...code, [0, 1, last]], cells, last };
}

function subleq({ bits, code }, memory, line) { // one command: the memory and the line after it
  const [half, after] = [2 ** (bits - 1), [...memory]];
  const [a, b, c] = code[line];
  const whole = after[b] - after[a] + half;
  after[b] = (((whole % (2 * half)) + 2 * half) % (2 * half)) - half;
  return [after, after[b] <= 0 ? c : line + 1];
}

function playSubleq(box) {
  const MOST = 1000;
  const program = "bits 8\ncell n = 3\ncell sum\ncell minus\nloop:\n  clear minus\n  subleq n minus    # minus = -n\n  subleq minus sum  # sum = sum + n\n  subleq #1 n halt  # n = n - 1, and halt at 0\n  goto loop\n";
  const label = make(box, "label", {}, "program");
  const input = make(label, "textarea", { rows: 12, cols: 46, spellcheck: "false", id: "subleq-text" });
  input.value = program;
  const bar = make(box, "div", { class: "controls" });
  const [step, run, back] = ["step", "run", "back to the start"].map((words) => make(bar, "button", { type: "button", id: `subleq-${words.split(" ")[0]}` }, words));
  const said = make(box, "p", { class: "said", "aria-live": "polite", id: "subleq-said" });
  const listing = make(scrolling(box, "Commands, the next one marked"), "pre", { id: "subleq-code" });
  const place = scrolling(box, "Memory after each step");
  let machine, memories, lines;
  const halted = () => lines[lines.length - 1] === machine.last;
  function one() {
    const [memory, line] = subleq(machine, memories[memories.length - 1], lines[lines.length - 1]);
    memories.push(memory);
    lines.push(line);
  }
  function reset() {
    try {
      machine = assemble(input.value);
    } catch (error) {
      machine = undefined;
      said.textContent = error.message;
      for (const button of [step, run]) button.disabled = true;
      listing.replaceChildren();
      place.replaceChildren();
      return;
    }
    [memories, lines] = [[machine.memory], [0]];
    show();
  }
  function show() {
    const [steps, at] = [lines.length - 1, lines[lines.length - 1]];
    for (const button of [step, run]) button.disabled = halted();
    const names = new Map([...machine.cells].map(([name, i]) => [i, name]));
    listing.textContent = machine.code.map(([a, b, c], i) => `${i === at ? "▶" : " "} ${i}  ${i === machine.last ? "halt" : `subleq ${names.get(a)} ${names.get(b)} ${c}`}`).join("\n");
    said.textContent = `${halted() ? "Halted" : "Not halted"} after ${steps} step${steps === 1 ? "" : "s"}.`;
    if (steps) {
      const [a, b] = machine.code[lines[steps - 1]];
      const [before, after] = [memories[steps - 1], memories[steps]];
      said.textContent += ` Last: ${names.get(b)} = ${before[b]} - ${before[a]} (${names.get(a)}) = ${after[b]}, ${after[b] <= 0 ? "at most 0" : "positive"}: to line ${at}.`;
    }
    const shown = [...machine.cells].filter(([name, i]) => i > 1 && !name.startsWith("#"));
    place.replaceChildren();
    const table = make(place, "table", { id: "subleq-memory" });
    const head = make(make(table, "thead"), "tr");
    for (const words of ["step", "line", ...shown.map(([name]) => name)]) make(head, "th", { scope: "col" }, words);
    const body = make(table, "tbody");
    lines.forEach((line, k) => {
      const row = make(body, "tr");
      for (const value of [k, line, ...shown.map(([, i]) => memories[k][i])]) make(row, "td", {}, value);
    });
  }
  step.addEventListener("click", () => { one(); show(); });
  run.addEventListener("click", () => {
    const end = lines.length + MOST;
    while (!halted() && lines.length < end) one();
    show();
    if (!halted()) said.textContent = `No halt within ${MOST} steps more. ${said.textContent}`;
  });
  back.addEventListener("click", reset);
  input.addEventListener("input", reset);
  reset();
}

start("subleq", playSubleq);
