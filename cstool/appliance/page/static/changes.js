// What may be changed with a token, and the dialogs that ask about it.

import { ask, keepToken, post } from "./server.js";
import { make, onEnter } from "./words.js";

/** Ask something in a dialog: its title, what it has, and its buttons as [text, class, value]. */
function dialog(title, content, buttons) {
  const element = document.getElementById("dialog");
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

/** Cancel a job, if that is what is meant. */
export async function cancel(job) {
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

/** Set labels that were typed as key=value, or remove those typed as key-; return whether it worked. */
export async function label(job, typed) {
  const words = typed.trim().split(/\s+/).filter(Boolean);
  return words.length > 0 && tried(() => post(`api/jobs/${job.name}/labels`, { labels: labelsOf(words) }));
}

function labelsOf(words) {
  const changes = {};
  for (const word of words) {
    const at = word.indexOf("=");
    if (at < 0 && !word.endsWith("-")) {
      throw new Error(`${word}: must be key=value, or key- to remove it`);
    }
    changes[at < 0 ? word.slice(0, -1) : word.slice(0, at)] = at < 0 ? null : word.slice(at + 1);
  }
  return changes;
}

/** Ask for the token, or forget the one that is there. */
export async function changeToken(forgets) {
  if (forgets) {
    keepToken("");
    return;
  }
  const input = make("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const asked = dialog("Enter the token", make("div", {}, make("p", { text: "It is in the file that the page is served with. This tab keeps it until it is closed." }), input), [
    ["Cancel", "", () => null],
    ["Use it", "main", () => input.value.trim()],
  ]);
  onEnter(input, () => document.getElementById("dialog").querySelector("button.main").click());
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
