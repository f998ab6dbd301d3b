// The server of the page: asked for JSON, told what to change.

export const server = {
  tags: new Map(), // address -> [ETag, what it was]
  offset: 0, // its clock, ahead of this one [s]
  token: stored("appliance-token"),
};

function stored(key) {
  try {
    return sessionStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

/** The time by the server's clock [s since 1970]. */
export const now = () => Date.now() / 1000 + server.offset;

/** Ask the server; what it has not changed is not sent again. */
export async function get(path) {
  const known = server.tags.get(path);
  const headers = known ? { "If-None-Match": known[0] } : {};
  const response = await ask(path, { headers });
  if (response.status === 304) {
    return known[1];
  }
  const value = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(value.error), { status: response.status });
  }
  server.tags.set(path, [response.headers.get("ETag"), value]);
  return value;
}

/** Forget answers about jobs: those of a job that is not shown any more would only take room. */
export function forgetJobs() {
  for (const path of server.tags.keys()) {
    if (path.startsWith("api/jobs/")) {
      server.tags.delete(path);
    }
  }
}

/** Send a request, with the token where there is one. */
export async function ask(path, options) {
  const headers = { ...options.headers };
  if (server.token) {
    headers.Authorization = `Bearer ${server.token}`;
  }
  const response = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers }).catch(() => {
    throw new Error("The server of this page does not answer; what is shown may be old.");
  });
  const time = Number(response.headers.get("X-Appliance-Time"));
  if (time) {
    const offset = time - Date.now() / 1000;
    // Answers take their time; only a clock that is really another one counts.
    server.offset = Math.abs(offset - server.offset) > 0.5 ? offset : server.offset;
  }
  return response;
}

/** Have something changed. */
export async function post(path, value) {
  const response = await ask(path, { method: "POST", body: JSON.stringify(value), headers: { "Content-Type": "application/json" } });
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(answer.hint ? `${answer.error} (${answer.hint})` : answer.error);
  }
  return answer;
}

/** Use a token from now on, in this tab; "" forgets it. */
export function keepToken(token) {
  server.token = token;
  server.tags.clear();
  try {
    sessionStorage.setItem("appliance-token", token);
  } catch {
    // this page keeps it
  }
}
