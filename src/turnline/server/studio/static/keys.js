// Keys: when they are shortcuts, and when somebody writes.

import { useLayoutEffect, useRef } from "./ui.js";

const WRITTEN_IN = new Set(["INPUT", "TEXTAREA", "SELECT"]);

/** Whether a key belongs to a field, to the system, or to an open dialog. */
export function isTyping(event) {
  const field = WRITTEN_IN.has(event.target.tagName) && event.target.type !== "range";
  return field || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null;
}

let before = "";
let latest = "";

/** Whether the key before this one was `g`: then this one names a place, and no page takes it. */
export const namesPlace = () => before === "g";

// On capture, so that it is up to date whichever listener of the page comes first.
addEventListener("keydown", (event) => ([before, latest] = isTyping(event) ? ["", ""] : [latest, event.key]), {
  capture: true,
});

/** Call `onKey` for every key that is pressed on the page.
 *
 * The listener is there before the page is painted. `useEffect` would add it after that, and lose a key in between.
 */
export function useKeys(onKey) {
  const latest = useRef(onKey);
  latest.current = onKey;
  useLayoutEffect(() => {
    const pressed = (event) => latest.current(event);
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
