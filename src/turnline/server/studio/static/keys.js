// Keys: when they are shortcuts, and when somebody writes.

const WRITTEN_IN = new Set(["INPUT", "TEXTAREA", "SELECT"]);

/** Whether a key belongs to a field, to the system, or to an open dialog. */
export function isTyping(event) {
  const field = WRITTEN_IN.has(event.target.tagName) && event.target.type !== "range";
  return field || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null;
}
