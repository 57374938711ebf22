// Data as it is, in a fixed pitch; long texts keep their line breaks.

import { html } from "../ui.js";
import { pretty } from "../words.js";

const MOST_CHARACTERS = 40_000;

export function Json({ name, value }) {
  const text = pretty(value);
  const shown = text.length > MOST_CHARACTERS ? text.slice(0, MOST_CHARACTERS) + "\n…" : text;
  return html`
    <section class="data">
      ${name && html`<h4>${name}</h4>`}
      <pre tabindex="0" aria-label=${name ?? "Data"}>${shown}</pre>
    </section>
  `;
}
