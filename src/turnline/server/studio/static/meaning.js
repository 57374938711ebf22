// What a line means to somebody who reads the log: who, what kind of line, and in which words.

import { brief, moment } from "./words.js";

const HUB = "hub";
const ERASED = "erased";

/** Names by id, for everybody on a channel. */
export function namesOf(channel) {
  return Object.fromEntries(channel.participants.map((one) => [one.id, one.name || one.id]));
}

/** What a channel is called: its flow and step, its title, its opening words, or else its type. */
export function titleOf(channel) {
  const { flow, step, title } = channel.labels;
  if (flow) return step ? `${flow} / ${step}` : flow;
  return title ?? (channel.message || channel.type);
}

/** Whether a line is a turn or something said: what a conversation consists of. */
export function isSaid(line) {
  return line.event_type === "text" || line.event_type === "packet" || line.event_type === "turn.failed";
}

/** What somebody said, or what happened in place of it. */
export function saidText(line) {
  const data = line.event_data;
  if (line.is_erased) return ERASED;
  if (line.event_type === "turn.failed") return errorText(data.error ?? {});
  return String((line.event_type === "packet" ? data.body : data.text) ?? partsOf(data).map((one) => one.text).filter(isText).join("\n"));
}

/** The files of a message, or of what a tool returned, each with its address. */
export function filesOf(line) {
  const place = line.event_type === "turn.tool" ? line.event_data.entry : isSaid(line) ? line.event_data : null;
  const files = partsOf(place).filter((one) => one.type === "file" && isText(one.name) && Number.isFinite(one.size));
  const lead = `/channels/${encodeURIComponent(line.channel_id)}/envelopes/${line.seq}/files/`;
  return files.map((one, index) => ({ ...one, address: lead + index }));
}

function partsOf(data) {
  return Array.isArray(data?.parts) ? data.parts.filter((one) => one !== null && typeof one === "object") : [];
}

function isText(value) {
  return typeof value === "string";
}

/** An error in one sentence. */
export function errorText(error) {
  return [error.type, error.message].filter(Boolean).join(": ") || "The turn failed.";
}

/** Whose line it is. */
export function speakerOf(line) {
  return line.sender_id === HUB ? line.event_data.agent_id ?? HUB : line.sender_id;
}

/** A line that nobody said, in a few words: a label, and what it is about. */
export function noteOf(line, names) {
  const told = NOTES[line.event_type];
  if (line.is_erased) return { label: told?.(line.event_data, names).label ?? line.event_type, text: ERASED };
  return told === undefined ? { label: line.event_type, text: brief(line.event_data, 160) } : told(line.event_data, names);
}

/** Where the floor went, and because of which rule; `rules` are the graph's, in words. */
export function floorOf(line, names, rules = []) {
  const decision = line.decision;
  if (!decision) return null;
  const by = decision.by ?? {};
  const to = decision.kind === "speak" ? names[decision.agent_id] ?? decision.agent_id : decision.reason ?? "";
  return { closes: decision.kind === "close", lead: LEADS[decision.kind] ?? "→ ", to, because: reason(by, rules) };
}

/** What a line changed in the context variables: [key, how, value]. */
export function writesOf(line) {
  const data = line.event_data;
  if (line.event_type === "context.set") {
    return [
      ...entries(data.set, "set"),
      ...entries(data.increment, "add"),
      ...entries(data.append, "append"),
      ...(data.delete ?? []).map((key) => [key, "delete", undefined]),
    ];
  }
  if (line.event_type === "packet") {
    return [
      ...entries(data.context_updates, "set"),
      ...(data.context_deletes ?? []).map((key) => [key, "delete", undefined]),
    ];
  }
  return [];
}

function entries(object, how) {
  return Object.entries(object ?? {}).map(([key, value]) => [key, how, value]);
}

function reason(by, rules) {
  if (by.kind === "transition") return `transition ${by.index}: ${rules[by.index]?.text ?? by.condition ?? ERASED}`;
  if (by.kind === "default") return "no rule held";
  if (by.kind === "empty_reply") return "the reply was empty";
  if (by.kind === "agent_turns") return "agents spoke without a message from a person or a program";
  if (by.kind === "initial") return "the first speaker";
  if (by.kind === "handoff") return `handed over${by.condition ? ` by ${by.condition}` : ""}`;
  return [by.kind?.replaceAll("_", " "), by.target].filter(Boolean).join(": ");
}

