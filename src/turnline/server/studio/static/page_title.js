// The title of the tab: what tells pages apart in a row of tabs, and what a screen reader says first.

import { useEffect } from "./ui.js";

export function useTitle(title) {
  useEffect(() => void (document.title = `${title} · Turnline Studio`), [title]);
}
