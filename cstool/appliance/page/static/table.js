// The table of jobs: one row each, kept where it is while nothing about it changes.

import { clock, duration, make, plural, setText, shortDuration } from "./words.js";

const COLUMNS = ["position", "name", "phase", "priority", "systems", "user", "labels", "age", "time"];

export class Table {
  constructor(body, open) {
    this.body = body;
    this.open = open;
    this.rows = new Map();
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row !== null && !event.target.closest("a") && String(window.getSelection()) === "") {
        this.open(row.dataset.job);
      }
    });
    body.addEventListener("keydown", (event) => this.move(event));
  }

  /** Show these jobs, in this order; `expects`: whether what waits is expected to start. */
  show(jobs, now, selected, expects) {
    this.expects = expects;
    const seen = new Set();
    let before = null;
    for (const job of jobs) {
      seen.add(job.name);
      let row = this.rows.get(job.name);
      if (row === undefined) {
        row = this.made(job);
        this.rows.set(job.name, row);
      }
      this.fill(row, job, now);
      row.classList.toggle("chosen", job.name === selected);
      const follows = before === null ? this.body.firstElementChild : before.nextElementSibling;
      if (follows !== row) {
        this.body.insertBefore(row, follows);
      }
      before = row;
    }
    for (const [name, row] of this.rows) {
      if (!seen.has(name)) {
        row.remove();
        this.rows.delete(name);
      }
    }
  }

  focus(name) {
    this.rows.get(name)?.querySelector("a").focus();
  }

  made(job) {
    const cells = COLUMNS.map((name) => make("td", { role: "cell", class: name }));
    const row = make("tr", { role: "row", "data-job": job.name }, ...cells);
    row.cells_ = Object.fromEntries(COLUMNS.map((name, at) => [name, cells[at]]));
    row.cells_.name.append(make("a", { href: `#${job.name}`, text: job.name }), make("span", { class: "model muted" }));
    row.cells_.phase.append(make("span", { class: "pill" }), make("span", { class: "reason muted" }));
    row.cells_.time.append(make("span", { class: "long" }), make("span", { class: "until muted" }));
    return row;
  }

  fill(row, job, now) {
    const cells = row.cells_;
    this.tick(row, job, now);
    const text = JSON.stringify(job);
    if (row.shown === text) {
      return;
    }
    row.shown = text;
    setText(cells.position, job.position === null ? "" : String(job.position));
    const model = job.note ? `${job.model}, ${job.note}` : job.model;
    setText(cells.name.lastChild, model);
    cells.name.lastChild.title = model;
    const [pill, reason] = cells.phase.children;
    pill.className = `pill ${job.phase.toLowerCase()}`;
    setText(pill, job.phase);
    setText(reason, job.reason);
    reason.title = job.reason;
    setText(cells.priority, job.priority);
    setText(cells.systems, String(job.systems));
    cells.systems.dataset.unit = job.systems === 1 ? "system" : "systems";
    setText(cells.user, job.user);
    cells.user.title = job.user;
    cells.labels.replaceChildren(
      ...Object.entries(job.labels).map(([key, value]) => make("span", { class: "chip", title: `${key}=${value}`, text: value === "" ? key : `${key}=${value}` })),
    );
  }

  /** What changes with the time alone. */
  tick(row, job, now) {
    const { age, time } = row.cells_;
    setText(age, shortDuration(now - job.submitted_at));
    const [long, until] = time.children;
    if (job.started_at !== null && job.phase !== "QUEUED") {
      setText(long, duration((job.ended_at ?? now) - job.started_at));
    } else {
      setText(long, "");
    }
    if (job.phase === "QUEUED" && job.expected_start !== null && this.expects) {
      setText(until, job.expected_start > now ? `starts ${clock(job.expected_start, now)}` : "starts soon");
    } else if (job.phase === "RUNNING" && job.expected_end !== null) {
      setText(until, job.expected_end > now ? `ends ${clock(job.expected_end, now)}` : "ends soon");
    } else {
      setText(until, job.ended_at === null ? "" : `ended ${clock(job.ended_at, now)}`);
    }
  }

  move(event) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const to = step && event.target.closest("tr")?.[step];
    if (to) {
      event.preventDefault();
      to.querySelector("a").focus();
    }
  }
}

/** Whether a job is one of those that were asked for. */
export function matches(job, { words, phase, user }) {
  if (phase === "active" ? job.ended_at !== null : phase && job.phase !== phase) {
    return false;
  }
  if (user && job.user !== user) {
    return false;
  }
  const labels = Object.entries(job.labels).map(([key, value]) => `${key}=${value}`);
  const text = [job.name, job.model, job.note, job.priority, ...labels].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

export function counted(shown, all, unlisted) {
  const more = unlisted > 0 ? `, and ${plural(unlisted, "older one")} not listed` : "";
  return shown === all ? `${all}${more}` : `${shown} of ${all}${more}`;
}
