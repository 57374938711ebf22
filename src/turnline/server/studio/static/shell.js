// What is around every page: the way to the others, the theme, the shortcuts.

import { html, useEffect, useRef, useState } from "./ui.js";
import { address, go } from "./route.js";
import { signOut } from "./session.js";
import { nextTheme, theme } from "./theme.js";
import { isTyping, namesPlace, useKeys } from "./keys.js";
import { Help } from "./parts/help.js";

const PLACES = [
  ["channels", "Channels", "c"],
  ["tasks", "Tasks", "t"],
  ["flows", "Flows", "f"],
  ["search", "Search", "s"],
];

export function Shell({ place, path, children }) {
  const [chosen, setChosen] = useState(theme);
  const [helps, setHelps] = useState(false);
  useShortcuts(setHelps);
  useArrival(path);
  return html`
    <div class="shell">
      <a class="skip" href="#main" onClick=${toMain}>Skip to content</a>
      <nav class="side" aria-label="Main">
        <a class="brand" href=${address("channels")} aria-label="Turnline Studio"><span class="mark" aria-hidden="true"></span><span class="word">Turnline</span></a>
        <ul>
          ${PLACES.map(
            ([id, name]) => html`
              <li><a href=${address(id)} aria-current=${id === place ? "page" : undefined}><${Icon} name=${id} />${name}</a></li>
            `,
          )}
        </ul>
        <div class="side-end">
          <button class="plain" onClick=${() => setChosen(nextTheme())} title="Light, dark, or as the system has it">
            <${Icon} name="theme" /><span class="word">Theme: ${chosen}</span>
          </button>
          <button class="plain" onClick=${() => setHelps(true)} title="Keyboard shortcuts">
            <${Icon} name="keys" /><span class="word">Shortcuts</span><kbd>?</kbd>
          </button>
          <button class="plain" onClick=${signOut}><${Icon} name="out" /><span class="word">Sign out</span></button>
        </div>
      </nav>
      <main id="main" tabindex="-1">${children}</main>
      ${helps && html`<${Help} onClose=${() => setHelps(false)} />`}
    </div>
  `;
}

/** Drawn with strokes, so that they take the colour of the text. */
function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

/** Whoever comes to another page is at its beginning, not where a control of the last one was. */
function useArrival(path) {
  const before = useRef(path);
  useEffect(() => {
    if (before.current === path) return;
    before.current = path;
    const main = document.getElementById("main");
    if (document.activeElement === document.body) (main.querySelector("[autofocus]") ?? main).focus();
  }, [path]);
}

/** `g c` goes to the channels, `/` searches, `?` helps. */
function useShortcuts(setHelps) {
  useKeys((event) => {
    if (isTyping(event)) return;
    const places = Object.fromEntries(PLACES.map(([id, , key]) => [key, id]));
    if (namesPlace() && places[event.key]) go(places[event.key]);
    else if (event.key === "?") setHelps(true);
    else if (event.key === "/") focusSearch(event);
  });
}

function focusSearch(event) {
  event.preventDefault();
  const box = document.querySelector("[data-search]");
  if (box === null) go("search");
  else box.focus();
}

const ICONS = {
  channels: "M2.5 3.5h11v7h-6l-3 2.5v-2.5h-2z",
  tasks: "M2.5 8.5 6 12l7.5-8",
  flows: "M3 3h4v3H3zM9 10h4v3H9zM5 6v3.5a2 2 0 0 0 2 2h2",
  search: "M7 2.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9zM10.5 10.5l3 3",
  theme: "M13 9.5A5.5 5.5 0 1 1 6.5 3a4.5 4.5 0 0 0 6.5 6.5z",
  keys: "M2 4.5h12v7H2zM4.5 7h.01M8 7h.01M11.5 7h.01M5 9.5h6",
  out: "M6.5 3h-4v10h4M6 8h7.5M11 5.5 13.5 8 11 10.5",
};
