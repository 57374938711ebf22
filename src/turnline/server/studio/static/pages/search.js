// Search: what was said, on any channel.

import { html, useEffect, useState } from "../ui.js";
import { useTitle } from "../page_title.js";
import { get } from "../api.js";
import { address } from "../route.js";
import { useSettled } from "../live.js";
import { moment, plural } from "../words.js";
import { Failure, Nothing } from "../parts/notice.js";
import { Person } from "../parts/people.js";

export function Search({ query }) {
  useTitle("Search");
  const [text, setText] = useState(query.get("text") ?? "");
  const settled = useSettled(text.trim(), 300);
  const [found, setFound] = useState({ rows: [], next: null, for: "" });
  const [error, setError] = useState(null);
  const look = async (after, rows) => {
    try {
      const page = await get("/channels/search", { text: settled, after, limit: 50 });
      setFound({ rows: [...rows, ...page.found], next: page.next, for: settled });
      setError(null);
    } catch (refused) {
      setError(refused);
    }
  };
  useEffect(() => void (settled ? look(null, []) : setFound({ rows: [], next: null, for: "" })), [settled]);
  return html`
    <header class="top"><h1>Search</h1></header>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <input data-search type="search" aria-label="Search what was said" placeholder="Words in any line of any channel…" value=${text} autofocus onInput=${(event) => setText(event.target.value)} />
    </form>
    <${Failure} error=${error} />
    <p class="unseen" role="status">${found.for && `${plural(found.rows.length, "line")} found`}</p>
    ${!settled && html`<${Nothing}>What was said, what tools answered, what was set: in every channel you may read.<//>`}
    ${found.for && found.rows.length === 0 && found.next === null && html`<${Nothing}>No line says that.<//>`}
    <ul class="hits">${found.rows.map((hit) => html`<${Hit} key=${`${hit.channel_id}-${hit.seq}`} hit=${hit} text=${found.for} />`)}</ul>
    ${found.next !== null && html`<button class="more" onClick=${() => look(found.next, found.rows)}>Search on</button>`}
  `;
}

function Hit({ hit, text }) {
  return html`
    <li class="hit">
      <a class="row-link" href=${`${address("channels", hit.channel_id)}?seq=${hit.seq}`}>${hit.labels.flow ?? hit.type} <code>${hit.channel_id}</code> line ${hit.seq}</a>
      <span class="facts"><${Person} name=${hit.sender} /><span class="tag">${hit.event_type}</span><span class="muted">${moment(hit.at)}</span></span>
      ${hit.text && html`<p>${marked(hit.text, text)}</p>`}
    </li>
  `;
}

/** The text with what was searched for marked in it. */
function marked(said, text) {
  const at = said.toLowerCase().indexOf(text.toLowerCase());
  if (at < 0 || text === "") return [said];
  const end = at + text.length;
  return [said.slice(0, at), html`<mark>${said.slice(at, end)}</mark>`, ...marked(said.slice(end), text)];
}
