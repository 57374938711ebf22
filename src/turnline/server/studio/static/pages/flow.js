// One flow: its source beside its picture, a form to start a run, and its last runs.

import { html } from "../ui.js";
import { useTitle } from "../page_title.js";
import { post } from "../api.js";
import { address, go } from "../route.js";
import { useAsked, useNews } from "../live.js";
import { ago } from "../words.js";
import { Failure, Nothing } from "../parts/notice.js";
import { Form } from "../parts/form.js";
import { Graph } from "../parts/graph.js";
import { Status } from "../parts/status.js";
import { Yaml } from "../parts/yaml.js";

export function Flow({ name }) {
  const asked = useAsked(`/flows/${encodeURIComponent(name)}`);
  const flow = asked.data;
  useTitle(name);
  if (asked.error) return html`<${Failure} error=${asked.error} />`;
  if (!flow) return html`<p class="nothing">Reading…</p>`;
  const start = async (input, files) => {
    const made = await post(`/flows/${encodeURIComponent(name)}/runs`, files.length ? asForm(input, files) : { input });
    go("channels", made.run_id);
  };
  return html`
    <header class="top">
      <div class="title"><h1>${flow.name}</h1><span class="muted">v${flow.version}</span></div>
      <div class="facts">${flow.trigger && html`<code>${flow.trigger.method} ${flow.trigger.path}</code>`}<span>${flow.description}</span></div>
    </header>
    <div class="flow">
      <section class="panel source" aria-label="Source">
        <h2>Source</h2>
        ${flow.source ? html`<${Yaml} text=${flow.source} name=${flow.name} />` : html`<${Nothing}>Its source is shown to operators.<//>`}
      </section>
      <div class="flow-side">
        <${Graph} picture=${flow.picture} title="Picture" />
        <section class="panel" aria-label="Start a run"><h2>Start a run</h2><${Form} id="run" schema=${flow.input} verb="Start" onSubmit=${start} /></section>
        <${Runs} flow=${flow.name} />
      </div>
    </div>
  `;
}

/** The same request with files; what is not a file comes first. */
function asForm(input, files) {
  const form = new FormData();
  form.append("input", JSON.stringify(input));
  for (const [name, file] of files) form.append(name, file, file.name);
  return form;
}

function Runs({ flow }) {
  const asked = useAsked("/channels", { flow, kind: "run", limit: 10 });
  useNews(asked.again);
  const runs = asked.data?.channels ?? [];
  return html`
    <section class="panel" aria-label="Last runs">
      <h2>Last runs</h2>
      <${Failure} error=${asked.error} />
      ${asked.data && runs.length === 0 && html`<p class="muted">There are none yet.</p>`}
      <ul class="plain-list">
        ${runs.map(
          (run) => html`
            <li key=${run.channel_id}><a href=${address("channels", run.channel_id)}><code>${run.channel_id}</code></a><${Status} row=${run} /><span class="muted">${ago(run.updated_at)}</span></li>
          `,
        )}
      </ul>
    </section>
  `;
}
