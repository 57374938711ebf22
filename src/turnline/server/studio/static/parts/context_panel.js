// The context variables at the moment that is looked at.

import { html } from "../ui.js";
import { brief, pretty } from "../words.js";

const SHORT = 60;

export function ContextPanel({ state }) {
  const entries = Object.entries(state.context_vars ?? {}).sort(([one], [other]) => (one < other ? -1 : 1));
  return html`
    <section class="panel context" aria-label="Context variables">
      <h2>Context variables <span class="muted">at line ${state.seq}</span></h2>
      ${entries.length === 0 && html`<p class="muted">None are set.</p>`}
      <dl class="variables">${entries.map(([key, value]) => html`<${Variable} key=${key} name=${key} value=${value} />`)}</dl>
    </section>
  `;
}

function Variable({ name, value }) {
  const text = pretty(value);
  return html`
    <div>
      <dt><code>${name}</code></dt>
      <dd>
        ${text.length > SHORT
          ? html`<details><summary><code>${brief(value, SHORT)}</code></summary><pre tabindex="0" aria-label=${name}>${text}</pre></details>`
          : html`<code class="value">${text}</code>`}
      </dd>
    </div>
  `;
}
