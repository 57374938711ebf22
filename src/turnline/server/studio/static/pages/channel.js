// One channel: its graph with the floor, the timeline, the context variables through time.
//
// `at` is the moment that is looked at: null is now, and follows; a number is the state after
// that line. `chosen` is the line whose details are shown.
//
// Rule: when content is erased, the page begins again, and nothing that it has read before stays on it.

import { html, useCallback, useEffect, useMemo, useRef, useState } from "../ui.js";
import { get, post } from "../api.js";
import { go } from "../route.js";
import { useAsked, useChannelStream } from "../live.js";
import { Lines } from "../lines.js";
import { filesOf, isSaid, namesOf, saidText, speakerOf } from "../meaning.js";
import { brief } from "../words.js";
import { isTyping, namesPlace, useKeys } from "../keys.js";
import { Children } from "../parts/children.js";
import { FailedTurn, Failure } from "../parts/notice.js";
import { ChannelHeader } from "../parts/channel_header.js";
import { Graph } from "../parts/graph.js";
import { Timeline } from "../parts/timeline.js";
import { Inspector } from "../parts/inspector.js";
import { ContextPanel } from "../parts/context_panel.js";
import { TimeSlider } from "../parts/time_slider.js";
import { Reply } from "../parts/reply.js";
import { TasksOfRun } from "../parts/task.js";

const REST = 120;

export function Channel({ channelId, query }) {
  const asked = useAsked(`/channels/${channelId}`);
  const [erasures, setErasures] = useState(0);
  const begin = async () => (await asked.again(), setErasures((before) => before + 1));
  if (asked.error && !asked.data) return html`<${Failure} error=${asked.error} />`;
  if (!asked.data) return html`<p class="nothing" role="status">Reading the channel…</p>`;
  return html`<${Opened} key=${erasures} channel=${asked.data} again=${asked.again} onErased=${begin} seq=${Number(query.get("seq")) || null} />`;
}

function Opened({ channel, again, onErased, seq }) {
  const lines = useMemo(() => new Lines(channel.channel_id, channel.seq), [channel.channel_id]);
  const names = useMemo(() => namesOf(channel), [channel.channel_id]);
  const live = useLive(lines, names, again, onErased);
  const [at, setAt] = useState(seq);
  const [chosen, setChosen] = useState(seq);
  const [tab, setTab] = useState("line");
  const [error, setError] = useState(null);
  const state = useStateAt(channel, lines, at, live.version);
  const fork = useCallback(async (line) => attempt(setError, async () => {
    const made = await post(`/channels/${channel.channel_id}/fork`, { at: line });
    go("channels", made.channel_id);
  }), [channel.channel_id]);
  useChannelKeys({ lines, setAt, chosen, setChosen, setTab, fork });
  return html`
    <div class="channel">
      <${ChannelHeader} channel=${channel} live=${live.state} state=${state} onError=${setError} again=${again} />
      <${Failure} error=${error} />
      <${FailedTurn} error=${channel.error} />
      <div class="columns">
        <section class="left" aria-label="Graph and context">
          <${Graph} picture=${channel.graph} names=${names} floor=${state.speaker_id} from=${state.last_speaker_id} closed=${state.close_reason} />
          <${Children} channel=${channel} />
          <${ContextPanel} state=${state} lines=${lines} />
        </section>
        <section class="middle" aria-label="Conversation">
          <${TimeSlider} lines=${lines} at=${at} state=${state} onMove=${(to) => (setAt(to), to !== null && setChosen(to))} version=${live.version} />
          <${Timeline} lines=${lines} names=${names} rules=${channel.graph.rules} at=${at} chosen=${chosen} onChoose=${setChosen} words=${live.words} />
          <${TasksOfRun} channel=${channel} again=${again} />
          <${Reply} channel=${channel} again=${again} />
        </section>
        <section class=${`right ${chosen ? "open" : ""}`} aria-label="Details">
          <${Inspector} channel=${channel} lines=${lines} names=${names} chosen=${chosen} tab=${tab} onTab=${setTab}
            onFork=${fork} onAt=${setAt} onClose=${() => setChosen(null)} version=${live.version} />
        </section>
      </div>
      <div class="unseen" role="log" aria-live="polite">${live.told}</div>
    </div>
  `;
}

