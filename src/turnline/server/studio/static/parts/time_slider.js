// Time: a slider over the lines of a channel. At its end it is now, and follows.

import { html } from "../ui.js";
import { moment } from "../words.js";

export function TimeSlider({ lines, at, state, onMove }) {
  const now = at === null;
  const value = at ?? lines.head;
  const move = (event) => {
    const to = Number(event.target.value);
    onMove(to >= lines.head ? null : to);
  };
  return html`
    <div class=${`time ${now ? "" : "past"}`}>
      <label for="time">Time</label>
      <input id="time" type="range" min="1" max=${lines.head} value=${value} onInput=${move}
        aria-valuetext=${now ? `now, line ${lines.head}` : `line ${value} of ${lines.head}`} />
      <output for="time" class="where">
        <code>${value}</code><span class="muted"> / ${lines.head}</span>
        <span class="muted when">${now ? "now" : moment(state.at)}</span>
      </output>
      <button disabled=${now} onClick=${() => onMove(null)}>Back to now</button>
    </div>
  `;
}
