// The words of the turn in flight, as they come.

import { html } from "../ui.js";
import { hue } from "../words.js";

export function Words({ words, names }) {
  const speaking = Object.entries(words).filter(([, text]) => text);
  return speaking.map(
    ([id, text]) => html`
      <div class="words" key=${id}>
        <span class=${`name ${hue(names[id] ?? id)}`}>${names[id] ?? id}</span>
        <p>${text}<span class="caret" aria-hidden="true"></span></p>
      </div>
    `,
  );
}
