// The token: for as long as the tab is open, and in nobody's history.
//
// `serve --dev` prints an address with `#token=...`. A fragment is sent to no server; it is
// taken out of the address as soon as it has been read.

const KEY = "turnline.token";
const listeners = new Set();

/** Take the token from the address, if it has one. */
export function adoptToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (found === null) return;
  sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
  history.replaceState(null, "", location.pathname + "#/channels");
}

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function signIn(given) {
  sessionStorage.setItem(KEY, given.trim());
  tell();
}

export function signOut() {
  sessionStorage.removeItem(KEY);
  tell();
}

/** Call `listener` whenever somebody signs in or out; returns what ends that. */
export function onSession(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell() {
  for (const listener of listeners) listener();
}
