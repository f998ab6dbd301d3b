// The page: settings, the conversation, and the way of a message to the server and of its answer back.

import { Refusal, events, keep, kept, models, useKey } from "./server.js";
import { Shown, make } from "./turns.js";

const by = (id) => document.getElementById(id);
const FIELDS = ["model", "mode", "system", "temperature", "max_tokens", "seed"];
const NUMBERS = ["temperature", "max_tokens", "seed"];
const NO_TEMPLATE = /\b(no|without a|provide a|not have a) chat[ _]template\b/i;

const state = { shown: [], stop: null, edited: null, known: [] };

// What this tab keeps

function remember() {
  keep("cstool-settings", JSON.stringify(Object.fromEntries(FIELDS.map((name) => [name, by(name).value]))));
  keep("cstool-turns", JSON.stringify(state.shown.map(({ turn }) => turn)));
}

function remembered(name, otherwise) {
  try {
    return JSON.parse(kept(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Settings

function showMode() {
  const isChat = by("mode").value === "chat";
  by("system-label").hidden = !isChat;
  by("text").placeholder = isChat ? "Message" : "Text to go on from";
  by("empty").textContent = isChat ? "Say something to the model." : "Begin a text: the model goes on from it.";
}

function showFacts() {
  const length = state.known.find(({ id }) => id === by("model").value)?.max_model_len;
  by("facts").textContent = length ? `A prompt and its answer have at most ${length.toLocaleString("en")} tokens.` : "";
}

function tell(message) {
  by("alert").textContent = message;
  by("alert").hidden = !message;
}

function demandKey(isDemanded) {
  by("keys").hidden = !isDemanded;
  if (isDemanded) {
    by("key").focus();
  }
}

async function loadModels() {
  try {
    state.known = await models();
  } catch (error) {
    tell(error.message);
    demandKey(error.status === 401);
    return;
  }
  tell("");
  demandKey(false);
  const wanted = by("model").value || remembered("cstool-settings", {}).model;
  by("model").replaceChildren(...state.known.map(({ id }) => make("option", { value: id, text: id })));
  if (state.known.some(({ id }) => id === wanted)) {
    by("model").value = wanted;
  }
  showFacts();
}

// The conversation

function add(turn) {
  const shown = new Shown(turn, act);
  state.shown.push(shown);
  by("turns").append(shown.element);
  by("empty").hidden = true;
  return shown;
}

/** Drop a turn and those behind it. */
function cutBefore(turn) {
  const at = state.shown.findIndex((shown) => shown.turn === turn);
  for (const shown of state.shown.splice(at)) {
    shown.element.remove();
  }
  by("empty").hidden = state.shown.length > 0;
}

function act(turn) {
  if (state.stop !== null) {
    return;
  }
  if (turn.role === "user") {
    edit(turn);
  } else {
    cutBefore(turn);
    answer();
  }
}

function edit(turn) {
  for (const shown of state.shown) {
    shown.element.classList.toggle("edited", shown.turn === turn);
  }
  state.edited = turn;
  by("editing").hidden = turn === null;
  by("text").value = turn?.text ?? "";
  by("text").focus();
}

function send() {
  const text = by("text").value;
  const goesOn = by("mode").value === "continue" && state.shown.length > 0;
  if (state.stop !== null || (text.trim() === "" && !goesOn)) {
    return;
  }
  if (state.edited !== null) {
    const { edited } = state;
    edit(null);
    cutBefore(edited);
  }
  by("text").value = "";
  if (text !== "") {
    add({ role: "user", text, isRaw: by("mode").value === "continue" });
  }
  answer();
}

/** The request for the next turn: its path, and its document. */
function request() {
  const asked = { model: by("model").value };
  for (const name of NUMBERS) {
    const text = by(name).value.trim();
    if (text !== "") {
      // What is no number goes as it is: the server says what is wrong with it.
      asked[name] = Number.isNaN(Number(text)) ? text : Number(text);
    }
  }
  const turns = state.shown.map(({ turn }) => turn);
  if (by("mode").value === "continue") {
    return ["v1/completions", { ...asked, prompt: turns.map(({ text }) => text).join("") }];
  }
  const messages = turns.filter(({ text }) => text !== "").map(({ role, text }) => ({ role, content: text }));
  if (by("system").value.trim() !== "") {
    messages.unshift({ role: "system", content: by("system").value });
  }
  return ["v1/chat/completions", { ...asked, messages }];
}

async function answer() {
  const [path, asked] = request();
  const shown = add({ role: "assistant", text: "", isRaw: path === "v1/completions" });
  const { turn } = shown;
  const counts = new Counts();
  const control = new AbortController();
  const frames = new Frames(() => {
    turn.note = counts.text();
    shown.update(state.stop === control);
    follow();
  });
  let knowsNoChats = false;
  tell("");
  remember();
  begin(control);
  frames.ask();
  try {
    for await (const event of events(path, asked, control.signal)) {
      turn.text += counts.take(event);
      frames.ask();
    }
    by("said").textContent = turn.text;
  } catch (error) {
    if (error.name === "AbortError") {
      counts.ending = "stopped";
    } else {
      turn.fault = error instanceof Refusal ? error.message : String(error);
      knowsNoChats = error.status === 400 && !turn.isRaw && NO_TEMPLATE.test(error.message);
      if (error.status === 401) {
        demandKey(true);
      }
    }
  }
  end();
  frames.now();
  if (knowsNoChats) {
    goOnPlainly(turn);
    return;
  }
  by("state").textContent = turn.fault ? "" : `The answer has ended: ${turn.note}.`;
  remember();
}

/** A model that knows no chats is asked for plain text from now on. */
function goOnPlainly(turn) {
  cutBefore(turn);
  by("mode").value = "continue";
  showMode();
  answer();
  tell(`${turn.fault}. So it goes on from your text as it is.`);
}

function begin(control) {
  state.stop = control;
  by("turns").classList.add("locked");
  by("send").hidden = true;
  by("stop").hidden = false;
  by("state").textContent = "The model answers.";
  by("said").textContent = "";
}

function end() {
  state.stop = null;
  by("turns").classList.remove("locked");
  const hadFocus = document.activeElement === by("stop");
  by("stop").hidden = true;
  by("send").hidden = false;
  if (hadFocus) {
    by("text").focus();
  }
}

let isAtEnd = true;

/** Stay at the end of the conversation, unless somebody scrolled away from it. */
function follow() {
  if (isAtEnd) {
    by("scroll").scrollTop = by("scroll").scrollHeight;
  }
}

/** Draws at most once for each picture of the screen. */
class Frames {
  constructor(draw) {
    this.draw = draw;
    this.asked = 0;
  }

  ask() {
    this.asked ||= requestAnimationFrame(() => this.now());
  }

  now() {
    cancelAnimationFrame(this.asked);
    this.asked = 0;
    this.draw();
  }
}

/** Tokens of an answer, and their times. */
class Counts {
  constructor() {
    this.began = performance.now();
    this.pieces = 0;
    this.tokens = null;
    this.ending = "";
  }

  /** Take an event; return the text in it. */
  take(event) {
    const [choice] = event.choices ?? [];
    const text = choice?.delta?.content ?? choice?.text ?? "";
    if (text !== "") {
      this.last = performance.now();
      this.first ??= this.last;
      this.pieces += 1;
    }
    this.tokens = event.usage?.completion_tokens ?? this.tokens;
    if (choice?.finish_reason === "length") {
      this.ending = "ended by the number of tokens";
    }
    return text;
  }

  text() {
    // Before the server tells the number of tokens, a piece of text counts as one.
    const tokens = this.tokens ?? this.pieces;
    const about = this.tokens === null ? "about " : "";
    const found = [`${about}${tokens.toLocaleString("en")} ${tokens === 1 ? "token" : "tokens"}`];
    if (this.first !== undefined) {
      found.push(`first after ${((this.first - this.began) / 1000).toFixed(2)} s`);
      const rate = ((tokens - 1) * 1000) / (this.last - this.first);
      if (tokens > 1 && this.last > this.first) {
        found.push(`${rate.toLocaleString("en", { maximumSignificantDigits: rate < 1000 ? 3 : 4 })} tokens/s`);
      }
    }
    return [...found, ...(this.ending ? [this.ending] : [])].join(", ");
  }
}

// Keys and buttons

by("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
by("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing) {
    if (state.stop !== null) {
      state.stop.abort();
    } else if (state.edited !== null) {
      edit(null);
    }
  }
});
by("stop").addEventListener("click", () => state.stop?.abort());
by("keep").addEventListener("click", () => edit(null));
by("new").addEventListener("click", () => {
  state.stop?.abort();
  edit(null);
  if (state.shown.length > 0) {
    cutBefore(state.shown[0].turn);
  }
  tell("");
  remember();
});
by("keys").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(by("key").value.trim());
  by("text").focus();
  loadModels();
});
by("scroll").addEventListener("scroll", () => {
  const { scrollTop, scrollHeight, clientHeight } = by("scroll");
  isAtEnd = scrollHeight - scrollTop - clientHeight < 40;
});
by("settings").addEventListener("change", () => {
  showMode();
  remember();
});
by("model").addEventListener("change", () => {
  showFacts();
  remember();
});

function showSettings(isShown) {
  by("settings").hidden = !isShown;
  by("toggle").setAttribute("aria-expanded", String(isShown));
}
by("toggle").addEventListener("click", () => showSettings(by("settings").hidden));

window.addEventListener("pagehide", remember);

// The begin

const settings = remembered("cstool-settings", {});
for (const name of FIELDS.filter((each) => each !== "model" && settings[each] !== undefined)) {
  by(name).value = settings[name];
}
remembered("cstool-turns", []).forEach(add);
showSettings(window.matchMedia("(min-width: 900px)").matches);
showMode();
demandKey(false);
follow();
by("text").focus();
loadModels();
