// Who had, has, and is expected to have which cores: a row for each core, one for compiles, a strip for memory.

import { bytes, clock, draw, duration, plural, shortName } from "./words.js";

const ENDED = {
  succeeded: ["succeeded", "succeeded"],
  failed: ["failed", "failed"],
  cancelled: ["cancelled", "cancelled"],
  preempted: ["preempted", "preempted"],
  crashed: ["failed", "crashed"],
  restarts: ["failed", "crashed"],
  compiled: ["compiling", "compiled"],
  expected: ["expected", "expected"],
};
export const LEGEND = [
  ["running", "runs"],
  ["compiling", "compile"],
  ["succeeded", "succeeded"],
  ["failed", "failed, crashed"],
  ["cancelled", "cancelled"],
  ["preempted", "preempted"],
  ["expected", "expected"],
];
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];
const TOP = 22;
const STRIP = 34;
const RIGHT = 8;

export class Gantt {
  /** Draw in a box; `open` is called with the name of a job that was chosen. */
  constructor(box, open) {
    this.box = box;
    this.open = open;
    this.bars = new Map();
    this.focused = null;
    this.window = 0;
    this.view = null;
    this.grid = draw("g", { class: "grid", "aria-hidden": "true" });
    this.memory = draw("g", { class: "memory", "aria-hidden": "true" });
    this.group = draw("g");
    this.line = draw("g", { class: "now", "aria-hidden": "true" });
    this.svg = draw("svg", { role: "group", class: "gantt" }, this.grid, this.memory, this.group, this.line);
    box.append(this.svg);
    this.svg.addEventListener("keydown", (event) => this.move(event));
    this.group.addEventListener("click", (event) => {
      const bar = event.target.closest("[data-job]");
      if (bar !== null) {
        this.open(bar.dataset.job);
      }
    });
    new ResizeObserver(() => this.redraw()).observe(box);
  }

  /** Show what the page knows, as of a time [s since 1970]. */
  show(view, now, selected) {
    this.view = view;
    this.now = now;
    this.selected = selected;
    this.redraw();
  }