function calls(entry) {
  return (entry?.calls ?? []).map((call) => `${call.tool}(${brief(call.arguments ?? {}, 80)})`).join(", ");
}

const NOTES = {
  "context.set": (data) => ({ label: "context", text: writesText(data) }),
  "channel.invite": (data) => ({ label: "invited", text: (data.participants ?? []).map((one) => one.name).join(", ") }),
  "channel.ack": (data, names) => ({ label: "accepted", text: names[data.agent_id] ?? "" }),
  "channel.reject": (data, names) => ({ label: "declined", text: `${names[data.agent_id] ?? ""} ${data.reason ?? ""}` }),
  "channel.opened": () => ({ label: "opened", text: "" }),
  "channel.closed": (data) => ({ label: "closed", text: data.reason ?? "" }),
  "channel.expired": (data) => ({ label: "expired", text: data.reason ?? "" }),
  "channel.child": (data) => ({ label: "opens below", text: data.child ?? "" }),
  "channel.forked": (data) => ({ label: "forked", text: `from ${data.forked_from?.channel ?? ""} at ${data.forked_from?.seq ?? ""}` }),
  "turn.claimed": (data, names) => ({ label: "working", text: names[data.agent_id] ?? data.agent_id ?? "" }),
  "turn.renewed": (data, names) => ({ label: "still working", text: names[data.agent_id] ?? "" }),
  "turn.released": () => ({ label: "released", text: "" }),
  "turn.abandoned": (data, names) => ({ label: "abandoned", text: names[data.agent_id] ?? "" }),
  "turn.model": (data) => ({ label: "model", text: calls(data.entry) || brief(data.entry?.text ?? data.summary?.text ?? "", 160) }),
  "turn.once": (data) => ({ label: "once", text: `${data.key} → ${brief(JSON.stringify(data.result), 160)}` }),
  "turn.tool": (data) => ({
    label: data.entry?.failed ? "tool failed" : "tool",
    text: `${data.entry?.tool ?? ""} → ${brief(data.entry?.text ?? "", 160)}`,
  }),
  "turn.paused": (data) => ({ label: "waits for", text: waitText(data) }),
  "turn.resumed": () => ({ label: "goes on", text: "" }),
  "timer.fired": () => ({ label: "timer", text: "" }),
  "human.requested": (data) => ({ label: "asks", text: data.question ?? "" }),
  "human.answered": (data, names) => ({ label: "answer", text: answerText(data, names) }),
  "task.started": (data) => ({ label: "task", text: data.title ?? "" }),
  "task.progress": (data) => ({ label: "task", text: data.note ?? "" }),
  "task.completed": (data) => ({ label: "task done", text: data.result ?? "" }),
  "task.failed": (data) => ({ label: "task failed", text: data.reason ?? "" }),
  "payload.erased": (data) => ({ label: "erased", text: `lines ${(data.lines ?? []).map(rangeText).join(", ")}` }),
  "expectation.violated": (data) => ({ label: "late", text: data.name ?? "" }),
};

function answerText(data, names) {
  const person = data.for ? ` for ${names[data.for] ?? data.for}` : "";
  const by = data.by ? ` (answered by ${data.by}${person})` : "";
  return brief(data.answer ?? "", 160) + by;
}

function rangeText([first, last]) {
  return first === last ? String(first) : `${first}-${last}`;
}

function writesText(data) {
  return writesOf({ event_type: "context.set", event_data: data })
    .map(([key, how, value]) => (how === "delete" ? `− ${key}` : `${key} ${SIGNS[how]} ${brief(value, 80)}`))
    .join("   ");
}

function waitText(data) {
  const what = [data.reason, data.data?.title].filter(Boolean).join(": ");
  return data.until ? `${what} (until ${moment(data.until)})` : what;
}

const LEADS = { close: "closes: ", rest: "rests until the next message" };
const SIGNS = { set: "=", add: "+=", append: "<<" };
