// YAML as its author wrote it, with numbers and a little colour.

import { html } from "../ui.js";

const PARTS = /(#.*$)|("(?:[^"\\]|\\.)*"|'[^']*')|(\{\{.*?\}\})|([A-Za-z_][\w.-]*)(?=\s*:(?:\s|$))/g;

export function Yaml({ text, name }) {
  return html`
    <ol class="yaml" tabindex="0" role="group" aria-label=${`Source of ${name}`}>
      ${text.replace(/\n$/, "").split("\n").map((line) => html`<li><code>${coloured(line)}</code></li>`)}
    </ol>
  `;
}

function coloured(line) {
  const found = [];
  let end = 0;
  for (const match of line.matchAll(PARTS)) {
    const [text, comment, quoted, template] = match;
    found.push(line.slice(end, match.index));
    const kind = comment ? "y-comment" : quoted ? "y-text" : template ? "y-template" : "y-key";
    found.push(html`<span class=${kind}>${text}</span>`);
    end = match.index + text.length;
  }
  return [...found, line.slice(end)];
}
