// The page: its controls, its keys, and what follows from a change.

const at = (id) => document.getElementById(id);
const WINDOWS = [1, 10, 100, 1000];
const SPANS = [100, 500, 2000, 10000];
const PARTS = 600;
const MOST_MARKS = 60;
const NEAR = 7; // marks with another one so near have no room for words

class Page {
  constructor(run) {
    this.run = run;
    this.sample = 0;
    this.pe = 0;
    this.playing = false;
    this.colours = coloursNow();
    this.shares = run.activity(PARTS);
    this.source = new Source(at("source"), run);
    this.grid = new Grid(at("fabric"), run, (pe) => this.choose(pe));
    this.grid.changed = () => this.plan();
    this.planned = false;
    this.fill();
    this.listen();
    if (run.failure !== "") this.showEnd();
    this.choose(this.pe);
    this.read();
  }

  // --- at the start ---

  fill() {
    const { run } = this;
    at("subtitle").textContent =
      `${grouped(run.width)} x ${grouped(run.height)} PEs of ${run.arch}, ${grouped(run.end)} cycles. ` +
      `Simulated with the times of ${run.time}, measured on no wafer.`;
    if (run.notes.length > 0) {
      at("note").textContent = run.notes.join(" ");
      at("note").hidden = false;
    }
    if (run.failure !== "") {
      at("failure").hidden = false;
      at("failure").querySelector("pre").textContent = run.failure;
    }
    at("slider").max = run.lastSample;
    at("cycle").max = run.end;
    at("cycle").step = run.every;
    at("of").textContent = `of ${grouped(run.end)}`;
    const options = (id, pairs) => at(id).append(...pairs.map(([value, text]) => made("option", text, { value })));
    const windows = WINDOWS.filter((each) => each <= run.samples);
    options("window", [...windows.map((each) => [each, `the last ${grouped(each * run.every)} ${each * run.every === 1 ? "cycle" : "cycles"}`]), [run.samples, "the run so far"]]);
    at("window").value = String(windows.findLast((each) => each <= 100));
    const spans = SPANS.filter((each) => each < run.samples);
    options("span", [[run.samples, "the whole run"], ...spans.reverse().map((each) => [each, `${grouped(each * run.every)} cycles`])]);
    options("color", [[-1, "no color"], ...run.colors.map((color) => [color, this.colorName(color)])]);
    const files = run.files.map((file, number) => [number, file.shown]).filter(([number]) => run.files[number].text !== null);
    options("file", files.length > 0 ? files : run.files.map((file, number) => [number, file.shown]));
    this.showHost();
    this.showLog();
  }

  colorName(color) {
    const names = Object.keys(this.run.streams).filter((name) => this.run.streams[name] === color);
    return `color ${color}${names.length > 0 ? ` (${names.join(", ")})` : ""}`;
  }

