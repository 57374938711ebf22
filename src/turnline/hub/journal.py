"""The log as the journal of a round: what was recorded is not done again (T2, T3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from turnline.agent.journal import Entry
from turnline.agent.messages import ModelReply
from turnline.agent.round import ToolAnswer, ToolAttempt
from turnline.core import event_types as ev
from turnline.core.envelope import Envelope, JsonObject


class Recorder(Protocol):
    """What is needed of a seat or of the hub's turns."""

    async def record(self, channel_id: str, claim: int, event_type: str, data: JsonObject) -> None: ...


class LogJournal:
    """Writes a round's entries on a channel's log, under a claim."""

    def __init__(self, recorder: Recorder, channel_id: str, claim: int) -> None:
        self._recorder = recorder
        self._channel_id = channel_id
        self._claim = claim

    async def record(self, entry: Entry) -> None:
        """See `Journal.record`."""
        event_type = ev.EV_TURN_MODEL if isinstance(entry, ModelReply) else ev.EV_TURN_TOOL
        data = {"entry": msgspec.to_builtins(entry)}
        await self._recorder.record(self._channel_id, self._claim, event_type, data)


def entries(envelopes: Iterable[Envelope]) -> list[Entry]:
    """The entries of a round among a turn's lines. A summary comes before it, and is none."""
    return [_entry(one) for one in envelopes if one.event_type in _RECORDED and "entry" in one.event_data]


_RECORDED = (ev.EV_TURN_MODEL, ev.EV_TURN_TOOL)


def _entry(envelope: Envelope) -> Entry:
    entry = envelope.event_data["entry"]
    if envelope.event_type == ev.EV_TURN_MODEL:
        return msgspec.convert(entry, ModelReply)
    return msgspec.convert(entry, ToolAnswer | ToolAttempt)
