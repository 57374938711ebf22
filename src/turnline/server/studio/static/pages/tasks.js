// Tasks: what runs ask of people, each with its form.

import { html, useState } from "../ui.js";
import { useTitle } from "../page_title.js";
import { useAsked, useNews } from "../live.js";
import { Failure, Live, Nothing } from "../parts/notice.js";
import { Task } from "../parts/task.js";

export function Tasks() {
  useTitle("Tasks");
  const asked = useAsked("/tasks");
  const live = useNews(asked.again);
  const [done, setDone] = useState("");
  const tasks = asked.data?.tasks ?? [];
  return html`
    <header class="top"><h1>Tasks</h1><${Live} state=${live} /></header>
    <${Failure} error=${asked.error} />
    <p class="unseen" role="status">${done}</p>
    ${done && html`<p class="done">${done}</p>`}
    ${asked.data && tasks.length === 0 && html`<${Nothing}>Nothing waits for you. When a step of a run asks a person, its form is here.<//>`}
    <ul class="cards">
      ${tasks.map((task) => html`<li key=${task.task_id}><${Task} task=${task} onDone=${(said) => (setDone(said), asked.again())} /></li>`)}
    </ul>
  `;
}
