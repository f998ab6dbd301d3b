// What was said, as elements. Text of a model is set as text, never as HTML.

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") {
      element.textContent = value;
    } else if (key.startsWith("on")) {
      element.addEventListener(key.slice(2), value);
    } else {
      element.setAttribute(key, value);
    }
  }
  element.append(...children);
  return element;
}

/** Set the text of an element where it differs, so that selected text stays selected. */
function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** Cut a text into prose and blocks of code between fences: [{isCode, name, text}] */
export function parts(text) {
  const found = [];
  let now = { isCode: false, name: "", lines: [], fence: 0 };
  const end = () => {
    if (now.isCode || now.lines.some((line) => line.trim() !== "")) {
      const whole = now.lines.join("\n");
      found.push({ isCode: now.isCode, name: now.name, text: now.isCode ? whole : whole.replace(/^\n+|\n+$/g, "") });
    }
  };
  for (const line of text.split("\n")) {
    const [, fence, rest] = line.match(/^ {0,3}(`{3,})(.*)$/) ?? [];
    if (fence !== undefined && !now.isCode && !rest.includes("`")) {
      end();
      now = { isCode: true, name: rest.trim(), lines: [], fence: fence.length };
    } else if (fence !== undefined && now.isCode && fence.length >= now.fence && rest.trim() === "") {
      end();
      now = { isCode: false, name: "", lines: [], fence: 0 };
    } else {
      now.lines.push(line);
    }
  }
  end();
  return found;
}

/** A button that copies a text, and says so. */
function copier(what, text) {
  const button = make("button", { type: "button", class: "small", "aria-label": `Copy ${what}`, text: "Copy" });
  button.addEventListener("click", async () => {
    button.textContent = (await copy(text())) ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page without TLS from another host has no clipboard, but may copy what is selected.
    const area = make("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/**
 * A turn on the page.
 *
 * turn: {role: "user" or "assistant", text, isRaw: whether it is no chat, note: how it went, fault: what went wrong}
 * act: called with the turn to edit it (of the user), or to have it answered again
 */
export class Shown {
  constructor(turn, act) {
    const isUser = turn.role === "user";
    this.turn = turn;
    this.body = make("div", { class: "body" });
    this.note = make("span", { class: "note muted small" });
    this.fault = make("p", { class: "fault", role: "alert", hidden: "" });
    const again = make("button", { type: "button", class: "small act", text: isUser ? "Edit" : "Again" });
    again.setAttribute("aria-label", isUser ? "Edit this message and send it again" : "Have it answered again");
    again.addEventListener("click", () => act(turn));
    this.copier = copier(isUser ? "this message" : "this answer", () => turn.text);
    const foot = make("div", { class: "foot" }, this.copier, again, this.note);
    const who = make("span", { class: "unseen", text: isUser ? "You:" : "The model:" });
    this.element = make("li", { class: `turn ${isUser ? "user" : "answer"}` }, who, this.body, this.fault, foot);
    this.update();
  }

  /** Show the turn as it is now. */
  update(isBusy = false) {
    const { turn, body } = this;
    this.element.classList.toggle("busy", isBusy);
    this.element.setAttribute("aria-busy", String(isBusy));
    const wanted = turn.isRaw ? [{ isCode: false, name: "", text: turn.text }] : parts(turn.text);
    wanted.forEach((part, at) => {
      let element = body.children[at];
      if (element === undefined || element.piece.isCode !== part.isCode || element.piece.name !== part.name) {
        const made = part.isCode ? code(part) : make("div", { class: turn.isRaw ? "raw" : "prose" });
        made.shown ??= made;
        element === undefined ? body.append(made) : element.replaceWith(made);
        element = made;
      }
      element.piece = part;
      setText(element.shown, part.text);
    });
    while (body.children.length > wanted.length) {
      body.lastChild.remove();
    }
    body.hidden = turn.text === "" && !isBusy;
    this.copier.hidden = turn.text === "";
    setText(this.note, turn.note ?? "");
    setText(this.fault, turn.fault ?? "");
    this.fault.hidden = !turn.fault;
  }
}

function code(part) {
  const element = make("div", { class: "code" });
  const shown = make("code");
  const head = make("div", { class: "code-head" }, make("span", { class: "muted small", text: part.name || "code" }));
  head.append(copier("this code", () => element.piece.text));
  element.append(head, make("pre", { tabindex: "0" }, shown));
  element.shown = shown;
  return element;
}