/** What the stream brings: lines, words of the turn in flight, and what a screen reader is told. */
function useLive(lines, names, again, onErased) {
  const [version, setVersion] = useState(0);
  const [words, setWords] = useState({});
  const [told, setTold] = useState("");
  const refresh = useRef(null);
  useEffect(() => () => clearTimeout(refresh.current), []);
  useEffect(() => lines.onChange(() => setVersion(lines.version)), [lines]);
  const state = useChannelStream(lines, ({ name, data }) => {
    if (name === "words") setWords((before) => ({ ...before, [data.agent_id]: (before[data.agent_id] ?? "") + data.text }));
    if (name === "passed") lines.pass(data.seq);
    if (name === "envelope") {
      lines.add(data);
      if (data.event_type === "payload.erased") return void onErased();
      if (isSaid(data)) {
        const who = names[speakerOf(data)] ?? speakerOf(data);
        setWords({});
        setTold(`${who}: ${brief([saidText(data), ...filesOf(data).map((one) => one.name)].join(" "), 200)}`);
      }
      // Where the channel stands is asked once for all lines that come together.
      refresh.current ??= setTimeout(() => ((refresh.current = null), again()), REST);
    }
  });
  return { version, words, told, state };
}

/** How the channel stands now, or stood at a line. */
function useStateAt(channel, lines, at, version) {
  const [past, setPast] = useState(null);
  const isNow = at === null || at >= lines.head;
  useEffect(() => {
    if (isNow) return undefined;
    let isWanted = true;
    const timer = setTimeout(async () => {
      const found = await get(`/channels/${channel.channel_id}/state`, { seq: at }).catch(() => null);
      if (isWanted && found) setPast(found);
    }, 60);
    return () => ((isWanted = false), clearTimeout(timer));
  }, [at, isNow]);
  return isNow || past === null ? channel : past;
}

async function attempt(setError, act) {
  try {
    setError(null);
    await act();
  } catch (error) {
    setError(error);
  }
}

function useChannelKeys({ lines, setAt, chosen, setChosen, setTab, fork }) {
  useKeys((event) => {
    if (isTyping(event) || namesPlace()) return;
    const isInList = event.target.getAttribute?.("role") === "listbox";
    const key = isInList ? { ArrowDown: "j", ArrowUp: "k" }[event.key] ?? event.key : event.key;
    if (key !== event.key) event.preventDefault();
    // From what is chosen by then: keys may come faster than the page is drawn.
    const choose = (move) => setChosen((here) => move(here ?? lines.head + 1));
    const moves = {
      j: () => choose((here) => Math.min(lines.head, here + 1)),
      k: () => choose((here) => Math.max(1, here - 1)),
      J: () => choose((here) => nextTurn(lines, here, 1)),
      K: () => choose((here) => nextTurn(lines, here, -1)),
      "[": () => setAt((here) => Math.max(1, (here ?? lines.head) - 1)),
      "]": () => setAt((here) => (here === null || here + 1 >= lines.head ? null : here + 1)),
      l: () => (setAt(null), setChosen(null)),
      w: () => setTab("why"),
      x: () => setTab("context"),
      f: () => chosen && fork(chosen),
      r: () => (event.preventDefault(), document.getElementById("reply")?.focus()),
      Escape: () => setChosen(null),
    };
    moves[key]?.();
  });
}

function nextTurn(lines, from, step) {
  for (let seq = from + step; seq >= 1 && seq <= lines.head; seq += step) {
    const line = lines.at(seq);
    if (line && isSaid(line)) return seq;
  }
  return Math.min(Math.max(1, from), lines.head);
}

