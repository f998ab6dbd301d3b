// The page: looks at the server once a second while it is seen, and shows what changed.

import { cancel, changeToken, label } from "./changes.js";
import { switchColours } from "./colours.js";
import { Detail } from "./detail.js";
import { Gantt, LEGEND } from "./gantt.js";
import { forgetJobs, get, now } from "./server.js";
import { Table, counted, matches } from "./table.js";
import { bytes, make, setText } from "./words.js";

const EVERY_MS = 1000;
const MOST_WAIT_MS = 10000;
const NARROW = window.matchMedia("(max-width: 999px)");
const byId = (id) => document.getElementById(id);

const page = {
  view: null,
  failures: 0,
  timer: null,
  looking: false,
};
const gantt = new Gantt(byId("gantt-box"), select);
const table = new Table(byId("rows"), select);
const detail = new Detail(byId("detail"), {
  close: () => select(null),
  cancel: (job) => cancel(job).then(look),
  label: (job, typed) => label(job, typed).then((worked) => (look(), worked)),
  look,
});

const selected = () => (/^#wsjob-[a-z0-9]+$/.test(location.hash) ? location.hash.slice(1) : null);

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

/** Where a job covers the rest of the page, as page.css says, nothing of the rest can be reached by keys. */
function coverRest() {
  const covered = NARROW.matches && selected() !== null;
  for (const element of [document.querySelector("header"), byId("timeline"), byId("queue")]) {
    element.inert = covered;
  }
}

/** Show what the address says. */
function follow() {
  const name = selected();
  byId("main").classList.toggle("with-detail", name !== null);
  coverRest();
  if (name === null) {
    detail.close();
  } else if (detail.name !== name) {
    forgetJobs();
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

byId("legend").append(...LEGEND.map(([kind, text]) => make("li", {}, make("i", { class: `swatch ${kind}` }), text)));
switchColours(byId("theme"));
byId("token").addEventListener("click", () => changeToken(page.view?.viewer.may_change ?? false).then(look));
byId("window").addEventListener("change", (event) => {
  gantt.window = Number(event.target.value);
  gantt.redraw();
});
for (const id of ["search", "phase", "user"]) {
  byId(id).addEventListener("input", () => page.view && showJobs());
}
window.addEventListener("hashchange", follow);
window.addEventListener("popstate", follow);
NARROW.addEventListener("change", coverRest);
document.addEventListener("visibilitychange", () => (document.visibilityState === "visible" ? look() : clearTimeout(page.timer)));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("dialog").open && selected() !== null) {
    select(null);
  }
});
follow();
