// The page: looks at the server once a second while it is seen, and shows what changed.

import { Detail } from "./detail.js";
import { Gantt, LEGEND } from "./gantt.js";
import { Table, counted, matches } from "./table.js";
import { bytes, make, onEnter, setText } from "./words.js";

const EVERY_MS = 1000;
const MOST_WAIT_MS = 10000;
const THEMES = { "": "as the system", light: "light", dark: "dark" };
const byId = (id) => document.getElementById(id);

const page = {
  view: null,
  tags: new Map(), // address -> [ETag, what it was]
  offset: 0, // the server's clock, ahead of this one [s]
  token: stored("appliance-token"),
  failures: 0,
  timer: null,
  looking: false,
};
const gantt = new Gantt(byId("gantt-box"), select);
const table = new Table(byId("rows"), select);
const detail = new Detail(byId("detail"), { close: () => select(null), cancel, label, look });

function stored(key) {
  try {
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

const now = () => Date.now() / 1000 + page.offset;
const selected = () => (/^#wsjob-[a-z0-9]+$/.test(location.hash) ? location.hash.slice(1) : null);

/** Ask the server; what it has not changed is not sent again. */
async function get(path) {
  const known = page.tags.get(path);
  const headers = known ? { "If-None-Match": known[0] } : {};
  const response = await ask(path, { headers });
  if (response.status === 304) {
    return known[1];
  }
  const value = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(value.error), { status: response.status });
  }
  page.tags.set(path, [response.headers.get("ETag"), value]);
  return value;
}

async function ask(path, options) {
  const headers = { ...options.headers };
  if (page.token) {
    headers.Authorization = `Bearer ${page.token}`;
  }
  const response = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers }).catch(() => {
    throw new Error("The server of this page does not answer; what is shown may be old.");
  });
  const time = Number(response.headers.get("X-Appliance-Time"));
  if (time) {
    const offset = time - Date.now() / 1000;
    // Answers take their time; only a clock that is really another one counts.
    page.offset = Math.abs(offset - page.offset) > 0.5 ? offset : page.offset;
  }
  return response;
}

async function post(path, value) {
  const response = await ask(path, { method: "POST", body: JSON.stringify(value), headers: { "Content-Type": "application/json" } });
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(answer.hint ? `${answer.error} (${answer.hint})` : answer.error);
  }
  look();
  return answer;
}

/** Look at everything that is shown, now, and again in a second. */
async function look() {
  if (page.looking) {
    page.again = true;
    return;
  }
  clearTimeout(page.timer);
  page.looking = true;
  page.again = false;
  try {
    await lookOnce();
    page.failures = 0;
    say("");
  } catch (error) {
    page.failures += 1;
    if (error.status === 401) {
      say("The token is needed to look from elsewhere.");
      byId("token").hidden = false;
    } else {
      say(error.message);
    }
  } finally {
    page.looking = false;
  }
  if (document.visibilityState === "visible") {
    page.timer = setTimeout(look, page.again ? 0 : Math.min(EVERY_MS * 2 ** page.failures, page.failures ? MOST_WAIT_MS : EVERY_MS));
  }
}

async function lookOnce() {
  const view = await get("api/overview");
  if (view !== page.source) {
    page.source = view;
    page.view = { ...view, capacity: view.appliance.capacity, jobs: new Map(view.jobs.map((job) => [job.name, job])) };
    // Where nobody starts jobs, none is expected to start.
    const { supervisor, drained, backend } = view.appliance;
    page.view.expects = backend !== "local" || (supervisor !== null && !drained);
    if (!page.view.expects) {
      page.view.spans = view.spans.filter((span) => span.how !== "expected");
    }
  }
  showAll();
  const name = selected();
  if (name === null) {
    return;
  }
  let job;
  try {
    job = await get(`api/jobs/${name}`);
  } catch (error) {
    if (error.status !== 404) {
      throw error;
    }
    if (selected() === name) {
      say(error.message);
      select(null);
    }
    return;
  }
  if (detail.name !== name || selected() !== name) {
    return;
  }
  detail.show(job, now());
  if (job.may_read) {
    const stream = detail.stream;
    const [curve, log] = await Promise.all([get(`api/jobs/${name}/curve`), get(`api/jobs/${name}/log?stream=${stream}`)]);
    if (detail.name === name && detail.stream === stream) {
      detail.showCurve(curve);
      detail.showLog(log);
    }
  }
}

