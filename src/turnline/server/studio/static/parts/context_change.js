// The context variables before and after a line.

import { html } from "../ui.js";
import { useAsked } from "../live.js";
import { pretty } from "../words.js";
import { Failure } from "./notice.js";

export function ContextChange({ channelId, seq }) {
  const after = useAsked(`/channels/${channelId}/state`, { seq });
  const before = useAsked(seq > 1 ? `/channels/${channelId}/state` : null, { seq: seq - 1 });
  if (after.error) return html`<${Failure} error=${after.error} />`;
  if (!after.data || (seq > 1 && !before.data)) return html`<p class="nothing">Reading…</p>`;
  const old = before.data?.context_vars ?? {};
  const now = after.data.context_vars;
  const keys = [...new Set([...Object.keys(old), ...Object.keys(now)])].sort();
  const rows = keys.map((key) => ({ key, how: change(old, now, key), old: old[key], now: now[key] }));
  const changed = rows.filter((row) => row.how !== "same");
  return html`
    <h3>Context at line ${seq}</h3>
    ${changed.length === 0 && html`<p class="muted">This line changed nothing.</p>`}
    ${changed.map((row) => html`<${Changed} row=${row} />`)}
    ${rows.length > changed.length && html`<h4>Unchanged</h4>`}
    <dl class="pairs">${rows.filter((row) => row.how === "same").map((row) => html`<div><dt>${row.key}</dt><dd><code>${pretty(row.now)}</code></dd></div>`)}</dl>
  `;
}

function Changed({ row }) {
  return html`
    <section class="change">
      <h4><code>${row.key}</code> <span class="tag">${row.how}</span></h4>
      <div class="before-after">
        <div><span class="muted">Before</span><pre tabindex="0" aria-label=${`${row.key} before`}>${row.how === "added" ? "" : pretty(row.old)}</pre></div>
        <div><span class="muted">After</span><pre tabindex="0" aria-label=${`${row.key} after`}>${row.how === "removed" ? "" : pretty(row.now)}</pre></div>
      </div>
    </section>
  `;
}

function change(old, now, key) {
  if (!(key in old)) return "added";
  if (!(key in now)) return "removed";
  return JSON.stringify(old[key]) === JSON.stringify(now[key]) ? "same" : "changed";
}
