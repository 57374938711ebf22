// Flows: what the project can run.

import { html } from "../ui.js";
import { useTitle } from "../page_title.js";
import { address } from "../route.js";
import { useAsked } from "../live.js";
import { Failure, Nothing } from "../parts/notice.js";

export function Flows() {
  useTitle("Flows");
  const asked = useAsked("/flows");
  const flows = asked.data?.flows ?? [];
  return html`
    <header class="top"><h1>Flows</h1></header>
    <${Failure} error=${asked.error} />
    ${asked.data && flows.length === 0 && html`<${Nothing}>The project has no flows.<//>`}
    <ul class="cards wide">
      ${flows.map(
        (flow) => html`
          <li key=${flow.name}>
            <article class="card">
              <h2><a class="row-link" href=${address("flows", flow.name)}>${flow.name}</a> <span class="muted">v${flow.version}</span></h2>
              <p>${flow.description}</p>
              <p class="facts">
                ${flow.trigger ? html`<code>${flow.trigger.method} ${flow.trigger.path}</code>` : html`<span class="muted">no trigger</span>`}
                ${flow.trigger?.public && html`<span class="tag">public</span>`}
                <span class="muted">${flow.steps.join(" → ")}</span>
              </p>
            </article>
          </li>
        `,
      )}
    </ul>
  `;
}