function showAll() {
  const { view } = page;
  if (view === null) {
    return;
  }
  showAppliance(view.appliance);
  setText(byId("viewer"), view.viewer.user ? `as ${view.viewer.user}${view.viewer.may_change ? ", with token" : ""}` : "");
  byId("token").hidden = !view.viewer.has_tokens;
  setText(byId("token"), view.viewer.may_change ? "Forget token" : "Enter token");
  showUsers();
  showJobs();
  gantt.show(view, now(), selected());
  detail.tick(now(), view.expects);
}

function showAppliance({ supervisor, drained, capacity, used, backend }) {
  const state = byId("state");
  const [word, kind] = supervisor === null ? ["no supervisor runs", "failed"] : drained ? ["drained", "queued"] : ["runs", "succeeded"];
  state.className = `pill ${backend === "local" ? kind : "queued"}`;
  setText(state, backend === "local" ? word : backend);
  state.title = supervisor ?? "cstool appliance start starts it; what runs goes on";
  const meters = byId("meters");
  if (capacity === null) {
    meters.replaceChildren();
    return;
  }
  const rows = [
    ["cores", used.cpus.length, capacity.cpus.length, String],
    ["memory", used.memory_bytes, capacity.memory_bytes, bytes],
    ["disk", used.disk_bytes, capacity.disk_bytes, bytes],
    ["systems", used.systems, capacity.systems, String],
  ];
  const key = JSON.stringify(rows);
  if (meters.dataset.key === key) {
    return;
  }
  meters.dataset.key = key;
  meters.replaceChildren(
    ...rows.map(([name, part, all, text]) =>
      make("div", {},
        make("dt", { text: name }),
        make("dd", {}, make("span", { text: `${text(part)} of ${text(all)}` }),
          make("progress", { max: Math.max(all, 1), value: Math.min(part, all), "aria-label": `${name} in use` })))),
  );
}

function showUsers() {
  const choice = byId("user");
  const users = [...new Set(page.view.viewer ? [...page.view.jobs.values()].map((job) => job.user) : [])].sort();
  const key = users.join("\n");
  if (choice.dataset.key !== key) {
    choice.dataset.key = key;
    const chosen = choice.value;
    choice.replaceChildren(make("option", { value: "", text: "all users" }), ...users.map((user) => make("option", { value: user, text: user })));
    choice.value = users.includes(chosen) ? chosen : "";
  }
}

function showJobs() {
  const { view } = page;
  const filter = {
    words: byId("search").value.toLowerCase().split(/\s+/).filter(Boolean),
    phase: byId("phase").value,
    user: byId("user").value,
  };
  const all = [...view.jobs.values()];
  const shown = all.filter((job) => matches(job, filter));
  const total = Object.values(view.appliance.phases).reduce((sum, count) => sum + count, 0);
  table.show(shown, now(), selected(), view.expects);
  setText(byId("count"), counted(shown.length, all.length, total - all.length));
  byId("empty").hidden = shown.length > 0;
  byId("rows").parentElement.hidden = shown.length === 0;
  setText(byId("empty"), all.length ? "No job is like that." : "No job yet: cstool job submit hands one in.");
}

/** Show a job, or none; the address of the page says which. */
function select(name) {
  if (name === selected()) {
    return follow();
  }
  const before = selected();
  history[before === null || name === null ? "pushState" : "replaceState"](null, "", name === null ? location.pathname : `#${name}`);
  follow();
  if (name === null && before !== null) {
    table.focus(before);
  }
  return undefined;
}

/** Show what the address says. */
function follow() {
  const name = selected();
  byId("main").classList.toggle("with-detail", name !== null);
  if (name === null) {
    detail.close();
  } else if (detail.name !== name) {
    detail.open(name);
  }
  showAll();
  look();
}

function say(text) {
  const alert = byId("alert");
  setText(alert, text);
  alert.hidden = text === "";
}

