// The details of a line, and of the whole: what it says, why the floor moved, the context before
// and after it, what the channel cost.

import { html, useEffect } from "../ui.js";
import { address } from "../route.js";
import { moment } from "../words.js";
import { isSaid, saidText, speakerOf } from "../meaning.js";
import { LineFiles } from "./files.js";
import { Json } from "./json.js";
import { Why } from "./why.js";
import { ContextChange } from "./context_change.js";
import { Usage } from "./usage.js";

const TABS = [
  ["line", "Line"],
  ["why", "Why"],
  ["context", "Context"],
  ["cost", "Cost"],
];

export function Inspector(props) {
  const { tab, onTab, chosen, onClose } = props;
  return html`
    <div class="tabs" role="tablist" aria-label="Details" onKeyDown=${(event) => arrow(event, tab, onTab)}>
      ${TABS.map(
        ([id, name]) => html`
          <button role="tab" id=${`tab-${id}`} aria-selected=${tab === id} aria-controls="details" tabindex=${tab === id ? 0 : -1}
            onClick=${() => onTab(id)}>${name}</button>
        `,
      )}
      ${chosen && html`<button class="bare close" aria-label="Close details" onClick=${onClose}>×</button>`}
    </div>
    <div id="details" class="details" role="tabpanel" aria-labelledby=${`tab-${tab}`} tabindex="0"><${Panel} ...${props} /></div>
  `;
}

function Panel({ channel, lines, names, chosen, tab, onFork, onAt }) {
  useEffect(() => void (chosen && lines.want(chosen, chosen)), [chosen]);
  if (tab === "cost") return html`<${Usage} channel=${channel} names=${names} />`;
  if (!chosen) return html`<p class="nothing">Choose a line: click it, or press <kbd>j</kbd> and <kbd>k</kbd>.</p>`;
  const line = lines.at(chosen);
  if (!line) return html`<p class="nothing">${line === null ? "This line is not for you." : "Reading…"}</p>`;
  if (tab === "why") return html`<${Why} channelId=${channel.channel_id} seq=${chosen} rules=${channel.graph.rules ?? []} />`;
  if (tab === "context") return html`<${ContextChange} channelId=${channel.channel_id} seq=${chosen} />`;
  return html`<${Line} line=${line} names=${names} onFork=${onFork} onAt=${onAt} />`;
}

function Line({ line, names, onFork, onAt }) {
  const id = speakerOf(line);
  return html`
    <h3>Line ${line.seq}</h3>
    <dl class="pairs">
      <div><dt>Type</dt><dd><code>${line.event_type}</code></dd></div>
      <div><dt>From</dt><dd>${names[id] ?? id}</dd></div>
      <div><dt>At</dt><dd>${moment(line.created_at)}</dd></div>
      <div><dt>Id</dt><dd><code>${line.envelope_id}</code></dd></div>
    </dl>
    <div class="actions">
      <button onClick=${() => onAt(line.seq)}>Go to this moment</button>
      <button onClick=${() => onFork(line.seq)}>Fork from here</button>
    </div>
    ${line.event_type === "channel.child" && html`<p><a href=${address("channels", String(line.event_data.child))}>Look at the channel below</a></p>`}
    ${isSaid(line) && saidText(line) && html`<p class="full">${saidText(line)}</p>`}
    <${LineFiles} line=${line} />
    <${Json} name="Data" value=${line.event_data} />
    ${line.decision && html`<${Json} name="Decision" value=${line.decision} />`}
  `;
}

/** Arrow keys move between tabs. */
function arrow(event, tab, onTab) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined) return;
  const index = TABS.findIndex(([id]) => id === tab);
  const next = TABS[(index + step + TABS.length) % TABS.length][0];
  onTab(next);
  document.getElementById(`tab-${next}`)?.focus();
}
