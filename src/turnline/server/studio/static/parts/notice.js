// What is told in place of something, or beside it: a failure, an empty list, whether a page is live.

import { html } from "../ui.js";
import { errorText } from "../meaning.js";

export function Failure({ error }) {
  if (!error) return null;
  const said = error.status === 403 ? "This token may not see that." : "";
  return html`
    <div class="failure" role="alert">
      <strong>${said || "That did not work."}</strong> <span>${error.message}</span>
      ${error.problems?.length > 0 &&
      html`<ul>${error.problems.map((one) => html`<li><code>${one.loc.join(".")}</code> ${one.message}</li>`)}</ul>`}
    </div>
  `;
}

/** Why a run failed, or the last turn of a channel. */
export function FailedTurn({ error }) {
  if (!error) return null;
  const what = error.step ? `Step ${error.step} failed.` : error.speaker ? `The turn of ${error.speaker} failed.` : "The run failed.";
  return html`<div class="failure" role="alert"><strong>${what}</strong> <span>${errorText(error)}</span></div>`;
}

export function Nothing({ children }) {
  return html`<p class="nothing">${children}</p>`;
}

const WORDS = { live: "Live", waiting: "Connecting…", over: "Ended", refused: "Not followed" };

export function Live({ state }) {
  return html`<span class=${`liveness ${state}`} role="status">${WORDS[state] ?? state}</span>`;
}
