// The API, asked with the token of this tab.
//
// Rule 1: a token goes into a header and nowhere else: no query, no cookie.
// Rule 2: streams are read with `fetch`, because an EventSource cannot send a header. They go on
// behind the last line seen when the connection is lost.

import { signOut, token } from "./session.js";

const ROOT = location.pathname.replace(/\/studio\/?$/, "");
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;

/** What the server answered instead of what was asked for. */
export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.type = error?.type ?? "";
    this.problems = error?.problems ?? [];
  }
}

export function get(path, query = {}) {
  return ask("GET", path + asQuery(query));
}

export function post(path, body = {}) {
  return ask("POST", path, body);
}

/** Return the bytes of a file. */
export async function getFile(path, signal) {
  const response = await fetch(ROOT + path, { headers: headers(), signal });
  if (!response.ok) await refuse(response);
  return response.arrayBuffer();
}

/** Follow a stream until `signal` says enough, or the server says that there is no more. */
export async function follow(path, { after = () => null, onEvent, onState = () => {}, signal }) {
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    try {
      const response = await fetch(ROOT + path + asQuery({ after: after() }), { headers: headers(), signal });
      if (response.status === 204) return onState("over");
      if (!response.ok) await refuse(response);
      onState("live");
      pause = FIRST_PAUSE;
      await readEvents(response.body.getReader(), onEvent);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status < 500) return onState("refused");
    }
    onState("waiting");
    await sleep(pause, signal);
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

async function ask(method, path, body) {
  const given = { method, headers: headers() };
  if (body instanceof FormData) {
    given.body = body; // The browser writes the boundary into the header.
  } else if (body !== undefined) {
    given.headers["Content-Type"] = "application/json";
    given.body = JSON.stringify(body);
  }
  const response = await fetch(ROOT + path, given);
  if (!response.ok) await refuse(response);
  return response.status === 204 ? null : (await response.json()).data;
}

async function refuse(response) {
  const said = await response.json().catch(() => null);
  if (response.status === 401) signOut();
  throw new Refused(response.status, said?.error);
}

function headers() {
  return { Authorization: `Bearer ${token()}` };
}

function asQuery(query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? "?" + new URLSearchParams(given) : "";
}

/** Read server-sent events from a body. */
async function readEvents(reader, onEvent) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const pieces = rest.split("\n\n");
    rest = pieces.pop();
    for (const piece of pieces) {
      const event = parsed(piece);
      if (event !== null) onEvent(event);
    }
  }
}

function parsed(piece) {
  let name = "message";
  let data = null;
  for (const line of piece.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data = line.slice(6);
  }
  return data === null ? null : { name, data: JSON.parse(data) };
}

function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
