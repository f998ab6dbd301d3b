// The chosen PE in words and tables, and its source.

/** An element with text or children; nothing of the run is ever read as HTML. */
function made(tag, content = [], attributes = {}) {
  const element = document.createElement(tag);
  element.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const grouped = (number) => number.toLocaleString("en");
const counted = (number, what) => `${grouped(number)} ${what}${number === 1 ? "" : "s"}`;

/** What a PE does at the sample: a list. */
function showNow(list, run, { pe, sample }) {
  const rows = [];
  const row = (tag, text, kind = "") => rows.push(made("li", [made("span", tag, { class: "tag" }), made("span", text, { class: kind })]));
  const task = run.task(pe, sample);
  if (run.tiles[pe] < 0) row("program", "none");
  else if (task === null) row("task", "none");
  else row("task", `${task.name}, since cycle ${grouped(run.cycle(task.begin))}`);
  const line = run.line(pe, sample);
  if (line >= 0) row("line", placeText(run, line));
  for (const each of run.operations(pe, sample)) {
    const where = run.places[each.place] ? `, ${placeText(run, each.place)}` : "";
    row(each.thread === "main" ? "main" : each.thread.replace("microthread", "thread"), `@${each.name}${where}, since cycle ${grouped(run.cycle(each.begin))}`);
  }
  for (const wait of run.waitsAt(pe, sample)) row("waits", run.waitText(wait).replace(/^waits /, ""), "wait");
  list.replaceChildren(...rows);
}

function placeText(run, number) {
  const place = run.places[number];
  return place ? `${run.files[place[0]].shown}:${place[1]}` : "unknown";
}

function showChain(list, run, { pe, sample }, choose) {
  if (run.waitsAt(pe, sample).length === 0) {
    list.replaceChildren(made("li", "It waits at no queue at this cycle.", { class: "first muted" }));
    return;
  }
  const steps = run.chain(pe, sample).map((step, at) => {
    const text = made("span", ` ${step.text}`, { class: step.isWait ? "wait" : "" });
    const parts = [text];
    if (step.pe >= 0) {
      const button = made("button", run.name(step.pe), { type: "button" });
      button.addEventListener("click", () => choose(step.pe));
      parts.unshift(button);
    }
    return made("li", parts, at === 0 ? { class: "first" } : {});
  });
  list.replaceChildren(...steps);
}

function table(element, heads, rows) {
  const head = made("thead", made("tr", heads.map((each) => made("th", each, { scope: "col" }))));
  const body = made("tbody", rows.map((row) => made("tr", row.map((cell) => (cell instanceof Node ? cell : made("td", cell))))));
  element.replaceChildren(head, body);
}

function showQueues(element, run, { pe, sample }) {
  const waits = run.waitsAt(pe, sample);
  const rows = run.fills.of(pe).map((track) => {
    const [, isOutput, queue, own] = run.fills.keys.map((key) => key[track]);
    const at = run.fills.row(track, sample);
    const fill = at < 0 ? 0 : run.fills.values[0][at];
    const room = run.capacity(isOutput, queue);
    const meter = made("span", made("i", []), { class: "meter", "aria-hidden": "true" });
    meter.firstChild.style.width = `${Math.min(100, (100 * fill) / Math.max(1, room))}%`;
    const waiting = waits.filter((wait) => (wait.act !== "starved") === Boolean(isOutput) && wait.queue === queue && (queue !== OWN || wait.color === own));
    const name = queue === OWN ? `of color ${own}` : String(queue);
    return [`${isOutput ? "output" : "input"} queue ${name}`, made("td", [`${fill} of ${room}`, meter]), waiting.map((wait) => wait.act).join(", ")];
  });
  if (rows.length === 0) rows.push(["no wavelet came to a queue of this PE", "", ""]);
  table(element, ["queue", "wavelets", "an operation is"], rows);
}

function portsText(ports) {
  return PORTS.filter((_, port) => (ports >> port) & 1).join(" ") || "none";
}

function showRoutes(element, run, { pe, sample }) {
  const rows = run.colorsOf(pe).map((color) => {
    const { rx, tx, position, positions } = run.route(pe, color, sample);
    const names = Object.keys(run.streams).filter((name) => run.streams[name] === color).join(", ");
    return [`${color}${names ? ` (${names})` : ""}`, portsText(rx), portsText(tx), positions > 1 ? `${position} of 0 to ${positions - 1}` : ""];
  });
  if (rows.length === 0) rows.push(["no color has a route here", "", "", ""]);
  table(element, ["color", "from", "to", "switch position"], rows);
}

const MOST_VALUES = 48;

function valueText(value) {
  return Number.isInteger(value) ? String(value) : Number(value.toPrecision(7)).toString();
}

function showMemory(element, run, pe) {
  const rows = run.variables(pe).map(({ name, type, count, value }) => {
    const values = (most) => Array.from({ length: Math.min(most, count) }, (_, i) => valueText(value(i))).join(" ");
    const cell = made("td", values(MOST_VALUES), { class: "values" });
    if (count > MOST_VALUES) {
      const more = made("button", `all ${grouped(count)} of ${name}`, { type: "button" });
      more.addEventListener("click", () => cell.replaceChildren(values(count)));
      cell.append(" ", more);
    }
    return [name, count > 1 ? `[${count}]${type}` : type, cell];
  });
  if (rows.length === 0) rows.push([run.memory_left_out || "no variable is known", "", ""]);
  table(element, ["name", "type", "values"], rows);
}

/** The source with the cycles of each line. */
class Source {
  constructor(box, run) {
    this.box = box;
    this.run = run;
    this.file = -1;
    this.rows = [];
    this.here = null;
    this.counted = null;
  }

  /** Cycles by file and line, of a PE, or of all of them (-1). */
  cycles(pe) {
    const { run } = this;
    const tracks = run.line_cycles;
    const found = new Map();
    const from = pe < 0 ? 0 : undefined;
    const rows = from === 0 ? [[0, tracks.samples.length]] : tracks.of(pe).map((track) => [tracks.starts[track], tracks.starts[track + 1]]);
    for (const [first, behind] of rows) {
      for (let row = first; row < behind; row++) {
        const place = run.places[tracks.samples[row]];
        if (!place) continue;
        const key = place[0] * 1e7 + place[1];
        found.set(key, (found.get(key) ?? 0) + tracks.values[0][row]);
      }
    }
    return found;
  }

  show(file, pe) {
    const key = `${file} ${pe}`;
    if (this.counted === key) return;
    this.counted = key;
    const { text } = this.run.files[file];
    const counts = this.cycles(pe);
    const most = Math.max(1, ...counts.values());
    this.here = null;
    this.file = file;
    if (text === null) {
      this.rows = [];
      this.box.replaceChildren(made("p", "The text of this file was not found when the run was recorded.", { class: "muted" }));
      return;
    }
    this.rows = text.split("\n").map((line, at) => {
      const count = counts.get(file * 1e7 + at + 1) ?? 0;
      const cell = made("span", count > 0 ? grouped(count) : "", { class: "count" });
      if (count > 0) {
        const bar = made("i", [], { "aria-hidden": "true" });
        bar.style.width = `${Math.max(2, (100 * count) / most)}%`;
        cell.prepend(bar);
      }
      return made("div", [made("span", ""), made("span", String(at + 1)), cell, made("code", line.replace(/\r$/, "") || " ")]);
    });
    this.box.replaceChildren(...this.rows);
  }

  /** Mark the line that the PE is in; 0 for none. */
  mark(line) {
    const row = this.rows[line - 1] ?? null;
    if (row === this.here) return;
    if (this.here !== null) {
      this.here.className = "";
      this.here.removeAttribute("aria-current");
      this.here.firstChild.textContent = "";
    }
    this.here = row;
    if (row === null) return;
    row.className = "here";
    row.setAttribute("aria-current", "step");
    row.firstChild.textContent = "▶";
    const { box } = this;
    const top = row.offsetTop - box.offsetTop;
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 30) box.scrollTop = top - box.clientHeight / 3;
  }
}