/** Ask something in a dialog: its title, what it has, and its buttons as [text, class, value]. */
function dialog(title, content, buttons) {
  const element = byId("dialog");
  return new Promise((resolve) => {
    const done = (value) => {
      element.onclose = null;
      element.close();
      resolve(value);
    };
    element.onclose = () => resolve(null);
    element.replaceChildren(
      make("h2", { id: "dialog-title", text: title }),
      content,
      make("div", { class: "buttons" },
        ...buttons.map(([text, kind, value]) => make("button", { type: "button", class: kind, text, onclick: () => done(value()) }))),
    );
    element.showModal();
  });
}

async function cancel(job) {
  const said = make("p", { text: `${job.name} (${job.model}) of ${job.user}. A running job finishes its step and saves, unless it ends at once.` });
  const how = await dialog("Cancel this job?", said, [
    ["Keep it", "", () => null],
    ["Cancel", "danger", () => ({ at_once: false })],
    ["Cancel at once", "danger", () => ({ at_once: true })],
  ]);
  if (how !== null) {
    await tried(() => post(`api/jobs/${job.name}/cancel`, how));
  }
}

async function label(job, typed) {
  const words = typed.trim().split(/\s+/).filter(Boolean);
  const changes = {};
  for (const word of words) {
    const at = word.indexOf("=");
    if (at < 0 && !word.endsWith("-")) {
      say(`${word}: must be key=value, or key- to remove it`);
      return false;
    }
    changes[at < 0 ? word.slice(0, -1) : word.slice(0, at)] = at < 0 ? null : word.slice(at + 1);
  }
  return words.length > 0 && tried(() => post(`api/jobs/${job.name}/labels`, { labels: changes }));
}

/** Do something, and say what went wrong; return whether it worked. */
async function tried(work) {
  try {
    await work();
    return true;
  } catch (error) {
    await dialog("That did not work", make("p", { text: error.message }), [["Close", "", () => null]]);
    return false;
  }
}

async function changeToken() {
  if (page.view?.viewer.may_change) {
    keepToken("");
    return;
  }
  const input = make("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const asked = dialog("Enter the token", make("div", {}, make("p", { text: "It is in the file that the page is served with. This tab keeps it until it is closed." }), input), [
    ["Cancel", "", () => null],
    ["Use it", "main", () => input.value.trim()],
  ]);
  onEnter(input, () => byId("dialog").querySelector("button.main").click());
  const token = await asked;
  if (!token) {
    return;
  }
  keepToken(token);
  await tried(async () => {
    const response = await ask("api/overview", {});
    const answer = await response.json();
    if (!response.ok || !answer.viewer.may_change) {
      keepToken("");
      throw new Error("This is not the token.");
    }
  });
}

function keepToken(token) {
  page.token = token;
  page.tags.clear();
  try {
    sessionStorage.setItem("appliance-token", token);
  } catch {
    // this page keeps it
  }
  look();
}

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "";
  const button = byId("theme");
  setText(button, `Colours: ${THEMES[theme]}`);
}

function nextTheme() {
  const root = document.documentElement;
  const names = Object.keys(THEMES);
  const theme = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
  if (theme === "") {
    delete root.dataset.theme;
  } else {
    root.dataset.theme = theme;
  }
  try {
    localStorage.setItem("appliance-theme", theme);
  } catch {
    // until the page is loaded again
  }
  showTheme();
}

byId("legend").append(...LEGEND.map(([kind, text]) => make("li", {}, make("i", { class: `swatch ${kind}` }), text)));
byId("theme").addEventListener("click", nextTheme);
byId("token").addEventListener("click", changeToken);
byId("window").addEventListener("change", (event) => {
  gantt.window = Number(event.target.value);
  gantt.redraw();
});
for (const id of ["search", "phase", "user"]) {
  byId(id).addEventListener("input", () => page.view && showJobs());
}
window.addEventListener("hashchange", follow);
window.addEventListener("popstate", follow);
document.addEventListener("visibilitychange", () => (document.visibilityState === "visible" ? look() : clearTimeout(page.timer)));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("dialog").open && selected() !== null) {
    select(null);
  }
});
showTheme();
follow();
