// The timeline: every line of a channel, of which only those on the screen exist.
//
// Rule 1: the height of a row follows from what is in it (`rowHeight`), never from how it was
// drawn; so the place of each row is known before it is, and ten thousand lines cost an array.
// Rule 2: whoever is at the end stays there while lines come; whoever is not stays where they are.

import { classes, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../ui.js";
import { isSaid, saidText } from "../meaning.js";
import { filesHeight } from "./files.js";
import { Row } from "./row.js";
import { Words } from "./words_row.js";

const NOTE = 30;
const UNREAD = 44;
const SAID = 46;
const TEXT_LINE = 20;
const MOST_TEXT_LINES = 8;
const CHARACTER = 6.6;
const BESIDE_TEXT = 150;
const BESIDE_TEXT_ON_A_PHONE = 64;
const PHONE = 700;
const BEYOND = 400;

/** How many lines of text a row shows. */
export function textLines(text, width) {
  if (text === "") return 0;
  const beside = innerWidth <= PHONE ? BESIDE_TEXT_ON_A_PHONE : BESIDE_TEXT;
  const columns = Math.max(20, Math.floor((width - beside) / CHARACTER));
  let found = 0;
  for (const part of text.split("\n")) found += Math.max(1, Math.ceil(part.length / columns));
  return Math.min(MOST_TEXT_LINES, found);
}

function rowHeight(line, width, onlyTurns) {
  if (line === undefined) return onlyTurns ? SAID : UNREAD;
  if (line === null) return 0;
  if (isSaid(line)) return SAID + TEXT_LINE * textLines(saidText(line), width) + filesHeight(line);
  return onlyTurns && line.event_type !== "channel.closed" ? 0 : NOTE;
}

export function Timeline({ lines, names, rules, at, chosen, onChoose, words }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: at === null ? Infinity : 0, height: 600, width: 700 });
  const [onlyTurns, setOnlyTurns] = useState(false);
  const [isAtEnd, setIsAtEnd] = useState(true);
  const places = useMemo(() => placed(lines, view.width, onlyTurns), [lines.version, lines.head, view.width, onlyTurns]);
  const [first, last] = window_(places, view);
  useEffect(() => lines.want(first, last), [first, last, lines.head]);
  // In this order: what is measured first is the end, so that the beginning is not asked for in passing.
  useEnd(box, places, isAtEnd && at === null, words, view.height);
  useSize(box, setView);
  useShown(box, places, chosen, view);
  const scrolled = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    setIsAtEnd(scrollHeight - scrollTop - clientHeight < 40);
    setView((before) => ({ ...before, top: scrollTop }));
  };
  const rows = [];
  for (let seq = first; seq <= last; seq += 1) {
    const height = places[seq] - places[seq - 1];
    if (height === 0) continue;
    const line = lines.at(seq);
    rows.push(html`
      <${Row} key=${seq} seq=${seq} line=${line} names=${names} rules=${rules} top=${places[seq - 1]} height=${height} count=${lines.head}
        text=${line && isSaid(line) ? textLines(saidText(line), view.width) : 0}
        isChosen=${seq === chosen} isLater=${at !== null && seq > at} onChoose=${onChoose} />
    `);
  }
  return html`
    <div class="timeline-head">
      <h2>Timeline</h2>
      <label class="check"><input type="checkbox" checked=${onlyTurns} onChange=${(event) => setOnlyTurns(event.target.checked)} /> Only turns</label>
    </div>
    <div class="timeline" ref=${box} onScroll=${scrolled} tabindex="0" role="listbox" aria-label="Lines of the channel"
      aria-activedescendant=${chosen ? `line-${chosen}` : undefined}>
      <div class=${classes("canvas")} style=${{ height: `${places[lines.head]}px` }}>${rows}</div>
      <${Words} words=${words} names=${names} />
    </div>
    ${!isAtEnd && html`<button class="to-end" onClick=${() => toEnd(box.current)}>To the last line</button>`}
  `;
}

/** places[n] is where line n ends. */
function placed(lines, width, onlyTurns) {
  const places = new Float64Array(lines.head + 1);
  for (let seq = 1; seq <= lines.head; seq += 1) {
    places[seq] = places[seq - 1] + rowHeight(lines.at(seq), width, onlyTurns);
  }
  return places;
}

/** The first and the last line to draw. */
function window_(places, { top, height }) {
  const first = lineAt(places, top - BEYOND);
  const last = lineAt(places, top + height + BEYOND);
  return [first, last];
}

/** The line at a height, found by halving. */
function lineAt(places, height) {
  let low = 1;
  let high = places.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] > height) high = middle;
    else low = middle + 1;
  }
  return Math.max(1, Math.min(low, places.length - 1));
}

function useSize(box, setView) {
  useLayoutEffect(() => {
    const measure = () => {
      const { clientHeight, clientWidth, scrollTop } = box.current;
      setView({ top: scrollTop, height: clientHeight, width: clientWidth });
    };
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, []);
}

/** Stay at the end, or keep what is looked at where it is while heights above it become known. */
function useEnd(box, places, follows, words, height) {
  const before = useRef({ places, seq: 1, inside: 0 });
  useLayoutEffect(() => {
    const known = before.current;
    if (follows) toEnd(box.current);
    else if (known.places !== places && known.seq < places.length) {
      box.current.scrollTop = places[known.seq - 1] + known.inside;
    }
  }, [places, follows, words, height]);
  useLayoutEffect(() => {
    const top = box.current.scrollTop;
    const seq = lineAt(places, top);
    before.current = { places, seq, inside: top - places[seq - 1] };
  });
}

/** Bring the chosen line into view, once it is chosen. */
function useShown(box, places, chosen, view) {
  const shown = useRef(null);
  useLayoutEffect(() => {
    if (chosen === null || chosen >= places.length || shown.current === chosen) return;
    shown.current = chosen;
    const top = places[chosen - 1];
    const bottom = places[chosen];
    const { scrollTop } = box.current;
    if (top < scrollTop) box.current.scrollTop = top - 8;
    else if (bottom > scrollTop + view.height) box.current.scrollTop = bottom - view.height + 8;
  }, [chosen, places]);
}

function toEnd(element) {
  element.scrollTop = element.scrollHeight;
}
