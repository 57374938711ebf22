// Channels and runs: what goes on, the newest first, live.

import { html, useEffect, useRef, useState } from "../ui.js";
import { useTitle } from "../page_title.js";
import { get } from "../api.js";
import { address } from "../route.js";
import { useAsked, useNews, useSettled } from "../live.js";
import { ago, brief } from "../words.js";
import { errorText, namesOf, titleOf } from "../meaning.js";
import { Status } from "../parts/status.js";
import { People } from "../parts/people.js";
import { Failure, Nothing, Live } from "../parts/notice.js";

const STATUSES = [
  ["", "Any status"],
  ["open", "Open"],
  ["waiting", "Waiting"],
  ["resting", "Resting"],
  ["stuck", "Stuck"],
  ["closed", "Closed"],
  ["expired", "Expired"],
  ["quarantined", "Quarantined"],
];
const KINDS = [
  ["", "All"],
  ["channel", "Channels"],
  ["run", "Runs"],
];

export function Channels({ query }) {
  useTitle("Channels");
  const [asked, setAsked] = useState({ kind: query.get("kind") ?? "", status: "", text: "", participant: query.get("participant") ?? "" });
  const settled = useSettled(asked);
  const list = useAsked("/channels", { ...settled, limit: 50 });
  const live = useNews(list.again);
  const change = (part) => setAsked((before) => ({ ...before, ...part }));
  return html`
    <header class="top">
      <h1>Channels</h1>
      <${Live} state=${live} />
    </header>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <input data-search type="search" aria-label="Filter by id, label or participant" placeholder="Filter by id, label, participant…  ( / )"
        value=${asked.text} onInput=${(event) => change({ text: event.target.value })} />
      <div class="segments" role="group" aria-label="Kind">
        ${KINDS.map(
          ([id, name]) => html`<button type="button" aria-pressed=${asked.kind === id} onClick=${() => change({ kind: id })}>${name}</button>`,
        )}
      </div>
      <select aria-label="Status" value=${asked.status} onChange=${(event) => change({ status: event.target.value })}>
        ${STATUSES.map(([id, name]) => html`<option value=${id}>${name}</option>`)}
      </select>
      ${asked.participant && html`<button type="button" class="chip" onClick=${() => change({ participant: "" })}>with ${asked.participant} ×</button>`}
    </form>
    <${Failure} error=${list.error} />
    ${list.data && html`<${Rows} page=${list.data} asked=${settled} onParticipant=${(participant) => change({ participant })} />`}
  `;
}

/** The first page is live; what was asked for beyond it stays as it was, until the filter changes.
 *
 * The table is the same for every filter: a new one would take the focus from the link that has it.
 */
function Rows({ page, asked, onParticipant }) {
  const filter = JSON.stringify(asked);
  const latest = useRef(filter);
  latest.current = filter;
  const [loaded, setLoaded] = useState({ filter, rows: [], next: undefined });
  const more = loaded.filter === filter ? loaded : { filter, rows: [], next: undefined };
  const known = new Set(page.channels.map((row) => row.channel_id));
  const rows = [...page.channels, ...more.rows.filter((row) => !known.has(row.channel_id))];
  const next = more.next === undefined ? page.next : more.next;
  const load = async () => {
    const found = await get("/channels", { ...asked, limit: 50, after: next });
    if (latest.current !== filter) return;
    setLoaded((before) => ({
      filter,
      rows: [...(before.filter === filter ? before.rows : []), ...found.channels],
      next: found.next,
    }));
  };
  // Where a filter leaves nothing of a page there may be some behind it.
  useEffect(() => void (rows.length === 0 && next !== null && load()), [rows.length, next, filter]);
  if (rows.length === 0 && next !== null) return html`<${Nothing}>Looking further back…<//>`;
  if (rows.length === 0 && next === null) return html`<${NoRows} isFiltered=${Object.values(asked).some(Boolean)} />`;
  return html`
    <div class="table-wrap">
      <table class="table channels">
        <thead><tr><th>Channel</th><th>Status</th><th>Floor, or why it ended</th><th>Participants</th><th class="number">Turns</th><th class="number">Active</th></tr></thead>
        <tbody>${rows.map((row) => html`<${Row} key=${row.channel_id} row=${row} onParticipant=${onParticipant} />`)}</tbody>
      </table>
    </div>
    ${next !== null && html`<button class="more" onClick=${load}>Show more</button>`}
  `;
}

function NoRows({ isFiltered }) {
  if (isFiltered) return html`<${Nothing}>No channel is like this. Take a filter away to see more.<//>`;
  return html`<${Nothing}>There is no channel yet that you may see. <a href=${address("flows")}>Start a flow</a>, or open one from a program; it appears here at once.<//>`;
}

function Row({ row, onParticipant }) {
  const names = namesOf(row);
  const title = titleOf(row);
  return html`
    <tr>
      <td class="wide"><div class="cell">
        <a class="row-link" href=${address("channels", row.channel_id)}>${title}${row.message && row.message !== title && html` <span class="opening">${row.message}</span>`}</a>
        <span class="under"><span class="tag">${row.is_run ? "run" : row.type}</span><code>${row.channel_id}</code></span>
      </div></td>
      <td data-name="Status"><${Status} row=${row} /></td>
      <td data-name="Floor">${row.speaker_id ? names[row.speaker_id] ?? row.speaker_id : html`<span class="muted">${row.error ? brief(errorText(row.error), 80) : row.close_reason ?? ""}</span>`}${row.working && html` <span class="pulse" title="Working on the turn"></span>`}</td>
      <td data-name="Participants"><${People} people=${row.participants} most=${4} onChoose=${onParticipant} /></td>
      <td class="number" data-name="Turns">${row.turn_count ?? ""}</td>
      <td class="number muted" data-name="Active" title=${row.updated_at ?? ""}>${ago(row.updated_at ?? row.created_at)}</td>
    </tr>
  `;
}
