// Participants, each in a colour of its own.

import { html } from "../ui.js";
import { hue } from "../words.js";

export function Person({ name, kind }) {
  return html`<span class=${`person ${hue(name)}`}><span class=${`dot ${kind === "human" ? "human" : ""}`} aria-hidden="true"></span>${name}</span>`;
}

/** Some of them; the rest is counted. */
export function People({ people, most = 6, onChoose = null }) {
  const shown = people.slice(0, most);
  const rest = people.length - shown.length;
  return html`
    <span class="people">
      ${shown.map((one) =>
        onChoose && one.kind !== "step"
          ? html`<button type="button" class="bare" title=${`Only channels with ${one.name}`} onClick=${() => onChoose(one.name)}><${Person} ...${one} /></button>`
          : html`<${Person} ...${one} />`,
      )}
      ${rest > 0 && html`<span class="muted">+${rest}</span>`}
    </span>
  `;
}
