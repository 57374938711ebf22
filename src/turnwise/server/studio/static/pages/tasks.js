// Tasks: what runs ask of people, each with its form.

import { html, useState } from "../ui.js";
import { post } from "../api.js";
import { address } from "../route.js";
import { useAsked, useNews } from "../live.js";
import { ago, pretty } from "../words.js";
import { Failure, Live, Nothing } from "../parts/notice.js";
import { Form } from "../parts/form.js";

export function Tasks() {
  const asked = useAsked("/tasks");
  const live = useNews(asked.again);
  const [done, setDone] = useState("");
  const tasks = asked.data?.tasks ?? [];
  return html`
    <header class="top"><h1>Tasks</h1><${Live} state=${live} /></header>
    <${Failure} error=${asked.error} />
    <p class="unseen" role="status">${done}</p>
    ${done && html`<p class="done">${done}</p>`}
    ${asked.data && tasks.length === 0 && html`<${Nothing}>Nothing waits for you.<//>`}
    <ul class="cards">
      ${tasks.map((task) => html`<li key=${task.task_id}><${Task} task=${task} onDone=${(said) => (setDone(said), asked.again())} /></li>`)}
    </ul>
  `;
}

function Task({ task, onDone }) {
  const answer = async (given) => {
    await post(`/tasks/${task.task_id}/answer`, { answer: given });
    onDone(`“${task.title || task.step}” was answered; the run goes on.`);
  };
  const shown = Object.entries(task.show ?? {});
  return html`
    <article class="card task" aria-label=${task.title || task.step}>
      <header>
        <h2>${task.title || task.step}</h2>
        <p class="facts">
          <a href=${address("channels", task.run_id)}>${task.flow}</a><span class="tag">${task.step}</span>
          ${task.group && html`<span class="tag">${task.group}</span>`}
          <span class="muted">asked ${ago(task.created_at)}</span>
          ${task.expires_at && html`<span class="muted">until ${new Date(task.expires_at).toLocaleString()}</span>`}
        </p>
      </header>
      ${task.description && html`<p class="full">${task.description}</p>`}
      ${shown.length > 0 && html`<dl class="pairs">${shown.map(([key, value]) => html`<div><dt>${key}</dt><dd><code>${pretty(value)}</code></dd></div>`)}</dl>`}
      <${Form} id=${task.task_id} schema=${task.form} verb="Answer" onSubmit=${answer} />
    </article>
  `;
}
