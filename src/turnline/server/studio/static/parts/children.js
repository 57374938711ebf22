// The channels below one: nested runs, items and branches, conversations, delegations.

import { html } from "../ui.js";
import { useAsked } from "../live.js";
import { address } from "../route.js";
import { brief, plural } from "../words.js";
import { errorText, titleOf } from "../meaning.js";
import { Failure } from "./notice.js";
import { Status } from "./status.js";

export function Children({ channel }) {
  const asked = useAsked(channel.children ? `/channels/${channel.channel_id}/children` : null, {}, [channel.children, channel.status]);
  if (!channel.children) return null;
  const rows = asked.data?.channels ?? [];
  const hidden = channel.children - rows.length;
  return html`
    <nav class="children" aria-label="Channels below this one">
      <h3>${plural(channel.children, "channel")} below</h3>
      <${Failure} error=${asked.error} />
      <ul>${rows.map((row) => html`<li key=${row.channel_id}><${Child} row=${row} /></li>`)}</ul>
      ${asked.data && hidden > 0 && html`<p class="muted">${plural(hidden, "more channel")} ${hidden === 1 ? "is" : "are"} not listed here.</p>`}
    </nav>
  `;
}

function Child({ row }) {
  return html`
    <a href=${address("channels", row.channel_id)}>${titleOf(row)} <code>${row.channel_id}</code></a>
    <${Status} row=${row} />
    ${row.error && html`<span class="muted">${brief(errorText(row.error), 120)}</span>`}
  `;
}