  /** A mark for the host's commands; those close together have one. */
  showHost() {
    const { run } = this;
    const marks = new Map();
    for (const [cycle, text] of run.log) {
      if (!/^(host|error): /.test(text)) continue;
      const place = Math.round((MOST_MARKS * cycle) / Math.max(1, run.end));
      if (!marks.has(place)) marks.set(place, []);
      marks.get(place).push([cycle, text]);
    }
    const places = [...marks.keys()];
    for (const [place, lines] of marks) {
      const hasRoom = places.every((other) => other === place || Math.abs(other - place) > NEAR);
      const [[cycle, text]] = lines;
      const short = text.replace(/^host: /, "").split(/[ (]/)[0].replace("error:", "error");
      const shown = !hasRoom ? "\u25be" : lines.length > 1 ? `${short} +${lines.length - 1}` : short;
      const told = lines.map(([when, line]) => `cycle ${grouped(when)}: ${line}`).join("\n");
      const button = made("button", shown, { type: "button", title: told, "aria-label": told });
      button.style.left = `calc(8px + (100% - 16px) * ${place / MOST_MARKS})`;
      button.style.transform = `translateX(${(-100 * place) / MOST_MARKS}%)`;
      button.addEventListener("click", () => this.goToCycle(cycle));
      at("host").append(button);
    }
  }

  showLog() {
    const most = 500;
    const rows = this.run.log.slice(0, most).map(([cycle, text]) => {
      const button = made("button", `@${cycle}`, { type: "button", "aria-label": `go to cycle ${cycle}` });
      button.addEventListener("click", () => this.goToCycle(cycle));
      return made("li", [button, text]);
    });
    if (this.run.log.length > most) rows.push(made("li", `and ${grouped(this.run.log.length - most)} lines more, in sim.log`));
    at("log").append(...(rows.length > 0 ? rows : [made("li", "The host did nothing that was recorded.")]));
  }

  listen() {
    at("slider").addEventListener("input", () => this.goTo(Number(at("slider").value)));
    at("cycle").addEventListener("change", () => this.goToCycle(Number(at("cycle").value)));
    at("play").addEventListener("click", () => this.play(!this.playing));
    at("back").addEventListener("click", () => this.goTo(this.sample - 1));
    at("forth").addEventListener("click", () => this.goTo(this.sample + 1));
    for (const id of ["heat", "window", "color", "span"]) at(id).addEventListener("change", () => this.plan());
    at("in").addEventListener("click", () => this.grid.zoom(1.4));
    at("out").addEventListener("click", () => this.grid.zoom(1 / 1.4));
    at("fit").addEventListener("click", () => this.grid.fit());
    at("file").addEventListener("change", () => this.showSource(Number(at("file").value)));
    at("all-pes").addEventListener("change", () => this.plan());
    at("pe").addEventListener("change", () => {
      const pe = this.run.named(at("pe").value);
      at("pe").setAttribute("aria-invalid", String(pe < 0));
      if (pe >= 0) this.choose(pe);
      else at("summary").textContent = `There is no PE ${at("pe").value}: it must be ${this.run.name(0)} to ${this.run.name(this.run.tiles.length - 1)}.`;
    });
    at("timeline").addEventListener("click", (event) => {
      const [from, to] = this.span();
      const share = (event.offsetX - LABEL) / (at("timeline").clientWidth - LABEL - 4);
      if (share >= 0) this.goTo(Math.round(from + share * (to - from)));
    });
    at("activity").addEventListener("click", (event) => {
      this.goTo(Math.round(((event.offsetX - 8) / (at("activity").clientWidth - 16)) * this.run.lastSample));
    });
    document.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.plan()).observe(document.body);
    switchColours(at("theme"), () => {
      this.colours = coloursNow();
      this.plan();
    });
    window.addEventListener("hashchange", () => this.read());
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inField = event.target.closest("input, select, textarea") !== null;
    const inFabric = event.target === at("fabric");
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.run.width, ArrowDown: this.run.width };
    if (inField) return;
    if (event.key in steps && inFabric) this.move(event.key);
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") this.goTo(this.sample + steps[event.key] * (event.shiftKey ? 10 : 1));
    else if (event.key === "Home") this.goTo(0);
    else if (event.key === "End") this.goTo(this.run.lastSample);
    else if (event.key === "+" || event.key === "=") this.grid.zoom(1.4);
    else if (event.key === "-") this.grid.zoom(1 / 1.4);
    else if (event.key === "0") this.grid.fit();
    else if (event.key === " " && event.target.closest("button, summary") === null) this.play(!this.playing);
    else return;
    event.preventDefault();
  }

  move(key) {
    const port = { ArrowLeft: 1, ArrowRight: 2, ArrowUp: 3, ArrowDown: 4 }[key];
    const pe = this.run.beside(this.pe, port);
    if (pe < 0) return;
    this.grid.reveal(pe);
    this.choose(pe);
  }

  /** Of a run that failed, begin where it ended, at a PE that waits. */
  showEnd() {
    const { run } = this;
    this.sample = run.lastSample;
    const waits = (_, pe) => run.waitsAt(pe, run.lastSample).length > 0;
    this.pe = Math.max(0, Array.from(run.tiles).findIndex(waits));
  }

  // --- changes ---

  /** The PE and the cycle that the address names: #pe=1.0&cycle=120. */
  read() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const pe = this.run.named(asked.get("pe") ?? "");
    if (pe >= 0 && pe !== this.pe) this.choose(pe);
    if (asked.has("color")) at("color").value = asked.get("color");
    const cycle = Number(asked.get("cycle") ?? "x");
    if (Number.isFinite(cycle)) this.goToCycle(cycle);
  }

  choose(pe) {
    this.pe = pe;
    at("pe-title").textContent = `${this.run.name(pe)}: ${this.run.program(pe) ?? "no program"}`;
    at("timeline-title").textContent = `Work of ${this.run.name(pe)}`;
    at("memory-title").textContent = `Variables of ${this.run.name(pe)} at the end of the run`;
    at("pe").value = this.run.shortName(pe);
    showMemory(at("memory"), this.run, pe);
    this.plan();
  }

  goToCycle(cycle) {
    this.goTo(Math.floor(cycle / this.run.every));
  }

  goTo(sample) {
    this.sample = Math.min(this.run.lastSample, Math.max(0, sample));
    this.plan();
  }

  play(on) {
    this.playing = on && this.run.lastSample > 0;
    at("play").textContent = this.playing ? "Pause" : "Play";
    if (!this.playing) {
      this.plan();
      return;
    }
    if (this.sample >= this.run.lastSample) this.sample = 0;
    let before = performance.now();
    let part = 0;
    const frame = (now) => {
      if (!this.playing) return;
      const speed = at("speed").value === "all" ? this.run.lastSample / 10 : Number(at("speed").value);
      part += ((now - before) / 1000) * speed;
      before = now;
      const steps = Math.floor(part);
      part -= steps;
      if (steps > 0) this.goTo(this.sample + steps);
      if (this.sample >= this.run.lastSample) this.play(false);
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  // --- shown ---

  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      this.show();
    });
  }

  span() {
    const samples = Number(at("span").value);
    if (samples >= this.run.samples) return [0, this.run.lastSample];
    const from = Math.max(0, Math.min(this.run.lastSample - samples, this.sample - Math.floor(samples / 2)));
    return [from, from + samples];
  }

  show() {
    const { run, sample, pe, colours } = this;
    const cycle = run.cycle(sample);
    const view = {
      run, sample, pe, colours, heat: at("heat").value, color: Number(at("color").value),
      from: Math.max(0, sample - Number(at("window").value) + 1),
    };
    at("slider").value = String(sample);
    at("slider").setAttribute("aria-valuetext", `cycle ${grouped(cycle)}`);
    if (document.activeElement !== at("cycle")) at("cycle").value = String(cycle);
    const most = this.grid.draw(view);
    this.showLegend(view, most);
    drawActivity(at("activity"), run, view, this.shares);
    const [from, to] = this.span();
    drawTimeline(at("timeline"), run, view, from, to);
    at("timeline").setAttribute("aria-label", `Work of ${run.name(pe)} from cycle ${run.cycle(from)} to ${run.cycle(to)}; the list above tells the shown cycle`);
    showNow(at("now"), run, view);
    showChain(at("chain"), run, view, (other) => this.choose(other));
    showQueues(at("queues"), run, view);
    showRoutes(at("routes"), run, view);
    this.follow(view);
    this.summarise(view);
    if (!this.playing) history.replaceState(null, "", `#pe=${run.shortName(pe)}&cycle=${cycle}${view.color >= 0 ? `&color=${view.color}` : ""}`);
  }

  showLegend(view, most) {
    const told = {
      task: "Shade: share of these cycles with a task.",
      wavelets: `Shade: wavelets that left the router, ${grouped(most)} at most.`,
      waiting: "Shade: share of these cycles in which an operation waits at a queue.",
    }[view.heat];
    const routes = view.color < 0 ? "" : " Arrows: routes; a dot sends, a ring takes, red is sent and not taken, dashed is taken and not sent; a number is a switch position.";
    const which = view.color < 0 ? "any color" : `color ${view.color}`;
    at("legend").textContent = `${told} Bars between PEs: wavelets of ${which} on links.${routes}`;
  }

  /** Show the line that the PE is in. */
  follow({ pe, sample }) {
    const { run } = this;
    const line = run.line(pe, sample);
    const place = line >= 0 ? run.places[line] : null;
    if (place && run.files[place[0]].text !== null) at("file").value = String(place[0]);
    this.showSource(Number(at("file").value), place);
  }

  showSource(file, place = null) {
    if (this.run.files.length === 0) {
      this.source.box.replaceChildren(made("p", "The run has no source.", { class: "muted" }));
      return;
    }
    this.source.show(file, at("all-pes").checked ? -1 : this.pe);
    this.source.mark(place !== null && place[0] === file ? place[1] : 0);
  }

  summarise({ pe, sample }) {
    if (this.playing) return; // a screen reader could not follow
    const { run } = this;
    const { tasks, waits, wavelets } = run.counts(sample);
    const [wait] = run.waitsAt(pe, sample);
    const does = `${run.name(pe)} ${run.does(pe, sample)}${wait === undefined ? "" : `, and ${run.waitText(wait)}`}`;
    at("summary").textContent =
      `Cycle ${grouped(run.cycle(sample))}: of ${counted(run.tiles.length, "PE")} ${grouped(tasks)} with a task, ` +
      `${grouped(waits)} waiting at queues; ${counted(wavelets, "wavelet")} on links. ${does}.`;
    at("fabric").setAttribute("aria-label", `Fabric of ${run.width} x ${run.height} PEs, ${run.name(pe)} is chosen`);
    at("activity").setAttribute("aria-label", "Share of PEs with a task over the run");
  }
}

inflated(at("data").textContent).then((bytes) => {
  window.page = new Page(new Run(JSON.parse(at("about").textContent), bytes));
}).catch((error) => {
  at("note").hidden = false;
  at("note").textContent = `This page cannot be shown: ${error.message}`;
  throw error;
});
