// All about one job: how far it is, its loss, its log, its phases, what it needs, what happened to it.

import { Curve } from "./curve.js";
import { bytes, clock, duration, make, onEnter, plural, setText } from "./words.js";

const STREAMS = { out: "Log", err: "Errors" };

export class Detail {
  /**
   * Show jobs in an element.
   * `actions`: close(), cancel(job), label(job, typed), look() for more at once.
   */
  constructor(element, actions) {
    this.element = element;
    this.actions = actions;
    this.name = null;
    this.job = null;
  }

  /** Begin with a job, before anything is known of it. */
  open(name) {
    this.name = name;
    this.stream = "out";
    this.job = null;
    this.curve = new Curve();
    const section = (title, ...children) => make("section", {}, make("h3", { text: title }), ...children);
    const tab = (stream) =>
      make("button", {
        type: "button", role: "tab", id: `tab-${stream}`, "aria-controls": "log", text: STREAMS[stream],
        onclick: () => this.choose(stream),
        onkeydown: (event) => this.turn(event),
      });
    this.parts = {
      title: make("h2", { id: "detail-title", tabindex: "-1", text: name }),
      phase: make("span", { class: "pill" }),
      about: make("p", { class: "muted small" }),
      reason: make("p", { class: "reason" }),
      labels: make("p", { class: "chips" }),
      changes: make("div", { class: "changes" }),
      bar: make("progress", { "aria-label": "Steps that are done" }),
      progress: make("p", { class: "small" }),
      tabs: make("div", { role: "tablist", "aria-label": "Streams", class: "tabs" }, tab("out"), tab("err")),
      log: make("pre", { id: "log", role: "tabpanel", tabindex: "0", "aria-labelledby": "tab-out" }),
      phases: make("ol", { class: "stays" }),
      needs: make("tbody"),
      events: make("ol", { class: "events" }),
      files: make("div"),
      hidden: make("p", { class: "empty", hidden: true, text: "Its loss and its log are for its owner, and for whoever may read the files." }),
    };
    const p = this.parts;
    p.files.append(
      section("Loss", p.bar, p.progress, this.curve.element),
      make("section", {}, p.tabs, p.log),
    );
    const close = make("button", { type: "button", class: "close", "aria-label": "Close", title: "Close (Esc)", text: "×", onclick: () => this.actions.close() });
    const table = make("table", { class: "needs" },
      make("thead", {}, make("tr", {}, ...["of", "needs", "from"].map((text) => make("th", { scope: "col", text })))), p.needs);
    this.element.replaceChildren(
      make("div", { class: "panel-head" }, p.title, close),
      make("div", { class: "line" }, p.phase, p.changes), p.about, p.reason, p.labels,
      p.files, p.hidden,
      section("Phases", p.phases), section("Needs", table), section("Events", p.events),
    );
    p.files.hidden = true;
    this.select();
    this.element.hidden = false;
    this.element.scrollTop = 0;
    p.title.focus({ preventScroll: true });
  }

  close() {
    this.name = null;
    this.job = null;
    this.element.hidden = true;
    this.element.replaceChildren();
  }

  /** Show what the server says of the job. */
  show(job, now) {
    const p = this.parts;
    this.job = job;
    p.phase.className = `pill ${job.phase.toLowerCase()}`;
    setText(p.phase, job.asked && !job.ended_at ? `${job.phase}, ${job.asked.replace("_", " ")} asked` : job.phase);
    this.tick(now);
    setText(p.reason, job.reason);
    p.reason.hidden = job.reason === "";
    this.showLabels(job);
    p.phases.replaceChildren(...job.stays.map((stay) => this.stay(stay, now)));
    p.needs.replaceChildren(...this.needs(job.needs));
    p.events.replaceChildren(
      ...job.events.toReversed().map((event) =>
        make("li", {}, make("time", { text: clock(event.at, now) }), make("b", { text: event.kind.replaceAll("_", " ") }), make("span", { text: event.text }))),
    );
    p.files.hidden = !job.may_read;
    p.hidden.hidden = job.may_read;
  }

  /** Times that go on without the server; `expects`: whether what waits is expected to start. */
  tick(now, expects = this.expects) {
    this.expects = expects;
    const { job, parts: p } = this;
    if (job === null) {
      return;
    }
    const words = [`${job.model}, ${job.mode}`, `${job.user}`, job.priority];
    if (job.note) {
      words.push(`“${job.note}”`);
    }
    if (job.position !== null) {
      words.push(`position ${job.position}`);
    }
    if (expects && job.expected_start !== null && job.phase === "QUEUED") {
      words.push(`expected to start ${job.expected_start > now ? `in ${duration(job.expected_start - now)}` : "soon"}`);
    }
    if (job.phase === "RUNNING" && job.expected_end !== null) {
      words.push(`expected to end ${job.expected_end > now ? `in ${duration(job.expected_end - now)}` : "soon"}`);
    }
    if (job.restarts) {
      words.push(plural(job.restarts, "restart"));
    }
    if (job.backend !== "local") {
      words.push(`${job.backend} ${job.backend_id}`);
    }
    setText(p.about, words.join(" · "));
    const last = p.phases.lastElementChild?.querySelector(".long");
    const open = job.stays[job.stays.length - 1];
    if (last && open && job.ended_at === null) {
      setText(last, duration(now - open.begin));
    }
  }

