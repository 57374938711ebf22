// The shortcuts, listed.

import { html, useLayoutEffect, useRef } from "../ui.js";

const SHORTCUTS = [
  ["Anywhere", [["?", "These shortcuts"], ["/", "Search or filter"], ["g c", "Channels"], ["g t", "Tasks"], ["g f", "Flows"], ["g s", "Search"]]],
  [
    "On a channel",
    [
      ["j  k", "Next line, line before"],
      ["J  K", "Next turn, turn before"],
      ["[  ]", "Back and forward in time"],
      ["l", "Now, and follow"],
      ["w", "Why the floor moved"],
      ["x", "Context before and after"],
      ["f", "Fork from the chosen line"],
      ["r", "Reply"],
      ["Esc", "Leave a field or close a panel"],
    ],
  ],
];

export function Help({ onClose }) {
  const dialog = useRef(null);
  useLayoutEffect(() => dialog.current.showModal(), []); // Once it is shown, keys belong to it.
  return html`
    <dialog class="help" ref=${dialog} onClose=${onClose} aria-labelledby="help-title">
      <h2 id="help-title">Keyboard shortcuts</h2>
      ${SHORTCUTS.map(
        ([where, keys]) => html`
          <h3>${where}</h3>
          <dl>${keys.map(([key, means]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${means}</dd></div>`)}</dl>
        `,
      )}
      <button class="primary" autofocus onClick=${() => dialog.current.close()}>Close</button>
    </dialog>
  `;
}
