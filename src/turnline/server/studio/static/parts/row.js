// One line of the timeline: something said, or a note about what happened.

import { classes, html } from "../ui.js";
import { floorOf, isSaid, noteOf, saidText, speakerOf, writesOf } from "../meaning.js";
import { brief, clock, dollars, hue } from "../words.js";
import { RowFiles } from "./files.js";

export function Row({ seq, line, names, rules, top, height, text, count, isChosen, isLater, onChoose }) {
  const kind = line === undefined ? "unread" : isSaid(line) ? "said" : "note";
  return html`
    <div id=${`line-${seq}`} role="option" aria-selected=${isChosen} aria-posinset=${seq} aria-setsize=${count}
      class=${classes("line", kind, isChosen && "chosen", isLater && "later", line?.event_type === "turn.failed" && "failed")}
      style=${{ top: `${top}px`, height: `${height}px` }} onClick=${() => onChoose(seq)}>
      <span class="seq">${seq}</span>
      ${kind === "said" && html`<${Said} line=${line} names=${names} rules=${rules} lines=${text} />`}
      ${kind === "note" && html`<${Note} line=${line} names=${names} />`}
      ${line && html`<time class="at" datetime=${line.created_at}>${clock(line.created_at)}</time>`}
    </div>
  `;
}

function Said({ line, names, rules, lines }) {
  const id = speakerOf(line);
  const name = names[id] ?? id;
  const floor = floorOf(line, names, rules);
  const usage = line.event_data.usage ?? {};
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  const writes = writesOf(line);
  const signal = line.event_data.routing?.signal;
  return html`
    <div class=${`body ${hue(name)}`}>
      <div class="who">
        <span class="name">${name}</span>
        ${line.audience && html`<span class="tag">to ${line.audience.map((one) => names[one] ?? one).join(", ") || "nobody"}</span>`}
        ${!floor && line.event_type === "text" && html`<span class="tag">aside</span>`}
        ${signal && html`<span class="tag">${signal}</span>`}
        ${writes.length > 0 && html`<span class="tag mono">${brief(writes.map(([key]) => key).join(", "), 40)}</span>`}
      </div>
      ${lines > 0 && html`<p class=${`text clamp-${lines}`}>${saidText(line)}</p>`}
      <${RowFiles} line=${line} />
      <div class="after">
        ${floor && html`<span class=${`floor ${floor.closes ? "closes" : ""}`} title=${floor.because}>${floor.lead}${floor.to}</span>`}
        ${floor && html`<span class="because">${brief(floor.because, 60)}</span>`}
        ${tokens > 0 && html`<span class="cost">${tokens} tokens${usage.cost ? ` · ${dollars(usage.cost)}` : ""}</span>`}
      </div>
    </div>
  `;
}

function Note({ line, names }) {
  const { label, text } = noteOf(line, names);
  const sender = line.sender_id === "hub" ? "" : names[line.sender_id] ?? line.sender_id;
  const floor = line.decision ? floorOf(line, names) : null;
  return html`
    <div class="body">
      <span class=${`label ${line.event_type.replaceAll(".", "-")}`}>${label}</span>
      ${sender && html`<span class=${`name ${hue(sender)}`}>${sender}</span>`}
      <span class="text mono">${text}</span>
      ${floor && html`<span class=${`floor ${floor.closes ? "closes" : ""}`}>${floor.lead}${floor.to}</span>`}
    </div>
  `;
}
