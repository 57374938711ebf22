// What a page asks for and follows, as hooks.

import { useCallback, useEffect, useRef, useState } from "./ui.js";
import { follow, get } from "./api.js";

const REST = 250;

/** Ask once, and again when `again` is called or `keys` change. The last answer stays while the next is on its way. */
export function useAsked(path, query = {}, keys = []) {
  const [found, setFound] = useState({ data: null, error: null, isLoading: true });
  const turn = useRef(0);
  const again = useCallback(async () => {
    if (path === null) return;
    const mine = (turn.current += 1);
    try {
      const data = await get(path, query);
      if (mine === turn.current) setFound({ data, error: null, isLoading: false });
    } catch (error) {
      if (mine === turn.current) setFound((before) => ({ ...before, error, isLoading: false }));
    }
  }, [path, JSON.stringify(query)]);
  useEffect(() => void again(), [again, ...keys]);
  useEffect(() => () => void (turn.current = -1), []);
  return { ...found, again };
}

/** Call `onNews` when something happens on any channel, at most every so often. */
export function useNews(onNews) {
  const latest = useRef(onNews);
  latest.current = onNews;
  const [state, setState] = useState("waiting");
  useEffect(() => {
    const stop = new AbortController();
    let timer = null;
    const onEvent = () => {
      timer ??= setTimeout(() => ((timer = null), latest.current()), REST);
    };
    // What happened before the stream began, or while it was broken, is in no event: ask once it is there.
    const onState = (now) => (setState(now), now === "live" && onEvent());
    follow("/channels/events", { onEvent, onState, signal: stop.signal });
    return () => (stop.abort(), clearTimeout(timer));
  }, []);
  return state;
}

/** Follow one channel from `lines.head` on. */
export function useChannelStream(lines, onEvent) {
  const latest = useRef(onEvent);
  latest.current = onEvent;
  const [state, setState] = useState("waiting");
  useEffect(() => {
    if (lines === null) return undefined;
    const stop = new AbortController();
    follow(`/channels/${lines.channelId}/stream`, {
      after: () => lines.head,
      onEvent: (event) => latest.current(event),
      onState: setState,
      signal: stop.signal,
    });
    return () => stop.abort();
  }, [lines]);
  return state;
}

/** A value that follows another one after a rest. */
export function useSettled(value, milliseconds = 200) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}
