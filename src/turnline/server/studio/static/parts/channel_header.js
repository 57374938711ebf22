// The head of a channel's page: what it is, how it stands, and what can be done to it.

import { html, useState } from "../ui.js";
import { post } from "../api.js";
import { address } from "../route.js";
import { ago, plural } from "../words.js";
import { titleOf } from "../meaning.js";
import { useTitle } from "../page_title.js";
import { Status } from "./status.js";
import { People } from "./people.js";
import { Live } from "./notice.js";

export function ChannelHeader({ channel, live, onError, again }) {
  const title = titleOf(channel);
  useTitle(title);
  return html`
    <header class="top channel-top">
      <div class="title">
        <h1 title=${title}>${title}</h1>
        <${Status} row=${channel} />
        <${Live} state=${live} />
      </div>
      <div class="facts">
        <code title="The channel's id">${channel.channel_id}</code>
        <span>${plural(channel.turn_count, "turn")}</span>
        <span>${plural(channel.seq, "line")}</span>
        <span title=${channel.created_at}>opened ${ago(channel.created_at)}</span>
        ${channel.parent_id && html`<a href=${address("channels", channel.parent_id)} title="The channel that opened this one">below ${channel.parent_id}</a>`}
        ${channel.forked_from &&
        html`<a href=${`${address("channels", channel.forked_from.channel)}?seq=${channel.forked_from.seq}`}>forked at line ${channel.forked_from.seq}</a>`}
        ${channel.close_reason && html`<span>closed: ${channel.close_reason}</span>`}
        <${People} people=${channel.participants} />
      </div>
      <${Actions} channel=${channel} onError=${onError} again=${again} />
    </header>
  `;
}

/** Ending a channel takes two clicks. */
function Actions({ channel, onError, again }) {
  const [isSure, setIsSure] = useState(false);
  const isOver = channel.status === "closed" || channel.status === "expired";
  // A nested run that is over is retried with the run at the top; a stuck one resumes where it is.
  const isStuck = channel.waiting_for?.reason === "stuck";
  const canRetry = channel.is_run && (isStuck || (isOver && !channel.parent_id));
  const retry = canRetry && html`<${Retry} channel=${channel} onError=${onError} again=${again} label=${isStuck ? "Retry the stuck turn" : "Retry from the last step"} />`;
  if (isOver) return canRetry ? html`<div class="actions">${retry}</div>` : null;
  const end = async () => {
    if (!isSure) return setIsSure(true);
    setIsSure(false);
    try {
      onError(null);
      await (channel.is_run ? post(`/runs/${channel.channel_id}/cancel`) : post(`/channels/${channel.channel_id}/close`));
      again();
    } catch (error) {
      onError(error);
    }
    return undefined;
  };
  const verb = channel.is_run ? "Cancel the run" : "Close the channel";
  return html`
    <div class="actions">
      ${retry}
      <button class=${isSure ? "danger" : ""} onClick=${end} onBlur=${() => setIsSure(false)}>${isSure ? "Click again to end it" : verb}</button>
    </div>
  `;
}

function Retry({ channel, onError, again, label }) {
  const retry = async () => {
    try {
      onError(null);
      const made = await post(`/runs/${channel.channel_id}/retry`);
      location.hash = address("channels", made.run_id);
      again();
    } catch (error) {
      onError(error);
    }
  };
  return html`<button onClick=${retry}>${label}</button>`;
}
