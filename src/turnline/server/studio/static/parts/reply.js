// The reply box: for a person who has the floor, was asked something, or wants to say something aside.

import { html, useEffect, useState } from "../ui.js";
import { post } from "../api.js";
import { namesOf } from "../meaning.js";
import { Failure } from "./notice.js";

export function Reply({ channel, again }) {
  const names = namesOf(channel);
  const floor = names[channel.speaker_id];
  const people = channel.speaks_as;
  const [as, setAs] = useState(people.includes(floor) ? floor : people[0] ?? "");
  useEffect(() => void (people.includes(floor) && setAs(floor)), [floor]);
  if (people.length === 0 || channel.status !== "active") return null;
  const question = channel.questions.find((one) => !one.group);
  const send = (text) =>
    question
      ? post(`/channels/${channel.channel_id}/answers`, { request_id: question.request_id, answer: text, as })
      : post(`/channels/${channel.channel_id}/messages`, { text, as, id: crypto.randomUUID() });
  const rests = channel.waiting_for?.reason === "message";
  const hasFloor = as === floor || rests;
  const lead = question ? `${names[question.agent_id] ?? "An agent"} asks: ${question.question}` : rests ? "The channel rests; what you write resumes it" : hasFloor ? `${as} has the floor` : `${floor ?? "Nobody"} has the floor; this is said aside`;
  return html`<${Box} lead=${lead} isDue=${Boolean(question) || hasFloor} people=${people} as=${as} onAs=${setAs} onSend=${send} again=${again} />`;
}

function Box({ lead, isDue, people, as, onAs, onSend, again }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [isSending, setIsSending] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    if (!text.trim() || isSending) return;
    setIsSending(true);
    try {
      await onSend(text);
      setText("");
      setError(null);
      again();
    } catch (refused) {
      setError(refused);
    }
    setIsSending(false);
  };
  const pressed = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
    if (event.key === "Escape") event.target.blur();
  };
  return html`
    <form class=${`reply ${isDue ? "due" : ""}`} onSubmit=${send}>
      <div class="reply-head">
        <label for="reply">${lead}</label>
        ${people.length > 1 &&
        html`<select aria-label="Speak as" value=${as} onChange=${(event) => onAs(event.target.value)}>${people.map((one) => html`<option>${one}</option>`)}</select>`}
      </div>
      <textarea id="reply" rows="2" placeholder=${`Write as ${as}…`} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${pressed}></textarea>
      <div class="reply-foot">
        <span class="muted"><kbd>Ctrl</kbd> <kbd>Enter</kbd> sends</span>
        <button class="primary" disabled=${!text.trim() || isSending}>Send</button>
      </div>
      <${Failure} error=${error} />
    </form>
  `;
}
