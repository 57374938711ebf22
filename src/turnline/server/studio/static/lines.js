// The lines of one channel: those that are looked at, in pages.
//
// Rule: a channel of any length costs what is on the screen. Lines are fetched where somebody
// looks; `version` changes whenever something new is known.

import { get } from "./api.js";

const PAGE = 100;

export class Lines {
  constructor(channelId, head) {
    this.channelId = channelId;
    this.head = head;
    this.version = 0;
    this._known = new Map();
    this._asked = new Set();
    this._listeners = new Set();
  }

  /** The line; null if it is not for whoever looks, undefined if it has not been read yet. */
  at(seq) {
    return this._known.get(seq);
  }

  /** Call `listener` whenever something new is known; returns what ends that. */
  onChange(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  /** A line that has just been written. */
  add(envelope) {
    if (envelope.event_type === "payload.erased") {
      this._known.clear();
      this._asked.clear();
    }
    this._known.set(envelope.seq, envelope);
    this.head = Math.max(this.head, envelope.seq);
    this._changed();
  }

  /** A line that has been written, and is not for whoever looks. */
  pass(seq) {
    this._known.set(seq, null);
    this.head = Math.max(this.head, seq);
    this._changed();
  }

  /** Read the lines from `first` to `last`, where they are not known. */
  want(first, last) {
    const from = Math.floor((Math.max(1, first) - 1) / PAGE);
    const to = Math.floor((Math.min(last, this.head) - 1) / PAGE);
    for (let page = from; page <= to; page += 1) {
      if (!this._asked.has(page)) this._read(page);
    }
  }

  async _read(page) {
    this._asked.add(page);
    const end = Math.min((page + 1) * PAGE, this.head);
    let after = page * PAGE;
    if (this._isKnown(after + 1, end)) return;
    try {
      while (after < end) {
        const found = await get(`/channels/${this.channelId}/envelopes`, { after, limit: end - after });
        for (let seq = found.first; seq <= found.last; seq += 1) {
          if (!this._known.has(seq)) this._known.set(seq, null);
        }
        for (const envelope of found.envelopes) this._known.set(envelope.seq, envelope);
        if (found.last <= after) break;
        after = found.last;
      }
      // The last page grows; whoever looks there again reads on.
      if (end < (page + 1) * PAGE) this._asked.delete(page);
    } catch {
      this._asked.delete(page);
    }
    this._changed();
  }

  _isKnown(first, last) {
    for (let seq = first; seq <= last; seq += 1) if (!this._known.has(seq)) return false;
    return true;
  }

  _changed() {
    this.version += 1;
    for (const listener of this._listeners) listener();
  }
}
