// A task: what a run asks of a person, and the form of the answer.

import { html } from "../ui.js";
import { post } from "../api.js";
import { address } from "../route.js";
import { useAsked } from "../live.js";
import { ago, pretty } from "../words.js";
import { Form } from "./form.js";

/** The tasks for which a run waits, where whoever looks may answer them. */
export function TasksOfRun({ channel, again }) {
  const isAsking = channel.is_run && (channel.waiting_for?.reason === "person" || channel.questions.some((one) => one.group));
  const asked = useAsked(isAsking ? "/tasks" : null, {}, [channel.seq]);
  const tasks = (isAsking ? asked.data?.tasks ?? [] : []).filter((task) => task.run_id === channel.channel_id);
  if (tasks.length === 0) return null;
  return html`<div class="run-tasks">${tasks.map((task) => html`<${Task} key=${task.task_id} task=${task} onDone=${again} />`)}</div>`;
}

export function Task({ task, onDone }) {
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