  showLabels(job) {
    const p = this.parts;
    const chips = Object.entries(job.labels).map(([key, value]) => make("span", { class: "chip", text: `${key}=${value}` }));
    p.labels.replaceChildren(...chips);
    p.labels.hidden = chips.length === 0;
    const key = `${job.may_change} ${job.ended_at === null}`;
    if (p.changes.dataset.key === key) {
      return;
    }
    p.changes.dataset.key = key;
    p.changes.replaceChildren();
    if (job.may_change) {
      const typed = make("input", { type: "text", "aria-label": "Label to set, key=value, or to remove, key-", placeholder: "key=value or key-" });
      const set = async () => (await this.actions.label(job, typed.value)) && (typed.value = "");
      onEnter(typed, set);
      p.changes.append(typed, make("button", { type: "button", text: "Label", onclick: set }));
      if (job.ended_at === null) {
        p.changes.append(make("button", { type: "button", class: "danger", text: "Cancel…", onclick: () => this.actions.cancel(this.job) }));
      }
    }
  }

  stay(stay, now) {
    const ended = stay.end === null && this.job.ended_at !== null;
    const cores = stay.cpus.length ? `core ${stay.cpus.join(", ")}` : "";
    return make("li", {},
      make("time", { text: clock(stay.begin, now) }),
      make("span", { class: `pill ${stay.phase.toLowerCase()}`, text: stay.phase }),
      make("span", { class: "long", text: ended ? "" : duration((stay.end ?? now) - stay.begin) }),
      make("span", { class: "muted", text: cores }));
  }

  needs(needs) {
    const rows = [
      ["cores", "cores", String(needs.cores)],
      ["memory", "memory_bytes", bytes(needs.memory_bytes) + (needs.peak_bytes ? `, took ${bytes(needs.peak_bytes)}` : "")],
      ["disk", "disk_bytes", bytes(needs.disk_bytes)],
      ["CS-X systems", "systems", String(needs.systems)],
      ["time", "seconds", needs.seconds === null ? "not known" : duration(needs.seconds)],
      ["time limit", "limit_s", needs.limit_s === null ? "none" : duration(needs.limit_s)],
    ];
    return rows.map(([name, field, value]) =>
      make("tr", {}, make("th", { scope: "row", text: name }), make("td", { text: value }),
        make("td", { class: "muted", text: needs.sources[field] ?? "" })));
  }

  showCurve(data) {
    const p = this.parts;
    this.curve.show(data);
    const { progress } = data;
    const all = this.job?.max_steps ?? null;
    p.bar.hidden = progress === null || all === null;
    p.progress.hidden = progress === null;
    if (progress === null) {
      return;
    }
    if (all !== null) {
      p.bar.max = Math.max(all, 1);
      p.bar.value = Math.min(progress.step, all);
    }
    const words = [`step ${progress.step.toLocaleString("en")}${all === null ? "" : ` of ${all.toLocaleString("en")}`}`];
    if (progress.rate !== null) {
      words.push(`${progress.rate.toPrecision(3)} samples/s`);
    }
    if (progress.left_s !== null && this.job?.phase === "RUNNING") {
      words.push(`${duration(progress.left_s)} to go`);
    }
    setText(p.progress, words.join(" · "));
  }

  showLog(data) {
    const { log } = this.parts;
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    const text = data.text || (this.stream === "out" ? "The log is empty so far." : "No errors so far.");
    if (log.textContent !== text) {
      log.textContent = text;
      if (atEnd) {
        log.scrollTop = log.scrollHeight;
      }
    }
  }

  choose(stream) {
    this.stream = stream;
    this.select();
    this.parts.log.textContent = "";
    this.actions.look();
  }

  select() {
    for (const tab of this.parts.tabs.children) {
      const chosen = tab.id === `tab-${this.stream}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.setAttribute("tabindex", chosen ? "0" : "-1");
    }
    this.parts.log.setAttribute("aria-labelledby", `tab-${this.stream}`);
  }

  turn(event) {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      this.choose(this.stream === "out" ? "err" : "out");
      this.parts.tabs.querySelector("[aria-selected=true]").focus();
    }
  }
}
