// The server that the page came from: its models, and its answers as streams of events.

const KEY = "cstool-key";

/** A request that was not answered as asked, in the server's own words. `status` is 0 where there was no answer. */
export class Refusal extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** What this tab keeps under a name; "" where it keeps nothing. */
export function kept(name) {
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

export function keep(name, text) {
  try {
    sessionStorage.setItem(name, text);
  } catch {
    // no room, or no storage: the page goes on without
  }
}

let key = kept(KEY);

/** Show this key from now on, in this tab; "" shows none. */
export function useKey(text) {
  key = text;
  keep(KEY, text);
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) {
    if (!/^[!-~]+$/.test(key)) {
      throw new Refusal("An API key has letters, digits and marks alone.", 401);
    }
    headers.Authorization = `Bearer ${key}`;
  }
  const response = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers }).catch((error) => {
    throw error.name === "AbortError" ? error : new Refusal("The server does not answer.");
  });
  if (!response.ok) {
    const body = await response.text().catch(() => "");
    throw new Refusal(said(body) || `The server answers with status ${response.status}.`, response.status);
  }
  return response;
}

/** The message in the body of an error. */
function said(body) {
  try {
    const { error } = JSON.parse(body);
    return String(error?.message ?? error ?? "");
  } catch {
    return body.slice(0, 500).trim();
  }
}

/** The models: [{id, max_model_len}] */
export async function models() {
  const { data } = await (await ask("v1/models")).json();
  return data;
}

/** The events of a streamed answer. */
export async function* events(path, request, signal) {
  const body = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  const response = await ask(path, { method: "POST", body, headers: { "Content-Type": "application/json" }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Refusal("The answer broke off.");
    });
    if (done) {
      throw new Refusal("The answer broke off.");
    }
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((each) => each.startsWith("data:"))) {
      const content = line.slice(5).trim();
      if (content === "[DONE]") {
        return;
      }
      const event = JSON.parse(content);
      if (event.error) {
        throw new Refusal(said(content));
      }
      yield event;
    }
  }
}
