// What a channel cost and how long its turns took.

import { html } from "../ui.js";
import { useAsked } from "../live.js";
import { count, dollars, hue, plural, seconds } from "../words.js";
import { Failure } from "./notice.js";
import { Person } from "./people.js";

export function Usage({ channel, names }) {
  const asked = useAsked(`/channels/${channel.channel_id}/usage`, {}, [channel.turn_count]);
  if (asked.error) return html`<${Failure} error=${asked.error} />`;
  if (!asked.data) return html`<p class="nothing">Counting…</p>`;
  const { total, below, participants, turns } = asked.data;
  const slowest = Math.max(...turns.map((turn) => turn.seconds), 0.001);
  return html`
    <h3>Cost and latency</h3>
    <dl class="figures">
      <div><dt>Cost</dt><dd>${dollars(total.cost)}</dd></div>
      <div><dt>Tokens in</dt><dd>${count(total.input_tokens)}</dd></div>
      <div><dt>Tokens out</dt><dd>${count(total.output_tokens)}</dd></div>
      <div><dt>Model calls</dt><dd>${count(total.requests)}</dd></div>
      <div><dt>Turns</dt><dd>${count(total.turns)}</dd></div>
      <div><dt>Work</dt><dd>${seconds(total.seconds)}</dd></div>
    </dl>
    ${below.channels > 0 &&
    html`<p class="muted">${plural(below.channels, "channel")} below included: ${dollars(below.cost)}, ${count(below.requests)} model calls.${below.complete ? "" : " More channels were not counted."}</p>`}
    <h4>Last turns, by how long they took</h4>
    <div class="bars" role="img" aria-label=${`The slowest of the last ${turns.length} turns took ${seconds(slowest)}`}>
      ${turns.slice(-60).map(
        (turn) => html`
          <span class=${`bar ${hue(names[turn.agent_id] ?? turn.agent_id)}`} title=${`line ${turn.seq}: ${names[turn.agent_id] ?? turn.agent_id}, ${seconds(turn.seconds)}`}
            style=${{ height: `${Math.max(3, (turn.seconds / slowest) * 100)}%` }}></span>
        `,
      )}
    </div>
    <div class="table-wrap">
      <table class="table small">
        <thead><tr><th>Participant</th><th class="number">Turns</th><th class="number">Tokens</th><th class="number">Cost</th><th class="number">Mean</th></tr></thead>
        <tbody>
          ${participants.map(
            (one) => html`
              <tr>
                <td><${Person} name=${names[one.agent_id] ?? one.agent_id} /></td>
                <td class="number">${one.turns}</td>
                <td class="number">${count(one.input_tokens + one.output_tokens)}</td>
                <td class="number">${dollars(one.cost)}</td>
                <td class="number">${seconds(one.turns ? one.seconds / one.turns : 0)}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </div>
  `;
}
