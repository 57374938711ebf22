// How a channel or a run stands, as a coloured word.

import { html } from "../ui.js";

const TONES = {
  active: "busy",
  running: "busy",
  waiting: "wait",
  resting: "over",
  pending: "wait",
  closing: "wait",
  succeeded: "good",
  closed: "over",
  failed: "bad",
  stuck: "bad",
  expired: "bad",
  quarantined: "bad",
};

const WAITING = { message: "resting", stuck: "stuck" };

/** One word for where a row stands. */
export function standing(row) {
  if (row.run_status) return row.run_status;
  if (row.status === "active" && row.waiting_for) return WAITING[row.waiting_for.reason] ?? "waiting";
  return row.status;
}

export function Status({ row }) {
  const word = standing(row);
  const why = row.waiting_for ? ` for ${row.waiting_for.reason}` : "";
  return html`<span class=${`status ${TONES[word] ?? "over"}`} title=${word + why}>${word}</span>`;
}
