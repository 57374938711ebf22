// How times, amounts and values are written.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const ONE_LINE = 48;

/** How long ago, shortly. */
export function ago(text, now = Date.now()) {
  if (!text) return "";
  const passed = Math.max(0, now - Date.parse(text));
  if (passed < 5 * SECOND) return "now";
  if (passed < MINUTE) return `${Math.floor(passed / SECOND)}s ago`;
  if (passed < HOUR) return `${Math.floor(passed / MINUTE)}m ago`;
  if (passed < DAY) return `${Math.floor(passed / HOUR)}h ago`;
  return `${Math.floor(passed / DAY)}d ago`;
}

/** A moment of the day; the day too, if it is another one. */
export function moment(text) {
  if (!text) return "";
  const at = new Date(text);
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

/** The time of a line, as narrow as a column. */
export function clock(text) {
  return new Date(text).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

export function seconds(amount) {
  if (amount < 0.001) return "0 s";
  if (amount < 1) return `${Math.round(amount * 1000)} ms`;
  if (amount < 90) return `${amount.toFixed(1)} s`;
  return `${Math.floor(amount / 60)} min ${Math.round(amount % 60)} s`;
}

export function dollars(amount) {
  if (!amount) return "$0";
  return amount < 0.01 ? `$${amount.toPrecision(2)}` : `$${amount.toFixed(2)}`;
}

export function count(amount) {
  return amount.toLocaleString("en");
}

export function plural(amount, word) {
  return `${count(amount)} ${word}${amount === 1 ? "" : "s"}`;
}

/** A number of bytes. */
export function size(bytes) {
  if (bytes < 1000) return plural(bytes, "byte");
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} KB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** A value in one line. */
export function brief(value, most = 80) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  const line = text.replace(/\s+/g, " ");
  return line.length > most ? line.slice(0, most - 1) + "…" : line;
}

/** A value in as many lines as it needs. */
export function pretty(value) {
  if (typeof value === "string") return value;
  const line = JSON.stringify(value) ?? "";
  return line.length <= ONE_LINE ? line : JSON.stringify(value, null, 2);
}

const HUES = 8;
const hues = new Map();

/** One of eight colours, the same for the same name wherever it stands; whoever comes next has the next one. */
export function hue(name) {
  if (!hues.has(name)) hues.set(name, hues.size % HUES);
  return `hue-${hues.get(name)}`;
}