  redraw() {
    const width = Math.floor(this.box.clientWidth);
    if (this.view === null || width < 50) {
      return;
    }
    const { capacity, jobs } = this.view;
    const spans = this.view.spans.map((span) => this.late(span));
    const cpus = capacity === null ? coresOf(spans) : capacity.cpus;
    const compiles = packed(spans.filter((span) => span.stage === "compile"));
    const lanes = Math.max(1, ...[...compiles.values()].map((lane) => lane + 1));
    const height = Math.max(5, Math.min(24, Math.floor(260 / Math.max(cpus.length, 1))));
    const left = width < 600 ? 56 : 72;
    const rowOf = new Map(cpus.map((cpu, row) => [cpu, row]));
    const rows = cpus.length * height;
    const compileHeight = Math.max(8, Math.min(14, Math.floor(42 / lanes)));
    const bottom = TOP + rows + 6 + lanes * compileHeight;
    const [from, to] = this.bounds(spans);
    const x = (time) => left + ((time - from) / (to - from)) * (width - left - RIGHT);
    const total = bottom + 10 + STRIP + 4;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${total}`);
    this.svg.setAttribute("height", total);
    const frame = { width, height, left, rows, bottom, from, to, x, cpus, compileHeight, lanes };
    this.drawGrid(frame);
    this.drawMemory(frame, spans, capacity);
    this.drawLine(frame, total);
    const seen = new Set();
    for (const span of [...spans, ...this.rests(spans)]) {
      const end = span.end ?? (span.how === "" ? this.now : to);
      if (end < from || span.begin > to) {
        continue;
      }
      const pieces =
        span.stage === "compile"
          ? [[TOP + rows + 6 + compiles.get(span) * compileHeight, compileHeight]]
          : runs(span.cpus.map((cpu) => rowOf.get(cpu)).filter((row) => row !== undefined)).map(([row, count]) => [
              TOP + row * height,
              count * height,
            ]);
      pieces.forEach(([y, tall], piece) => {
        const key = `${span.job} ${span.stage} ${span.how === "expected" ? "expected" : span.begin} ${piece}`;
        seen.add(key);
        this.drawBar(key, span, jobs.get(span.job), Math.max(x(span.begin), left), Math.min(x(end), width - RIGHT), y, tall);
      });
    }
    for (const [key, bar] of this.bars) {
      if (!seen.has(key)) {
        bar.remove();
        this.bars.delete(key);
      }
    }
    const running = spans.filter((span) => span.how === "" && span.stage === "execute").length;
    const expected = spans.filter((span) => span.how === "expected").length;
    this.svg.setAttribute(
      "aria-label",
      `${plural(running, "job")} on ${plural(cpus.length, "core")} now, ${expected} expected later. ` +
        "Arrow keys go from bar to bar, Enter shows the job.",
    );
    this.keepTabStop();
  }

  /** What jobs that run are expected to go on. */
  rests(spans) {
    const going = spans.filter((span) => span.how === "" && span.stage === "execute");
    return going
      .map((span) => ({ ...span, begin: this.now, end: this.view.jobs.get(span.job)?.expected_end ?? 0, how: "expected", isRest: true }))
      .filter((span) => span.end > span.begin);
  }

  /** What was expected before now is late: it is expected now. */
  late(span) {
    const by = this.now - span.begin;
    return span.how === "expected" && by > 0 ? { ...span, begin: this.now, end: span.end === null ? null : span.end + by } : span;
  }

  /** Which times are shown: what was chosen, or what goes on and what ended lately; some of what is expected. */
  bounds(spans) {
    const past = spans.filter((span) => span.how !== "expected");
    const recent = [...past.filter((span) => span.end === null), ...past.slice(-40)];
    const earliest = recent.reduce((least, span) => Math.min(least, span.begin), this.now - 60);
    const back = this.window || Math.min(Math.max((this.now - earliest) * 1.02, 60), 86400);
    const latest = spans.reduce((most, span) => {
      const end = span.how === "expected" ? span.end ?? span.begin + 60 : this.view.jobs.get(span.job)?.expected_end;
      return Math.max(most, span.how === "expected" || span.end === null ? end ?? 0 : 0);
    }, this.now);
    const ahead = Math.min(Math.max((latest - this.now) * 1.03, back * 0.06), back * 0.8);
    return [this.now - back, this.now + ahead];
  }

  drawGrid({ width, height, left, rows, bottom, from, to, x, cpus, compileHeight, lanes }) {
    const parts = [];
    const every = Math.max(1, Math.ceil(12 / height));
    cpus.forEach((cpu, row) => {
      const y = TOP + row * height;
      parts.push(draw("rect", { class: row % 2 ? "row odd" : "row", x: left, y, width: width - left - RIGHT, height }));
      if (row % every === 0) {
        parts.push(draw("text", { x: left - 8, y: y + Math.max(height, 12) / 2 + 4, "text-anchor": "end", text: `core ${cpu}` }));
      }
    });
    const compileTop = TOP + rows + 6;
    parts.push(
      draw("rect", { class: "row", x: left, y: compileTop, width: width - left - RIGHT, height: lanes * compileHeight }),
      draw("text", { x: left - 8, y: compileTop + (lanes * compileHeight) / 2 + 4, "text-anchor": "end", text: "compile" }),
      draw("text", { x: left - 8, y: bottom + 10 + STRIP / 2 + 4, "text-anchor": "end", text: "memory" }),
    );
    const roomy = (to - from) * ((width < 600 ? 62 : 90) / (width - left));
    const step = STEPS.find((one) => one >= roomy) ?? 604800;
    const offset = new Date(from * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((from - offset) / step) * step + offset; time <= to; time += step) {
      const at = x(time);
      parts.push(draw("line", { x1: at, x2: at, y1: TOP - 4, y2: bottom + 10 + STRIP }));
      const close = Math.abs(at - x(this.now)) < 52;
      if (!close && at > left + 24 && at < width - 30) {
        const day = step >= 86400;
        const label = day ? clock(time, this.now, false).split(" ").slice(0, 2).join(" ") : clock(time, undefined, step < 60);
        parts.push(draw("text", { class: "tick", x: at, y: 12, "text-anchor": "middle", text: label }));
      }
    }
    this.grid.replaceChildren(...parts);
  }

  drawLine({ left, width, x }, total) {
    const at = Math.min(Math.max(x(this.now), left), width - RIGHT);
    this.line.replaceChildren(
      draw("line", { x1: at, x2: at, y1: TOP - 5, y2: total - 4 }),
      draw("text", { x: Math.min(at, width - 16), y: 12, "text-anchor": "middle", text: "now" }),
    );
  }

  /** Memory that is set aside, over time: steps up where a job begins, down where it ends. */
  drawMemory({ left, width, from, to, x, bottom }, spans, capacity) {
    const top = bottom + 10;
    const parts = [draw("rect", { class: "row", x: left, y: top, width: width - left - RIGHT, height: STRIP })];
    const all = capacity === null ? 0 : capacity.memory_bytes;
    if (all > 0) {
      const y = (amount) => top + STRIP * (1 - Math.min(amount / all, 1));
      const past = steps(spans.filter((span) => span.how !== "expected"), this.now, from, this.now, this.view.jobs);
      const later = steps(spans, this.now, this.now, to, this.view.jobs);
      for (const [name, points] of [["used", past], ["later", later]]) {
        let path = `M${x(points[0][0])} ${top + STRIP}`;
        for (const [time, amount] of points) {
          path += `H${x(time).toFixed(1)}V${y(amount).toFixed(1)}`;
        }
        path += `H${x(name === "used" ? this.now : to).toFixed(1)}V${top + STRIP}Z`;
        parts.push(draw("path", { class: name, d: path }));
      }
      const [, used] = past[past.length - 1];
      parts.push(draw("text", { class: "amount", x: left + 6, y: top + 13, text: `${bytes(used)} of ${bytes(all)} set aside` }));
    }
    this.memory.replaceChildren(...parts);
  }

  drawBar(key, span, job, x1, x2, y, tall) {
    let bar = this.bars.get(key);
    if (bar === undefined) {
      bar = draw(
        "g",
        { role: "button", tabindex: "-1", "data-job": span.job },
        draw("title"),
        draw("rect", { rx: 3 }),
        draw("text", { "aria-hidden": "true" }),
      );
      this.bars.set(key, bar);
      this.group.append(bar);
    }
    bar.begin = span.begin;
    const [title, rect, text] = bar.children;
    const state = span.how === "" ? (span.stage === "compile" ? "compiling" : "running") : ENDED[span.how][0];
    const chosen = this.selected === span.job ? " chosen" : "";
    bar.setAttribute("class", `bar ${state}${span.how === "crashed" ? " crashed" : ""}${chosen}`);
    const width = Math.max(x2 - x1, 2);
    const gap = tall > 8 ? 1.5 : 1;
    for (const [name, value] of [["x", x1], ["y", y + gap], ["width", Math.max(width - 1, 1.5)], ["height", tall - 2 * gap]]) {
      rect.setAttribute(name, value.toFixed(1));
    }
    const room = Math.floor((width - 10) / 6.6);
    const full = job === undefined ? shortName(span.job) : `${job.model} ${shortName(span.job)}`;
    const label = full.length <= room ? full : shortName(span.job);
    text.textContent = tall >= 16 && !span.isRest && label.length <= room ? label : "";
    text.setAttribute("x", (x1 + 6).toFixed(1));
    text.setAttribute("y", (y + tall / 2 + 4).toFixed(1));
    const told = this.told(span, job);
    if (title.textContent !== told) {
      title.textContent = told;
      bar.setAttribute("aria-label", told);
    }
  }

  told(span, job) {
    const what = span.isRest ? "expected to go on" : span.how === "" ? (span.stage === "compile" ? "compiles" : "runs") : ENDED[span.how][1];
    const cores = span.cpus.length && span.stage !== "compile" ? `, core ${span.cpus.join(", ")}` : "";
    const end = span.end === null ? (span.how === "" ? "" : " to ?") : ` to ${clock(span.end, this.now)}`;
    const long = span.end === null ? "" : `, ${duration(span.end - span.begin)}`;
    const who = job === undefined ? "" : ` (${job.model}, ${job.user})`;
    return `${span.job}${who}: ${what}${cores}, ${clock(span.begin, this.now)}${end}${long}`;
  }

  /** Arrow keys go from bar to bar; one of them can be reached by Tab. */
  move(event) {
    const bars = [...this.bars.values()].sort((one, other) => one.begin - other.begin);
    const at = bars.indexOf(document.activeElement);
    if (at < 0) {
      return;
    }
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: bars.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.open(bars[at].dataset.job);
    } else if (to !== undefined && bars[to] !== undefined) {
      event.preventDefault();
      this.focused = bars[to];
      this.keepTabStop();
      bars[to].focus();
    }
  }

  keepTabStop() {
    if (this.focused === null || !this.focused.isConnected) {
      this.focused = this.bars.values().next().value ?? null;
    }
    for (const bar of this.bars.values()) {
      bar.setAttribute("tabindex", bar === this.focused ? "0" : "-1");
    }
  }
}

/** Rows that lie together: [first, how many] each. */
function runs(rows) {
  const found = [];
  for (const row of [...rows].sort((one, other) => one - other)) {
    const last = found[found.length - 1];
    if (last !== undefined && last[0] + last[1] === row) {
      last[1] += 1;
    } else {
      found.push([row, 1]);
    }
  }
  return found;
}

/** The lane of each span, so that none covers another. */
function packed(spans) {
  const lanes = [];
  const found = new Map();
  for (const span of spans) {
    let lane = lanes.findIndex((end) => end <= span.begin);
    lane = lane < 0 ? lanes.length : lane;
    lanes[lane] = span.end ?? Infinity;
    found.set(span, lane);
  }
  return found;
}

function coresOf(spans) {
  return [...new Set(spans.flatMap((span) => span.cpus))].sort((one, other) => one - other);
}

/** [time, amount from there on] of the memory that jobs have between two times. */
function steps(spans, now, from, to, jobs) {
  const changes = [];
  for (const span of spans.filter((one) => one.stage === "execute")) {
    const open = span.how === "" ? (to > now ? jobs.get(span.job)?.expected_end ?? Infinity : Infinity) : span.begin + 60;
    const end = span.end ?? open;
    if (end > from && span.begin < to) {
      changes.push([Math.max(span.begin, from), span.memory_bytes], [Math.min(end, to), -span.memory_bytes]);
    }
  }
  changes.sort((one, other) => one[0] - other[0]);
  const found = [[from, 0]];
  let amount = 0;
  for (const [time, change] of changes) {
    if (time >= to && change < 0) {
      continue;
    }
    amount += change;
    const last = found[found.length - 1];
    if (time === last[0]) {
      last[1] = amount;
    } else {
      found.push([time, amount]);
    }
  }
  return found;
}
